//! What the workers of one process share: the thread budget and the pool of free buffers.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "cuda")]
use crate::cuda::Gpu;
use crate::floats::Floats;
use crate::pool::Pool;
use crate::thread_budget::ThreadBudget;
use crate::{Device, DeviceId, Error, Result, ops};
#[cfg(feature = "cuda")]
use crate::{KernelCache, find_cuda};

/// What the factors are that matrix products multiply. Sums are of single precision in any case, and
/// so is everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Floats as they are.
    #[default]
    Single,
    /// Floats rounded to bf16, to 8 bits, where at least 16 rows and columns and 32 terms make it
    /// worth while: what a unit multiplies that is made for it.
    Bf16,
}

impl Precision {
    /// Whether this processor multiplies such factors faster than it would others: floats always, bf16
    /// where there is a unit for it (AMX, on Linux).
    pub fn is_available(self) -> bool {
        self == Self::Single || ops::multiplies_bf16()
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "f32" => Ok(Self::Single),
            "bf16" => Ok(Self::Bf16),
            _ => Err(Error::UnknownPrecision(text.to_owned())),
        }
    }
}

/// The processor's threads and the buffers that were freed and wait for their next use.
///
/// Buffers change hands at every stage boundary, so the pool is one for all workers: what the
/// receiver frees, the sender takes for its next output.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

struct Shared {
    thread_budget: Arc<ThreadBudget>,
    precision: Precision,
    /// Threads that help with an operation: one fewer than there may be, as the thread that begins it
    /// takes part. One more would look for work on a processor that another needs.
    pool: Option<rayon::ThreadPool>,
    buffers: Mutex<Pool>,
    #[cfg(feature = "cuda")]
    kernels: Option<Box<dyn KernelCache>>,
    #[cfg(feature = "cuda")]
    tf32: bool,
}

impl Host {
    /// A host whose operations use at most `threads` threads in all.
    ///
    /// # Errors
    /// [`Error::Argument`] for zero threads, or if the system does not give them.
    pub fn new(threads: usize) -> Result<Self> {
        Self::with(threads, Precision::Single)
    }

    /// As [`new`](Self::new), with matrix products of this precision.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Argument`] for bf16 where no unit of the processor
    /// multiplies it: it would only be slower.
    pub fn with(threads: usize, precision: Precision) -> Result<Self> {
        if !precision.is_available() {
            return Err(Error::Argument {
                op: "bf16",
                message: "this processor has no unit for it (AMX, on Linux): use f32".into(),
            });
        }
        let fail = |message: String| Error::Argument {
            op: "threads",
            message,
        };
        if threads == 0 {
            return Err(fail("0 threads cannot compute: use 1 or more".into()));
        }
        let pool = match threads {
            1 => None,
            _ => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads - 1)
                    .thread_name(|i| format!("gpipe-compute-{i}"))
                    .build()
                    .map_err(|e| fail(format!("cannot start {threads} threads: {e}")))?,
            ),
        };
        Ok(Self(Arc::new(Shared {
            thread_budget: Arc::new(ThreadBudget::new(threads)),
            precision,
            pool,
            buffers: Mutex::default(),
            #[cfg(feature = "cuda")]
            kernels: None,
            #[cfg(feature = "cuda")]
            tf32: false,
        })))
    }

    /// A new handle to the device `id`, for one worker.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a device that this build or machine does not have.
    pub fn device(&self, id: DeviceId) -> Result<Device> {
        match id {
            DeviceId::Cpu => Ok(Device::cpu(self.clone())),
            DeviceId::Cuda(ordinal) => self.cuda(ordinal),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self, ordinal: u32) -> Result<Device> {
        let device = DeviceId::Cuda(ordinal);
        let unavailable = |reason| Error::Unavailable { device, reason };
        let found = find_cuda().map_err(unavailable)?;
        if self.precision() == Precision::Bf16 {
            let reason = "products in bf16 are the processor's: use f32, or --devices cpu";
            return Err(unavailable(reason.into()));
        }
        if ordinal as usize >= found.devices.len() {
            let reason = match found.devices.len() {
                1 => "this machine has cuda:0 alone".into(),
                count => format!("this machine has cuda:0 to cuda:{}", count - 1),
            };
            return Err(unavailable(reason));
        }
        let gpu = Gpu::open(ordinal, self.0.kernels.as_deref(), self.0.tf32)?;
        Ok(Device::new(device, self.clone(), Some(gpu)))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(&self, ordinal: u32) -> Result<Device> {
        Err(Error::Unavailable {
            device: DeviceId::Cuda(ordinal),
            reason: crate::cuda_info::NO_SUPPORT.into(),
        })
    }

    /// The same with a place for compiled kernels; to be called before the first device is asked for.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn with_kernel_cache(mut self, cache: Box<dyn KernelCache>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.kernels = Some(cache);
        }
        self
    }

    /// The same with products on GPUs whose factors are rounded to TF32, to 11 bits, which their tensor
    /// cores multiply, rather than true single precision; to be called before the first device is asked
    /// for.
    #[cfg(feature = "cuda")]
    #[must_use]
    pub fn with_tf32(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.tf32 = true;
        }
        self
    }

    /// The thread budget.
    pub fn threads(&self) -> usize {
        self.0.thread_budget.threads()
    }

    /// What matrix products multiply.
    pub fn precision(&self) -> Precision {
        self.0.precision
    }

    /// The threads that help with an operation, if there may be any.
    pub(crate) fn pool(&self) -> Option<&rayon::ThreadPool> {
        self.0.pool.as_ref()
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

/// A poisoned lock only says that another worker panicked: its data are still consistent, since
/// nothing in here can panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_precision_goes_by_its_name() {
        for precision in [Precision::Single, Precision::Bf16] {
            assert_eq!(
                precision.to_string().parse::<Precision>().unwrap(),
                precision
            );
            assert_eq!(Host::with(1, precision).is_ok(), precision.is_available());
        }
        assert_eq!(
            "f64".parse::<Precision>().unwrap_err().to_string(),
            "unknown precision `f64`: use `f32` or `bf16`"
        );
        assert_eq!(Host::new(1).unwrap().precision(), Precision::Single);
    }

    #[test]
    fn no_threads_are_an_error_that_names_the_mend() {
        assert_eq!(
            Host::new(0).err().unwrap().to_string(),
            "threads: 0 threads cannot compute: use 1 or more"
        );
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
