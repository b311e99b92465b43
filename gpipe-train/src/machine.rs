//! Properties of the machine: CPU, memory, clocks and speed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use gpipe_remat::Rates;
use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DeviceId, Host, InstructionSet, Tensor, find_cuda};

use crate::error::{Error, Result};
use crate::memory_limit::{MemoryLimit, kib_in, limits};

/// Duration of each of the two measurements of speed.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Fewest repetitions: a program that takes the processor away for longer than all of [`CALIBRATION`] does
/// so in one of them.
const LEAST_REPETITIONS: u32 = 4;

/// Elements of a tensor of 16 MiB.
const BEYOND_CACHES: usize = 1 << 22;

/// Seconds of an action besides its layers, about a change of thread; not measured.
const ACTION: f64 = 15e-6;

/// The CPU; fields are `None` where the system does not report them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processor {
    /// The vendor's model name.
    pub name: Option<String>,
    /// Physical cores of the machine.
    pub cores: Option<usize>,
    /// Threads that this process may run in parallel.
    pub threads: usize,
}

/// The CPU, from `/proc/cpuinfo` on Linux.
pub fn processor() -> Processor {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let values = |key: &'static str| {
        text.lines().filter_map(move |line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    // Threads of one core share its number within their socket.
    let cores: BTreeSet<_> = values("physical id").zip(values("core id")).collect();
    Processor {
        name: values("model name").next(),
        cores: Some(cores.len()).filter(|&count| count > 0),
        threads: thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The processors on which this process may run, as in `0-3,8`; `None` outside of Linux.
pub(crate) fn allowed_processors() -> Option<String> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(found.trim().to_owned())
}

/// Threads that the machine runs in parallel, of which this process may be kept on some.
pub(crate) fn host_threads() -> usize {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let threads = text.lines().filter(|line| line.starts_with("processor"));
    threads.count().max(processor().threads)
}

/// The widest vector instructions of the CPU, which are those that gpipe-tensor uses.
pub fn vectors() -> &'static str {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        if is_x86_feature_detected!("avx512f") {
            if InstructionSet::Best.uses_amx() {
                return "AVX-512 and AMX";
            }
            return "AVX-512";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return "AVX2";
        }
        "SSE2"
    }
    #[cfg(target_arch = "aarch64")]
    {
        "NEON"
    }
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    {
        "no vectors"
    }
}

/// The memory of the machine in bytes, or the lowest limit of this process if that is lower: of its
/// control groups, those above them, and its resource limits. `None` outside of Linux.
pub fn memory() -> Option<u64> {
    lowest(meminfo("MemTotal:"), |limit| limit.most)
}

/// The part of [`memory`] that is available now, in bytes.
pub fn free_memory() -> Option<u64> {
    lowest(meminfo("MemAvailable:"), MemoryLimit::free)
}

/// What this process may use in addition, in bytes: of the machine all, as other programs can be ended,
/// and what is left below its limits.
pub(crate) fn memory_to_come() -> Option<u64> {
    lowest(meminfo("MemTotal:"), MemoryLimit::free)
}

fn lowest(machine: Option<u64>, of: impl FnMut(MemoryLimit) -> u64) -> Option<u64> {
    let limits = limits(Path::new("/")).into_iter().map(of);
    machine.into_iter().chain(limits).min()
}

/// The peak resident memory of this process in bytes; `None` outside of Linux.
pub(crate) fn peak_resident() -> Option<u64> {
    kib_in(Path::new("/proc/self/status"), "VmHWM:")
}

/// The wall-clock time.
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// The CPU time of all threads of this process; `None` where the system does not report it.
pub(crate) fn cpu_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};
        clock_gettime(ClockId::ProcessCPUTime).try_into().ok()
    }
    #[cfg(not(unix))]
    None
}

/// Seconds of CPU time since an earlier [`cpu_time`].
pub(crate) fn cpu_seconds_since(then: Duration) -> Option<f64> {
    Some(cpu_time()?.saturating_sub(then).as_secs_f64())
}

/// The value of a line of `/proc/meminfo`, in bytes.
fn meminfo(key: &str) -> Option<u64> {
    kib_in(Path::new("/proc/meminfo"), key)
}

