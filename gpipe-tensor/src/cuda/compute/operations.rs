//! The operations of a stream: asked for at once, or put behind the others of the action.

use std::sync::PoisonError;

use cudarc::driver::sys::CUdeviceptr;

use super::Compute;
use crate::cuda::asked::Asked;
use crate::cuda::blas::Blas;
use crate::cuda::entry::{Launch, Pointer};
use crate::cuda::product::{Added, Product};
use crate::error::Result;

impl Compute {
    /// Runs a kernel; nothing if there are no blocks to run.
    ///
    /// # Safety
    /// As [`Stream::launch`]; memory that the handle gives up stays as it is until what was asked for before is done.
    pub unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        if self.is_put_together(launch.blocks > 0, || Asked::Launch(launch.clone())) {
            return Ok(());
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.launch(launch) }
    }

    /// Sets `n` words of 32 bits.
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Stream::fill`].
    pub unsafe fn fill(&self, at: CUdeviceptr, word: u32, n: usize) -> Result<()> {
        if self.is_put_together(n > 0, || Asked::Fill { at, word, n }) {
            return Ok(());
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.fill(at, word, n) }
    }

    /// Copies within the device.
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Stream::copy`].
    pub unsafe fn copy(&self, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<()> {
        if self.is_put_together(bytes > 0, || Asked::Copy { to, from, bytes }) {
            return Ok(());
        }
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.copy(to, from, bytes) }
    }

    /// [`copy`](Self::copy) that is no part of a graph, of memory whose address will not come again.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    pub(in crate::cuda) unsafe fn copy_alone(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        let _held = self.caught_up()?;
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.copy(to, from, bytes) }
    }

    /// Makes the handle of cuBLAS, if there is none yet, with the context of the thread.
    pub fn open_blas(&self) -> Result<()> {
        self.with_blas(|_| Ok(()))
    }

    /// Whether cuBLASLt has an algorithm for a product to which something is added, for
    /// [`multiply_with`](Self::multiply_with).
    pub fn adds(&self, product: Product, added: &Added) -> Result<bool> {
        self.with_blas(|blas| Ok(blas.lt_for(product, added)?.is_some()))
    }

    /// Multiplies matrices, after [`open_blas`](Self::open_blas).
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Blas::run`].
    pub unsafe fn multiply(&self, product: Product, places: [Pointer; 3]) -> Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.put_or_ask(Asked::Product(product, places)) }
    }

    /// Writes a product plus what is added to it to the third place, where the library [`adds`](Self::adds).
    ///
    /// # Safety
    /// As [`multiply`](Self::multiply), for what is added too.
    pub unsafe fn multiply_with(
        &self,
        product: Product,
        added: Added,
        places: [Pointer; 3],
    ) -> Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { self.put_or_ask(Asked::Sum(product, added, places)) }
    }

    /// Puts a product behind the others of the action, or asks for it now.
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for [`Asked::ask`].
    unsafe fn put_or_ask(&self, product: Asked) -> Result<()> {
        if self.is_put_together(true, || product.clone()) {
            return Ok(());
        }
        let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller vouches for it.
        unsafe { product.ask(&self.stream, blas.as_mut()) }
    }

    /// Calls with the handle of cuBLAS, made at the first call; its context is the thread's.
    fn with_blas<T>(&self, act: impl FnOnce(&mut Blas) -> Result<T>) -> Result<T> {
        // Nothing else is asked of the stream while it is captured.
        let _held = self.lock();
        let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        let blas = match &mut *blas {
            Some(blas) => blas,
            none => none.insert(Blas::new(&self.stream, self.tf32)?),
        };
        self.context().bind()?;
        act(blas)
    }

    /// Puts the operation behind the others of the action, if one is under way.
    fn is_put_together(&self, does_something: bool, asked: impl FnOnce() -> Asked) -> bool {
        let Some(record) = &mut self.lock() else {
            return false;
        };
        if record.puts_together() {
            if does_something {
                record.asked.push(asked());
            }
            return true;
        }
        if record.is_open {
            let is_short = record.pause.is_now();
            let counts = &mut record.replays.counts;
            let reason = match is_short {
                true => &mut counts.short,
                false => &mut counts.first,
            };
            *reason += u64::from(does_something);
        }
        false
    }
}
