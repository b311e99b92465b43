//! What the workers of one process share: the thread budget and the pool of free buffers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "cuda")]
use crate::cuda::Nccl;
use crate::error::{Error, Result};
use crate::floats::Floats;
use crate::helpers::Helpers;
use crate::instruction_set::InstructionSet;
#[cfg(feature = "cuda")]
use crate::kernel_cache::KernelCache;
use crate::pool::Pool;
use crate::precision::Precision;
use crate::simd;
use crate::thread_budget::ThreadBudget;

/// The thread budget and the pool of freed buffers that all workers of a process share.
///
/// Buffers change hands at every stage boundary, hence one pool for all workers: a sender takes for its
/// next output what a receiver has freed.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

struct Shared {
    thread_budget: Arc<ThreadBudget>,
    precision: Precision,
    instructions: InstructionSet,
    /// Helper threads of operations: one fewer than the budget, since the calling thread takes part. One
    /// more would compete with it for a processor.
    helpers: Option<Helpers>,
    buffers: Mutex<Pool>,
    #[cfg(feature = "cuda")]
    kernels: Option<Box<dyn KernelCache>>,
    #[cfg(feature = "cuda")]
    tf32: bool,
    #[cfg(feature = "cuda")]
    traced: bool,
    #[cfg(feature = "cuda")]
    graphs: bool,
    #[cfg(feature = "cuda")]
    on_paper: bool,
    #[cfg(feature = "cuda")]
    nccl: Option<Nccl>,
}

impl Host {
    /// The most threads of a host. Each thread that starts looks for work at all others, so that twice as many take four
    /// times as long to start: 2,000 take seconds.
    pub const MAX_THREADS: usize = 1024;

    /// A host whose operations use at most `threads` threads in total.
    ///
    /// # Errors
    /// [`Error::Argument`] for zero threads, more than [`MAX_THREADS`](Self::MAX_THREADS), or if the system cannot start them.
    pub fn new(threads: usize) -> Result<Self> {
        Self::with(threads, Precision::Single)
    }

    /// Like [`new`](Self::new), with matrix products of this precision.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Argument`] for bf16 on a processor that has no fast unit for it, where it
    /// would only be slower.
    pub fn with(threads: usize, precision: Precision) -> Result<Self> {
        if !precision.is_available() {
            return Err(Error::Argument {
                op: "bf16",
                message:
                    "this processor has no fast unit for it (AMX on Linux, or AMD's AVX512-BF16): use f32"
                        .into(),
            });
        }
        let fail = |message: String| Error::Argument {
            op: "threads",
            message,
        };
        if threads == 0 {
            return Err(fail("0 threads cannot compute: use 1 or more".into()));
        }
        if threads > Self::MAX_THREADS {
            let most = Self::MAX_THREADS;
            return Err(fail(format!(
                "{threads} threads are more than a host starts: use {most} or fewer"
            )));
        }
        let thread_budget = Arc::new(ThreadBudget::new(threads));
        let start = |threads: usize| {
            Helpers::start(threads - 1, thread_budget.clone()).map_err(|e| {
                fail(format!(
                    "cannot start {threads} threads: {e}: use fewer, or raise the limit of threads (ulimit -u, or pids of the container)"
                ))
            })
        };
        let helpers = (threads > 1).then(|| start(threads)).transpose()?;
        Ok(Self(Arc::new(Shared {
            thread_budget,
            precision,
            instructions: InstructionSet::default(),
            helpers,
            buffers: Mutex::default(),
            #[cfg(feature = "cuda")]
            kernels: None,
            #[cfg(feature = "cuda")]
            tf32: false,
            #[cfg(feature = "cuda")]
            traced: false,
            #[cfg(feature = "cuda")]
            graphs: false,
            #[cfg(feature = "cuda")]
            on_paper: false,
            #[cfg(feature = "cuda")]
            nccl: None,
        })))
    }

