//! The machine: its processor, its memory and the speed of its matrix products.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DeviceId, Host, InstructionSet, Tensor};

use crate::error::{Error, Result};

/// How long the speed is measured.
const CALIBRATION: Duration = Duration::from_millis(100);

/// The processor, as far as the system tells.
pub struct Processor {
    /// The maker's name for it.
    pub name: Option<String>,
    /// Cores of the machine.
    pub cores: Option<usize>,
    /// Threads that this process may run at once.
    pub threads: usize,
}

/// What is known of the processor: all of it where Linux says so.
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

/// The widest vector instructions that gpipe-tensor finds here; it uses the same ones.
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

/// The bytes that a process can have here at most, where Linux says so: of the machine, and of the
/// control group that a container runs in.
pub fn memory() -> Option<u64> {
    let group = number_in("/sys/fs/cgroup/memory.max");
    meminfo("MemTotal:").into_iter().chain(group).min()
}

/// Of these, the bytes that nobody uses now.
pub fn free_memory() -> Option<u64> {
    let limit = number_in("/sys/fs/cgroup/memory.max");
    let used = number_in("/sys/fs/cgroup/memory.current");
    let group = limit
        .zip(used)
        .map(|(limit, used)| limit.saturating_sub(used));
    meminfo("MemAvailable:").into_iter().chain(group).min()
}

/// The most memory that this process had so far, where Linux says so.
pub fn peak_resident() -> Option<u64> {
    kib_in("/proc/self/status", "VmHWM:")
}

/// The time of day.
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// The processor time of all threads of this process so far, where the system says so.
pub fn cpu_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};
        clock_gettime(ClockId::ProcessCPUTime).try_into().ok()
    }
    #[cfg(not(unix))]
    None
}

/// The seconds of it since then.
pub fn cpu_seconds_since(then: Duration) -> Option<f64> {
    Some(cpu_time()?.saturating_sub(then).as_secs_f64())
}

/// A line of `/proc/meminfo` in bytes.
fn meminfo(key: &str) -> Option<u64> {
    kib_in("/proc/meminfo", key)
}

/// What a line of such a file says, in bytes.
fn kib_in(path: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = kib.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn number_in(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The architecture and those of its instructions, within a level, on which the bits of a result can
/// depend.
pub fn instructions(level: InstructionSet) -> String {
    let mut words = vec![std::env::consts::ARCH];
    #[cfg(target_arch = "x86_64")]
    for (there, word) in [
        (std::is_x86_feature_detected!("avx2"), "avx2"),
        (std::is_x86_feature_detected!("fma"), "fma"),
        (std::is_x86_feature_detected!("avx512f"), "avx512f"),
        (std::is_x86_feature_detected!("avx512bw"), "avx512bw"),
        (std::is_x86_feature_detected!("avx512dq"), "avx512dq"),
        (std::is_x86_feature_detected!("avx512vl"), "avx512vl"),
        (level.uses_amx(), "amx"),
    ] {
        if there {
            words.push(word);
        }
    }
    words.join(" ")
}

/// FLOPs a second of one thread in products of (rows, width) by (width, 4 · width) matrices: the
/// best of the repetitions that fit into a tenth of a second, as others may be using the machine.
pub fn flops_per_second(rows: usize, width: usize, level: InstructionSet) -> Result<f64> {
    // Large enough to be a fair sample, small enough that several fit into the time.
    let (rows, width) = (rows.clamp(64, 1024), width.clamp(64, 768));
    let device = Host::new(1)
        .and_then(|host| host.with_instruction_set(level))
        .and_then(|host| host.device(DeviceId::Cpu))
        .map_err(Error::run)?;
    let a = Tensor::zeros(&device, [rows, width]).map_err(Error::run)?;
    let b = Tensor::zeros(&device, [width, 4 * width]).map_err(Error::run)?;
    let flops = (2 * rows * width * 4 * width) as f64;
    let begin = Instant::now();
    let mut best = 0.0_f64;
    while begin.elapsed() < CALIBRATION || best == 0.0 {
        let start = Instant::now();
        ops::matmul(Layout::Nn, &a, &b, None).map_err(Error::run)?;
        best = best.max(flops / start.elapsed().as_secs_f64().max(1e-9));
    }
    Ok(best)
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
        let speed = flops_per_second(1, 1, InstructionSet::Best).unwrap();
        assert!(speed.is_finite() && speed > 0.0);
    }
}
