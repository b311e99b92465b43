//! One worker's handle to a GPU: its streams, its cuBLAS handle, its staging memory.

use std::sync::{Arc, Weak};

use super::blas_lt;
use super::compute::Compute;
use super::context::Context;
use super::entry::{Launch, Pointer};
use super::module::{MOST_SHARED, Module};
use super::pinned::Pinned;
use super::probe;
use super::product::{Added, Product};
use super::shortage::Spare;
use super::staging::{PIECE, Staging};
use super::stream::{Event, Stream};
use super::trace::{self, Trace, Work};
use crate::graph_counts::GraphCounts;
use crate::launch_trace::{Arithmetic, LaunchTrace};
use crate::ops::attention::tensor_cores::TensorCores;
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
    pub(super) compute: Compute,
    pub(super) arrive: Stream,
    pub(super) leave: Stream,
    pub(super) staging: Staging,
    /// What it is asked to do, if that is to be known.
    pub(super) trace: Option<Trace>,
}

impl Spare for Worker {
    fn give_back(&self) -> Result<bool> {
        self.compute.give_arena_back()
    }

    fn is_kept(&self) -> bool {
        self.compute.has_arena()
    }
}

impl std::ops::Deref for Gpu {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.0
    }
}

impl Gpu {
    /// A new handle to the device of this ordinal, which the probe has found. With `tf32`, products round
    /// their factors to TF32; with `traced`, every launch is timed; with `graphs`, and not traced, operations within actions
    /// become CUDA graphs.
    pub fn open(
        ordinal: u32,
        cache: Option<&dyn KernelCache>,
        [tf32, traced, graphs]: [bool; 3],
    ) -> Result<Self> {
        Self::in_context(&Context::open(ordinal, cache)?, tf32, traced, graphs)
    }

    /// A handle to a device on paper: operations are noted and not done, and what is read from it is zero.
    pub fn on_paper(tf32: bool) -> Result<Self> {
        Self::in_context(&Context::on_paper(), tf32, true, false)
    }

    fn in_context(context: &Arc<Context>, tf32: bool, traced: bool, graphs: bool) -> Result<Self> {
        let worker = Arc::new(Worker {
            compute: Compute::new(context, tf32, graphs && !traced)?,
            arrive: Stream::new(context)?,
            leave: Stream::new(context)?,
            staging: Staging::default(),
            trace: traced.then(Trace::default),
        });
        let spare: Weak<Worker> = Arc::downgrade(&worker);
        context.spares.add(spare);
        Ok(Self(worker))
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

    /// What tensor cores may do, and can.
    pub fn tensor_cores(&self) -> TensorCores {
        let module = self.context().module();
        TensorCores {
            tf32: self.compute.tf32(),
            // A device on paper, without a module, stands for those that have them.
            warpgroups: module.is_none_or(Module::has_warpgroups),
        }
    }

    /// Bytes of shared memory that a block may ask for, of those kernels that ask for much.
    pub fn most_shared(&self) -> usize {
        // A device on paper, without a module, stands for those that have the most.
        let module = self.context().module();
        module.map_or(MOST_SHARED, Module::most_shared) as usize
    }

    /// Whether the device is on paper.
    pub fn is_on_paper(&self) -> bool {
        self.context().is_on_paper()
    }

    /// The name of the device among all in the world.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        probe::uuid(self.context().device)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.compute.context()
    }

    /// Begins a step of actions.
    pub fn begin_step(&self) -> Result<()> {
        self.compute.begin_step()
    }

    /// Begins an action, whose operations become CUDA graphs if the handle makes any.
    pub fn begin_action(&self) {
        self.compute.begin_action();
    }

    /// Ends the action.
    pub fn end_action(&self) -> Result<()> {
        self.compute.end_action()
    }

    /// Whether memory ran out since the last step began, of which the next step leaves more to buffers.
    pub fn is_short(&self) -> bool {
        self.compute.is_short()
    }

    /// What became of the operations of actions.
    pub fn graph_counts(&self) -> Option<GraphCounts> {
        self.compute.graph_counts()
    }

    /// Waits on the host until all operations so far are done; reports their failures.
    pub fn synchronize(&self) -> Result<()> {
        self.compute.synchronize()
    }

    /// The most bytes that the device's pool has taken.
    pub fn most_reserved(&self) -> Result<u64> {
        self.context().most_reserved()
    }

    /// Records an event after all operations so far.
    pub fn record_end(&self) -> Result<Event> {
        self.compute.record()
    }

    /// Records an event with its time after all operations so far.
    pub fn record_event(&self) -> Result<Event> {
        self.compute.record_timed()
    }