/// The architecture and the instruction sets, within `level`, that can affect the bits of results.
pub(crate) fn instructions(level: InstructionSet) -> String {
    #[cfg(target_arch = "x86_64")]
    let wide = level != InstructionSet::Avx2;
    #[cfg(target_arch = "x86_64")]
    let vectors = [
        (std::is_x86_feature_detected!("avx2"), "avx2"),
        (std::is_x86_feature_detected!("fma"), "fma"),
        (wide && std::is_x86_feature_detected!("avx512f"), "avx512f"),
        (
            wide && std::is_x86_feature_detected!("avx512bw"),
            "avx512bw",
        ),
        (
            wide && std::is_x86_feature_detected!("avx512dq"),
            "avx512dq",
        ),
        (
            wide && std::is_x86_feature_detected!("avx512vl"),
            "avx512vl",
        ),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let vectors = [];
    let found = vectors.into_iter().chain([(level.uses_amx(), "amx")]);
    let words = found.filter_map(|(available, word)| available.then_some(word));
    let words: Vec<_> = [std::env::consts::ARCH].into_iter().chain(words).collect();
    words.join(" ")
}

/// FLOP/s of one thread of `host` in products of (rows, width) by (width, 4 · width) matrices, and bytes a second in sums of
/// tensors that no cache of a core holds: the best repetition of each within a twentieth of a second,
/// since other programs may interfere.
///
/// # Errors
/// [`Error::Run`] if the CPU device cannot be used or memory is exhausted.
pub(crate) fn rates(rows: usize, width: usize, host: &Host) -> Result<Rates> {
    // Large enough to be representative, small enough for several repetitions.
    let (rows, width) = (rows.clamp(64, 1024), width.clamp(64, 768));
    let device = host.device(DeviceId::Cpu).map_err(Error::run)?;
    // Written: pages of zeros that nothing wrote are one page, which caches hold.
    let ones = |shape: [usize; 2]| {
        let mut ones = Tensor::empty(&device, shape).map_err(Error::run)?;
        ones.fill(1.0).map_err(Error::run)?;
        Ok::<_, Error>(ones)
    };
    let (a, b) = (ones([rows, width])?, ones([width, 4 * width])?);
    let (c, d) = (ones([BEYOND_CACHES, 1])?, ones([BEYOND_CACHES, 1])?);
    let per_second = |work: usize, operation: &dyn Fn() -> gpipe_tensor::Result<Tensor>| {
        let begin = Instant::now();
        let (mut best, mut repetitions) = (0.0_f64, 0);
        while begin.elapsed() < CALIBRATION || repetitions < LEAST_REPETITIONS {
            let start = Instant::now();
            operation().map_err(Error::run)?;
            best = best.max(work as f64 / start.elapsed().as_secs_f64().max(1e-9));
            repetitions += 1;
        }
        Ok::<f64, Error>(best)
    };
    Ok(Rates {
        flops: per_second(2 * rows * width * 4 * width, &|| {
            ops::matmul(Layout::Nn, &a, &b, None)
        })?,
        // Two operands and a sum.
        bytes: per_second(3 * BEYOND_CACHES * size_of::<f32>(), &|| ops::add(&c, &d))?,
        action: ACTION,
    })
}

/// Which of these are CUDA devices that this machine lacks.
pub fn missing_gpus(ids: impl Iterator<Item = DeviceId>) -> BTreeSet<String> {
    let here = find_cuda().map_or_else(|_| Vec::new(), |found| found.devices);
    let is_missing = |id: &DeviceId| {
        matches!(id, DeviceId::Cuda(_)) && !here.iter().any(|device| device.id == *id)
    };
    ids.filter(is_missing).map(|id| id.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_machine_is_known() {
        let processor = processor();
        assert!(processor.threads > 0 && !vectors().is_empty());
        let (all, free) = (memory().unwrap(), free_memory().unwrap());
        assert!(0 < free && free <= all, "{free} of {all}");
    }

    #[test]
    fn speed_is_a_positive_number() {
        let Rates { flops, bytes, .. } = rates(1, 1, &Host::new(1).unwrap()).unwrap();
        assert!(flops.is_finite() && flops > 0.0 && bytes.is_finite() && bytes > 0.0);
    }
}