    /// The same host with matrix products limited to `instructions`; call it before the first device is
    /// opened.
    ///
    /// ```
    /// use gpipe_tensor::{DeviceId, Host, InstructionSet};
    ///
    /// // The same bits on every processor with AVX-512, whether it has AMX or not.
    /// let host = Host::new(2)?.with_instruction_set(InstructionSet::Avx512)?;
    /// let device = host.device(DeviceId::Cpu)?;
    /// assert_eq!(device.host().instruction_set(), InstructionSet::Avx512);
    /// # Ok::<(), gpipe_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a host of [`Precision::Bf16`] and a level without a fast unit for it, and if a device of
    /// this host is already open.
    pub fn with_instruction_set(mut self, instructions: InstructionSet) -> Result<Self> {
        if !self.precision().is_available_with(instructions) {
            return Err(Error::Argument {
                op: "bf16",
                message: format!(
                    "the instruction set `{instructions}` has no fast unit for it: use f32, or `best`"
                ),
            });
        }
        let Some(shared) = Arc::get_mut(&mut self.0) else {
            return Err(Error::Argument {
                op: "instruction set",
                message: "devices of this host are open already: set it before the first".into(),
            });
        };
        shared.instructions = instructions;
        if instructions == InstructionSet::Avx2 {
            simd::narrow();
        }
        Ok(self)
    }

    /// The same host with a cache of compiled kernels. Call it before the first device is opened.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn with_kernel_cache(mut self, cache: Box<dyn KernelCache>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.kernels = Some(cache);
        }
        self
    }

    /// The same host with products on GPUs whose factors are rounded to TF32 (11 bits), which tensor cores
    /// multiply, instead of true single precision. Call it before the first device is opened.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn with_tf32(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.tf32 = true;
        }
        self
    }

    /// The same host with every launch on a GPU between two events, for
    /// [`Device::take_launches`](crate::Device::take_launches). Call it before the first device is opened.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn with_traced_launches(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.traced = true;
        }
        self
    }

    /// The same host with CUDA graphs: what a GPU does between [`Device::begin_action`](crate::Device::begin_action) and
    /// [`Device::end_action`](crate::Device::end_action) is asked of it by a few calls once it has come before. Results are the
    /// same to the bit. Launches that are [traced](Self::with_traced_launches) are none of graphs. Call it before the first
    /// device is opened.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn with_cuda_graphs(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.graphs = true;
        }
        self
    }

    /// The same host with GPUs on paper: every device but the processor is one that notes its operations for
    /// [`Device::take_launches`](crate::Device::take_launches), whose bytes it counts without taking them, and that does
    /// none of them. What is read from it is zero. No driver and no GPU is needed. Call it before the first device is
    /// opened.
    ///
    /// ```
    /// use gpipe_tensor::{DType, DeviceId, Host, Tensor, ops};
    ///
    /// let device = Host::new(1)?.on_paper().device(DeviceId::Cuda(0))?;
    /// // 64 GiB, which are nowhere.
    /// let x = Tensor::zeros_of(&device, [1 << 15, 1 << 20], DType::BF16)?;
    /// let y = ops::scale(&x, 2.0)?;
    /// let launches = device.take_launches()?.unwrap().launches;
    /// assert_eq!(launches[1].name, "scale_bf16");
    /// assert_eq!(launches[1].bytes, 128 << 30);
    /// assert_eq!(device.live_bytes(), 128 << 30);
    /// # Ok::<(), gpipe_tensor::Error>(())
    /// ```
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn on_paper(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.on_paper = true;
        }
        self
    }

    /// The same host with the NCCL that passes tensors to GPUs of other processes, which all have the same version.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn with_nccl(mut self, nccl: Nccl) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.nccl = Some(nccl);
        }
        self
    }

    /// The NCCL that passes tensors to GPUs of other processes, if one does.
    #[cfg(feature = "cuda")]
    pub fn nccl(&self) -> Option<&Nccl> {
        self.0.nccl.as_ref()
    }

    /// Threads in the budget.
    pub fn threads(&self) -> usize {
        self.0.thread_budget.threads()
    }

    /// The precision of matrix products on the CPU.
    pub fn precision(&self) -> Precision {
        self.0.precision
    }

    /// Where compiled kernels are kept between runs.
    #[cfg(feature = "cuda")]
    pub(crate) fn kernel_cache(&self) -> Option<&dyn KernelCache> {
        self.0.kernels.as_deref()
    }

    /// Whether products on GPUs may round their factors to TF32.
    #[cfg(feature = "cuda")]
    pub(crate) fn tf32(&self) -> bool {
        self.0.tf32
    }

    /// Whether GPUs are on paper.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_on_paper(&self) -> bool {
        self.0.on_paper
    }

    /// Whether launches on GPUs are timed.
    #[cfg(feature = "cuda")]
    pub(crate) fn traces(&self) -> bool {
        self.0.traced
    }

    /// Whether operations on GPUs become CUDA graphs.
    #[cfg(feature = "cuda")]
    pub(crate) fn makes_graphs(&self) -> bool {
        self.0.graphs
    }

    /// The most capable instructions that matrix products may use.
    pub fn instruction_set(&self) -> InstructionSet {
        self.0.instructions
    }

    /// The number of the calling thread: 1 and more for the helper threads, 0 for all others.
    pub(crate) fn thread_number(&self) -> usize {
        let helper = self.helpers().and_then(Helpers::current);
        helper.map_or(0, |helper| helper + 1)
    }

    /// The helper threads, if the budget is more than one thread.
    pub(crate) fn helpers(&self) -> Option<&Helpers> {
        self.0.helpers.as_ref()
    }

    /// The thread budget that all workers share.
    pub(crate) fn thread_budget(&self) -> &Arc<ThreadBudget> {
        &self.0.thread_budget
    }

    /// A buffer of `n` floats with unspecified contents.
    pub(crate) fn take(&self, n: usize) -> Result<Floats> {
        lock(&self.0.buffers).take(n).map(|(floats, _)| floats)
    }

    /// A buffer of `n` zeros.
    pub(crate) fn take_zeros(&self, n: usize) -> Result<Floats> {
        let (mut floats, zeros) = lock(&self.0.buffers).take(n)?;
        if !zeros {
            floats.fill(0.0);
        }
        Ok(floats)
    }

    /// Keeps a freed buffer for its next use.
    pub(crate) fn give(&self, buffer: Floats) {
        lock(&self.0.buffers).give(buffer);
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({} threads)", self.threads())
    }
}