    /// Runs a kernel after the operations so far.
    ///
    /// # Safety
    /// The pointers are into [`Memory`](super::Memory) of this handle that lives until the call returns, as
    /// large as the kernel takes it to be for the other arguments.
    pub unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        // SAFETY: the compute stream may use all memory of this handle: where that was filled from
        // elsewhere, this stream waits for it. The caller vouches for the sizes.
        let call = || unsafe { self.compute.launch(launch) };
        match &self.trace {
            None => call(),
            Some(trace) => trace.call(&self.compute, trace.launch(launch), call),
        }
    }

    /// Makes a call on the stream of the operations, timed if it is to be.
    fn called(&self, work: impl FnOnce() -> Work, call: impl FnOnce() -> Result<()>) -> Result<()> {
        match &self.trace {
            None => call(),
            Some(trace) => trace.call(&self.compute, work(), call),
        }
    }

    /// Waits for all operations so far, and gives and forgets what they were; none if they are not traced.
    pub fn take_launches(&self) -> Result<Option<LaunchTrace>> {
        let trace = self.trace.as_ref();
        trace.map(|trace| trace.take(&self.compute)).transpose()
    }

    /// Multiplies matrices after the operations so far, unless an extent is zero.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch): the memories are as large as the product says.
    pub unsafe fn multiply(
        &self,
        product: Product,
        a: Pointer,
        b: Pointer,
        c: Pointer,
    ) -> Result<()> {
        let Product { m, n, k, items, .. } = product;
        if [m, n, k, items].contains(&0) {
            return Ok(());
        }
        let work = || trace::product(&product, Added::NOTHING);
        if !self.context().bind()? {
            return self.called(work, || Ok(()));
        }
        self.compute.open_blas()?;
        // SAFETY: as in `launch`; no extent is zero.
        let call = || unsafe { self.compute.multiply(product, [a, b, c]) };
        self.called(work, call)
    }

    /// Writes a product plus what is added to it to c after the operations so far; false, and nothing is done, where
    /// that takes more than one launch. On paper it is one where cuBLASLt would be asked.
    ///
    /// # Safety
    /// As for [`multiply`](Self::multiply).
    pub unsafe fn multiply_with(
        &self,
        product: Product,
        operands: [Pointer; 2],
        added: Added,
        c: Pointer,
    ) -> Result<bool> {
        let Product { m, n, k, .. } = product;
        if [m, n, k].contains(&0) || !blas_lt::is_taken(&product, operands, &added, c) {
            return Ok(false);
        }
        let work = || trace::product(&product, added);
        if !self.context().bind()? {
            return self.called(work, || Ok(())).map(|()| true);
        }
        if !self.compute.adds(product, &added)? {
            return Ok(false);
        }
        let [a, b] = operands;
        // SAFETY: as in `launch`; no extent is zero, and the library has the product.
        let call = || unsafe { self.compute.multiply_with(product, added, [a, b, c]) };
        self.called(work, call).map(|()| true)
    }

    /// Sets `n` floats after the operations so far.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub unsafe fn fill(&self, at: Pointer, value: f32, n: usize) -> Result<()> {
        let work = || Work {
            name: "filling".into(),
            bytes: 4 * n as u64,
            arithmetic: Arithmetic::Little,
        };
        // SAFETY: as in `launch`.
        self.called(work, || unsafe {
            self.compute.fill(at.0, value.to_bits(), n)
        })
    }

    /// Copies within this handle's memory after the operations so far.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub unsafe fn copy(&self, to: Pointer, from: Pointer, bytes: usize) -> Result<()> {
        let work = || Work {
            name: "copy".into(),
            bytes: 2 * bytes as u64,
            arithmetic: Arithmetic::Little,
        };
        // SAFETY: as in `launch`.
        self.called(work, || unsafe { self.compute.copy(to.0, from.0, bytes) })
    }

    /// Copies the bytes at `from` to the host after the operations so far, and waits for them. On paper there are none, and
    /// `bytes` stay as they are.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub(super) unsafe fn download(&self, from: Pointer, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() || !self.context().bind()? {
            return Ok(());
        }
        self.leave.wait(&self.compute.record()?)?;
        for (piece, place) in bytes.chunks_mut(PIECE).zip((0..).step_by(PIECE)) {
            let pinned = self.staging.take(self.context(), piece.len())?;
            let (pinned, ()) = through(pinned, &[&self.leave], |pinned| {
                // SAFETY: what is read was written before the event that this stream waits for, and
                // the pinned memory is left alone until the copy is done.
                unsafe { self.leave.copy_out(pinned, from.0 + place, piece.len()) }?;
                self.leave.record()?.synchronize()
            })?;
            pinned.read(piece);
            self.staging.give_free(pinned);
        }
        Ok(())
    }

    /// Orders later operations of `to`, a handle to the same device, after this handle's operations before
    /// `settled`, or all so far.
    pub fn precede(&self, settled: Option<Event>, to: &Self) -> Result<()> {
        to.compute.wait(&self.settled_or_now(settled)?)
    }

    pub(super) fn settled_or_now(&self, settled: Option<Event>) -> Result<Event> {
        settled.map_or_else(|| self.compute.record(), Ok)
    }
}

/// Pinned memory, and what `copies` made of it. After an error, copies that were asked for already may
/// still use the memory: it is freed when `streams`, which they are on, are done, and never if that
/// cannot be known.
pub(super) fn through<T>(
    mut pinned: Pinned,
    streams: &[&Stream],
    copies: impl FnOnce(&mut Pinned) -> Result<T>,
) -> Result<(Pinned, T)> {
    match copies(&mut pinned) {
        Ok(made) => Ok((pinned, made)),
        Err(error) => {
            let done = streams.iter().map(|stream| stream.give_up());
            if !done.fold(true, |all, done| all & done) {
                std::mem::forget(pinned);
            }
            Err(error)
        }
    }
}
