//! What this machine can do: its memory and the speed of its matrix products.

use std::fs;
use std::time::{Duration, Instant};

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DeviceId, Host, Tensor};

use crate::fail::{Fail, Result};

/// How long the speed is measured.
const CALIBRATION: Duration = Duration::from_millis(100);

/// The bytes that a process can have here at most, where Linux says so: of the machine, and of the
/// control group that a container runs in.
pub fn memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(|text| {
        let kib = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        kib.trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)
    });
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// FLOPs a second of one thread in products of (rows, width) by (width, 4 · width) matrices: the
/// best of the repetitions that fit into a tenth of a second, as others may be using the machine.
pub fn flops_per_second(rows: usize, width: usize) -> Result<f64> {
    // Large enough to be a fair sample, small enough that several fit into the time.
    let (rows, width) = (rows.clamp(64, 1024), width.clamp(64, 768));
    let device = Host::new(1)
        .and_then(|host| host.device(DeviceId::Cpu))
        .map_err(Fail::run)?;
    let a = Tensor::zeros(&device, [rows, width]).map_err(Fail::run)?;
    let b = Tensor::zeros(&device, [width, 4 * width]).map_err(Fail::run)?;
    let flops = (2 * rows * width * 4 * width) as f64;
    let begin = Instant::now();
    let mut best = 0.0_f64;
    while begin.elapsed() < CALIBRATION || best == 0.0 {
        let start = Instant::now();
        ops::matmul(Layout::Nn, &a, &b, None).map_err(Fail::run)?;
        best = best.max(flops / start.elapsed().as_secs_f64().max(1e-9));
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_a_positive_number() {
        let speed = flops_per_second(1, 1).unwrap();
        assert!(speed.is_finite() && speed > 0.0);
    }
}