/// Locks despite poison: a poisoned lock means that another worker panicked, but the data are consistent,
/// since no code panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceId;

    #[test]
    fn an_operation_uses_the_share_of_its_action() {
        let host = Host::new(4).unwrap();
        let [one, other] = [0, 1].map(|_| host.device(DeviceId::Cpu).unwrap());
        assert_eq!(one.share(), 4);
        let _first = one.cpu_slot();
        assert_eq!(one.share(), 4);
        let second = other.cpu_slot();
        assert_eq!((one.share(), other.share()), (2, 2));
        drop(second);
        assert_eq!(one.share(), 4);
    }

    #[test]
    fn an_instruction_set_is_chosen_before_the_first_device() {
        let host = Host::new(1).unwrap();
        assert_eq!(host.instruction_set(), InstructionSet::Best);
        let host = host.with_instruction_set(InstructionSet::Avx512).unwrap();
        assert_eq!(host.instruction_set(), InstructionSet::Avx512);
        let _device = host.device(DeviceId::Cpu).unwrap();
        let refused = host.with_instruction_set(InstructionSet::Best);
        assert_eq!(
            refused.err().unwrap().to_string(),
            "instruction set: devices of this host are open already: set it before the first"
        );
    }

    #[test]
    fn none_and_too_many_threads_are_errors_that_name_the_mend() {
        assert_eq!(
            Host::new(0).unwrap_err().to_string(),
            "threads: 0 threads cannot compute: use 1 or more"
        );
        for threads in [1025, 100_000, usize::MAX] {
            assert_eq!(
                Host::new(threads).unwrap_err().to_string(),
                format!(
                    "threads: {threads} threads are more than a host starts: use 1024 or fewer"
                )
            );
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_build_without_a_kind_of_device_says_how_to_get_it() {
        let host = Host::new(1).unwrap();
        assert_eq!(
            host.device(DeviceId::Cuda(1)).unwrap_err().to_string(),
            "device cuda:1 is not available: this build has no CUDA support: build with `--features cuda`, or use --devices cpu"
        );
    }
}
