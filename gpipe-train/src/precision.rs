//! What `run.dtype = bf16` means on the devices of a run: on GPUs mixed precision, on processors products of
//! factors that are rounded.

use gpipe_layers::{Init, Kind, Optimizer, Param};
use gpipe_tensor::{DType, DeviceId, Host, Precision};

use crate::config::TrainConfig;
use crate::error::{Error, Result};

/// The type of values and activations: bf16 on GPUs alone.
///
/// # Errors
/// If bf16 was asked for where devices would differ in what they make of it.
pub fn stored(config: &TrainConfig) -> Result<DType> {
    let mut devices = config.pipeline.devices.listed();
    match *config.run.dtype {
        Precision::Single => Ok(DType::F32),
        Precision::Bf16 if on_gpus(config) => Ok(DType::BF16),
        Precision::Bf16 if devices.all(|id| id == DeviceId::Cpu) => Ok(DType::F32),
        Precision::Bf16 => Err(Error::invalid(
            "run.dtype: bf16 is not the same on processors and GPUs: use `pipeline.devices` of one kind, or \
             `run.dtype = f32`",
        )),
    }
}

/// Whether no stage runs on the processor.
fn on_gpus(config: &TrainConfig) -> bool {
    let mut devices = config.pipeline.devices.listed();
    devices.all(|id| id != DeviceId::Cpu)
}

/// What products on the processor multiply. Runs that are forward only fall back to single precision
/// where the processor has nothing else.
pub fn products(config: &TrainConfig, trains: bool) -> Precision {
    let precision = *config.run.dtype;
    match on_gpus(config) || !(trains || precision.is_available_with(*config.run.instruction_set)) {
        true => Precision::Single,
        false => precision,
    }
}

/// The processor's threads, and products of a precision within the configured instructions.
pub fn host(
    config: &TrainConfig,
    threads: usize,
    products: Precision,
) -> gpipe_tensor::Result<Host> {
    let level = *config.run.instruction_set;
    Host::with(threads, products)?.with_instruction_set(level)
}

/// The bytes that training holds for a parameter of this type: of its value, its gradient and what the
/// optimizer remembers, its master included.
pub fn bytes_a_parameter(stored: DType, optimizer: &Optimizer) -> [u64; 3] {
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
    fn a_parameter_takes_16_bytes_or_18() {
        let optimizer = crate::setup::optimizer(&of("cpu", "f32"));
        let bytes = |dtype| bytes_a_parameter(dtype, &optimizer);
        assert_eq!(bytes(DType::F32), [4, 4, 8]);
        assert_eq!(bytes(DType::BF16), [2, 4, 12]);
    }
}
