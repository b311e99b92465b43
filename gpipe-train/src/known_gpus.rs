//! GPUs by name, and the rates that plans count on where nothing more is known of the kernels. These are predictions: no
//! step was measured on any of them.

use gpipe_remat::Rates;
use gpipe_tensor::{DeviceId, Precision};

pub use gpipe_tensor::{KNOWN_GPUS, KnownGpu};

/// The share of a peak that a plan counts on: about what large products reach of the first, and copies of the second.
const REACHED: f64 = 0.8;

/// Seconds of an action besides its layers: about fifty launches that the device waits for, 5 µs each.
pub(crate) const ACTION: f64 = 250e-6;

/// The rates that a plan counts on.
pub fn rates(gpu: &KnownGpu, precision: Precision) -> Rates {
    let peak = match precision {
        Precision::Bf16 => gpu.bf16,
        Precision::Single => gpu.f32,
    };
    Rates {
        flops: REACHED * peak,
        bytes: REACHED * gpu.bandwidth,
        action: ACTION,
    }
}

/// The GPU that all these devices are, if it is a known one: by the name that they are listed with, or by that of this
/// machine's.
pub(crate) fn of_devices(ids: &[DeviceId]) -> Option<&'static KnownGpu> {
    let found = ids
        .iter()
        .any(|id| matches!(id, DeviceId::Cuda(_)))
        .then(|| gpipe_tensor::find_cuda().ok())
        .flatten();
    let gpu = |id: &DeviceId| match id {
        DeviceId::Known(name) => KnownGpu::of_name(name),
        id => {
            let mut devices = found.iter().flat_map(|found| &found.devices);
            KnownGpu::of_name(&devices.find(|device| device.id == *id)?.name)
        }
    };
    let mut gpus = ids.iter().map(gpu);
    let first = gpus.next()??;
    gpus.all(|gpu| gpu == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_one_name_are_that_gpu() {
        let known = |names: &[&'static str]| {
            let ids: Vec<DeviceId> = names.iter().map(|name| DeviceId::Known(name)).collect();
            of_devices(&ids).map(|gpu| gpu.name)
        };
        assert_eq!(known(&["H200", "H200"]), Some("H200"));
        assert_eq!(known(&["H200", "A100"]), None);
        assert_eq!(of_devices(&[DeviceId::Cpu]), None);
        assert_eq!(of_devices(&[]), None);
        assert_eq!(of_devices(&[DeviceId::Known("H200"), DeviceId::Cpu]), None);
    }
}
