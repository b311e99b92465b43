//! One worker's handle to a GPU: its streams, its cuBLAS handle, its staging memory.

use std::sync::{Arc, Mutex, PoisonError};

use super::blas::Blas;
use super::context::Context;
use super::entry::{Launch, Pointer};
use super::pinned::Pinned;
use super::product::Product;
use super::staging::{PIECE, Staging};
use super::stream::{Event, Stream};
use crate::{DeviceId, KernelCache, Result};

/// A worker's handle to a GPU.
///
/// ```text
///  arrive   ── alloc ── copy in ──●                        data from other handles or the host
///                                 ╰─► wait
///  compute  ───────── kernels ────────── kernels ──●─ …    all operations, in order
///                                                  ╰─► wait
///  leave                                               ── copy out ── free
/// ```
///
/// Copies have streams of their own and overlap with kernels; only the events in the picture order
/// them.
#[derive(Clone)]
pub(crate) struct Gpu(Arc<Worker>);

pub(crate) struct Worker {
    pub(super) compute: Stream,
    pub(super) arrive: Stream,
    pub(super) leave: Stream,
    /// Created for the first product: a handle that never multiplies needs no workspace.
    blas: Mutex<Option<Blas>>,
    tf32: bool,
    pub(super) staging: Staging,
}

impl std::ops::Deref for Gpu {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.0
    }
}

impl Gpu {
    /// A new handle to the device of this ordinal, which the probe has found. With `tf32`, products round
    /// their factors to TF32.
    pub fn open(ordinal: u32, cache: Option<&dyn KernelCache>, tf32: bool) -> Result<Self> {
        let context = Context::open(ordinal, cache)?;
        Ok(Self(Arc::new(Worker {
            compute: Stream::new(&context)?,
            arrive: Stream::new(&context)?,
            leave: Stream::new(&context)?,
            blas: Mutex::new(None),
            tf32,
            staging: Staging::default(),
        })))
    }

    /// Whether `other` is the same handle.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether `other` is a handle to the same device.
    pub fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.context(), other.context())
    }

    /// The name of the device.
    pub fn id(&self) -> DeviceId {
        DeviceId::Cuda(self.context().ordinal)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.compute.context()
    }

    /// Waits on the host until all operations so far are done; reports their failures.
    pub fn synchronize(&self) -> Result<()> {
        self.compute.synchronize()
    }

    /// Records an event with its time after all operations so far.
    pub fn record_event(&self) -> Result<Event> {
        self.compute.record_timed()
    }

    /// Runs a kernel after the operations so far. Its pointers must be into
    /// [`Memory`](super::Memory) of this handle, as large as the operation's tensors.
    pub fn launch(&self, launch: &Launch) -> Result<()> {
        // SAFETY: the compute stream may use all memory of this handle: where that was filled from
        // elsewhere, this stream waits for it. Operations check shapes before they launch.
        unsafe { self.compute.launch(launch) }
    }

    /// Multiplies matrices after the operations so far, unless an extent is zero; pointers as for
    /// [`launch`](Self::launch).
    pub fn multiply(&self, product: Product, a: Pointer, b: Pointer, c: Pointer) -> Result<()> {
        let Product { m, n, k, items, .. } = product;
        if m * n * k * items == 0 {
            return Ok(());
        }
        let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        let blas = match &mut *blas {
            Some(blas) => blas,
            none => none.insert(Blas::new(&self.compute, self.tf32)?),
        };
        self.context().bind()?;
        // SAFETY: as in `launch`; no extent is zero.
        unsafe { blas.run(product, a, b, c) }
    }

    /// Sets `n` floats after the operations so far, as [`launch`](Self::launch).
    pub fn fill(&self, at: Pointer, value: f32, n: usize) -> Result<()> {
        // SAFETY: as in `launch`.
        unsafe { self.compute.fill(at.0, value.to_bits(), n) }
    }

    /// Copies within this handle's memory after the operations so far, as [`launch`](Self::launch).
    pub fn copy(&self, to: Pointer, from: Pointer, bytes: usize) -> Result<()> {
        // SAFETY: as in `launch`.
        unsafe { self.compute.copy(to.0, from.0, bytes) }
    }

    /// Copies the bytes at `from` to the host after the operations so far, and waits for them.
    pub fn download(&self, from: Pointer, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.leave.wait(&self.compute.record()?)?;
        for (piece, place) in bytes.chunks_mut(PIECE).zip((0..).step_by(PIECE)) {
            let pinned = self.take(piece.len())?;
            // SAFETY: what is read was written before the event that this stream waits for, and the
            // pinned memory is left alone until the copy is done.
            unsafe {
                self.leave.copy_out(&pinned, from.0 + place, piece.len())?;
            }
            self.leave.record_or_wait()?.synchronize()?;
            pinned.read(piece);
            self.staging.give_free(pinned);
        }
        Ok(())
    }

    /// `n` values at `from` after the operations so far, as [`download`](Self::download).
    pub fn read<T, const BYTES: usize>(
        &self,
        from: Pointer,
        n: usize,
        value: fn([u8; BYTES]) -> T,
    ) -> Result<Vec<T>> {
        let mut bytes = vec![0; BYTES * n];
        self.download(from, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().copied().map(value).collect())
    }

    /// Orders later operations of `to`, a handle to the same device, after this handle's operations before
    /// `settled`, or all so far.
    pub fn precede(&self, settled: Option<Event>, to: &Self) -> Result<()> {
        to.compute.wait(&self.settled_or_now(settled)?)
    }

    pub(super) fn settled_or_now(&self, settled: Option<Event>) -> Result<Event> {
        settled.map_or_else(|| self.compute.record(), Ok)
    }

    pub(super) fn take(&self, bytes: usize) -> Result<Pinned> {
        self.staging.take(self.context(), bytes)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let blas = self.blas.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(blas) = blas {
            blas.end(&self.compute);
        }
    }
}
