//! The meaning of `run.dtype = bf16`: mixed precision on GPUs, matrix products with rounded factors on
//! CPUs.

use gpipe_layers::{Init, Kind, Optimizer, Param};
use gpipe_tensor::{DType, DeviceId, Host, Precision};

use crate::config::TrainConfig;
use crate::error::{Error, Result};

/// The type of parameters and activations: bf16 on GPUs only.
///
/// # Errors
/// [`Error::Invalid`] for bf16 on both CPUs and GPUs.
pub fn stored(config: &TrainConfig) -> Result<DType> {
    let mut devices = config.pipeline.devices.listed();
    match *config.run.dtype {
        Precision::Single => Ok(DType::F32),
        Precision::Bf16 if on_gpus(config) => Ok(DType::BF16),
        Precision::Bf16 if devices.all(|id| id == DeviceId::Cpu) => Ok(DType::F32),
        Precision::Bf16 => Err(Error::invalid(
            "run.dtype: bf16 differs between processors and GPUs: use `pipeline.devices` of one kind, or \
             `run.dtype = f32`",
        )),
    }
}

/// Whether all stages run on GPUs.
pub fn on_gpus(config: &TrainConfig) -> bool {
    let mut devices = config.pipeline.devices.listed();
    devices.all(|id| id != DeviceId::Cpu)
}

/// The precision of matrix products on the CPU. Forward-only runs fall back to single precision on CPUs
/// without bf16.
pub fn products(config: &TrainConfig, trains: bool) -> Precision {
    let precision = *config.run.dtype;
    match on_gpus(config) || !(trains || precision.is_available_with(*config.run.instruction_set)) {
        true => Precision::Single,
        false => precision,
    }
}

/// What a run in single precision on GPUs could gain. The figures are those of gpipe-tensor/GPU.md.
pub fn advice(config: &TrainConfig) -> Option<&'static str> {
    let is_exact = *config.run.dtype == Precision::Single && !config.run.tf32;
    (on_gpus(config) && is_exact).then_some(
        "single precision on GPUs: GPT-2 on an H200 trains 12 times as fast with --dtype bf16, and 1.8 times with --tf32",
    )
}

/// A host with this number of threads, this precision and the configured instruction set.
pub fn host(
    config: &TrainConfig,
    threads: usize,
    products: Precision,
) -> gpipe_tensor::Result<Host> {
    let level = *config.run.instruction_set;
    Host::with(threads, products)?.with_instruction_set(level)
}

/// Bytes per parameter element in training: value, gradient, and optimizer state with the master copy.
pub fn bytes_per_parameter(stored: DType, optimizer: &Optimizer) -> [u64; 3] {
    let mut one = Param::new("", [1], Kind::Matrix, Init::Zeros);
    one.dtype = stored;
    let [value, gradient] = [stored, DType::F32].map(|dtype| dtype.bytes() as u64);
    [value, gradient, optimizer.state_bytes(&one)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Setting};

    fn of(devices: &str, dtype: &str) -> TrainConfig {
        let settings = [
            Setting::new("pipeline.devices", devices),
            Setting::new("run.dtype", dtype),
        ];
        let overrides = Overrides::new().layer(settings).unwrap();
        overrides.resolve().unwrap()
    }

    #[test]
    fn bf16_is_stored_on_gpus_and_multiplied_on_processors() {
        for (devices, dtype, wanted) in [
            ("cuda:0,cuda:1", "f32", DType::F32),
            ("cpu,cuda:1", "f32", DType::F32),
            ("cpu", "bf16", DType::F32),
            ("cuda:0", "bf16", DType::BF16),
            ("cuda:0*2,cuda:1*2", "bf16", DType::BF16),
        ] {
            let got = stored(&of(devices, dtype)).unwrap();
            assert_eq!(got, wanted, "{devices} {dtype}");
        }
        assert!(stored(&of("cpu,cuda:0", "bf16")).is_err());
        assert_eq!(products(&of("cuda:0", "bf16"), true), Precision::Single);
        assert_eq!(products(&of("cpu", "bf16"), true), Precision::Bf16);
        assert!(products(&of("cpu", "bf16"), false).is_available());
    }

    #[test]
    fn single_precision_on_gpus_is_told_of_the_others() {
        for (devices, dtype, told) in [
            ("cuda:0*2", "f32", true),
            ("cuda:0", "bf16", false),
            ("cpu", "f32", false),
            ("cpu,cuda:0", "f32", false),
        ] {
            assert_eq!(advice(&of(devices, dtype)).is_some(), told, "{devices}");
        }
    }

    #[test]
    fn a_parameter_takes_16_bytes_or_18() {
        let optimizer = crate::setup::optimizer(&of("cpu", "f32"));
        let bytes = |dtype| bytes_per_parameter(dtype, &optimizer);
        assert_eq!(bytes(DType::F32), [4, 4, 8]);
        assert_eq!(bytes(DType::BF16), [2, 4, 12]);
    }
}
