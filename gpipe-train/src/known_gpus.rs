//! GPUs by name: what their vendor promises, and the rates that plans count on. These are predictions: no step
//! was measured on any of them.

use gpipe_remat::Rates;
use gpipe_tensor::{DeviceId, Precision};

/// The share of a peak that a plan counts on: about what large products reach of the first, and copies of the second.
const REACHED: f64 = 0.8;

/// Seconds of an action besides its layers: about fifty launches that the device waits for, 5 µs each.
const ACTION: f64 = 250e-6;

/// A GPU as its vendor describes it, without structured sparsity.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct KnownGpu {
    /// The name that plans know it by, a word of the driver's name for it.
    pub name: &'static str,
    /// FLOP/s of products of bf16 with sums in f32.
    pub bf16: f64,
    /// FLOP/s of products in f32, without TF32.
    pub f32: f64,
    /// Bytes a second of its memory.
    pub bandwidth: f64,
    /// Bytes of its memory.
    pub memory: u64,
}

/// Peaks by NVIDIA: the data sheets of H200 SXM (2024), H100 SXM (2023) and A100 80 GB SXM (2021), and for the
/// GeForce RTX 4090 the paper on its architecture, Ada (2022, appendix A).
pub const KNOWN_GPUS: [KnownGpu; 4] = [
    known("H200", [989.4e12, 66.9e12, 4.8e12], 141),
    known("H100", [989.4e12, 66.9e12, 3.35e12], 80),
    known("A100", [312e12, 19.5e12, 2.039e12], 80),
    known("4090", [165.2e12, 82.6e12, 1.008e12], 24),
];

const fn known(name: &'static str, [bf16, f32, bandwidth]: [f64; 3], gigabytes: u64) -> KnownGpu {
    KnownGpu {
        name,
        bf16,
        f32,
        bandwidth,
        memory: gigabytes * 1_000_000_000,
    }
}

impl KnownGpu {
    /// The GPU that a name means: its own in any case, or a longer one of the driver's.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        let name = name.to_uppercase();
        KNOWN_GPUS
            .iter()
            .find(|gpu| name.split([' ', '-']).any(|word| word == gpu.name))
    }

    /// The rates that a plan counts on.
    pub fn rates(&self, precision: Precision) -> Rates {
        let peak = match precision {
            Precision::Bf16 => self.bf16,
            Precision::Single => self.f32,
        };
        Rates {
            flops: REACHED * peak,
            bytes: REACHED * self.bandwidth,
            action: ACTION,
        }
    }

    /// The GPU that all these devices of this machine are, if it is a known one.
    pub(crate) fn of_devices(ids: &[DeviceId]) -> Option<&'static Self> {
        if ids.is_empty() || ids.contains(&DeviceId::Cpu) {
            return None;
        }
        let found = gpipe_tensor::find_cuda().ok()?;
        let named = |id: &DeviceId| found.devices.iter().find(|device| device.id == *id);
        let mut gpus = ids.iter().map(|id| Self::of_name(&named(id)?.name));
        let first = gpus.next()??;
        gpus.all(|gpu| gpu == Some(first)).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers_and_of_people_mean_the_same_gpu() {
        for (name, bandwidth) in [
            ("NVIDIA H100 80GB HBM3", Some(3.35e12)),
            ("NVIDIA A100-SXM4-80GB", Some(2.039e12)),
            ("NVIDIA GeForce RTX 4090", Some(1.008e12)),
            ("h200", Some(4.8e12)),
            ("Emulated GPU 0", None),
            ("14090", None),
        ] {
            let found = KnownGpu::of_name(name).map(|gpu| gpu.bandwidth);
            assert_eq!(found, bandwidth, "{name}");
        }
        assert_eq!(KnownGpu::of_devices(&[DeviceId::Cpu]), None);
    }
}
