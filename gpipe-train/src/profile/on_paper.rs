//! Times of layers on a known GPU, by the model of its kernels: every kind of layer makes its passes on a device on
//! paper, which notes their launches and does none.

use gpipe_tensor::{DeviceId, KnownGpu, Precision};

use super::bench::Bench;
use super::clock::Clock;
use super::kinds::Kinds;
use super::measurements::{Passes, Profile, Size};
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::known_gpus::ACTION;
use crate::precision;

/// The times of every kind for micro-batches of these sizes, in an empty profile.
///
/// # Errors
/// [`Error::Input`] if the layers cannot be used; [`Error::Run`] if a pass cannot be made on a GPU.
pub fn model(
    config: &TrainConfig,
    kinds: &Kinds,
    sizes: &[usize],
    gpu: &'static KnownGpu,
    mut profile: Profile,
) -> Result<Profile> {
    profile.threads = 1;
    profile.action_seconds = ACTION;
    for &samples in sizes {
        let host = precision::host(config, 1, Precision::Single).map_err(Error::input)?;
        let host = host.on_paper();
        let device = host.device(DeviceId::Known(gpu.name)).map_err(Error::run)?;
        let clock = Clock::Model {
            device: device.clone(),
            gpu,
            tf32: config.run.tf32,
        };
        let bench = Bench::new(config, kinds, samples, (device, clock), (0, 1))?;
        for (kind, seconds) in kinds.list.iter().zip(bench.modelled()?) {
            let times = vec![Passes::of(1, seconds)];
            profile.put(&kind.key, Size { samples, times });
        }
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gpipe_report::Basis;

    use super::*;
    use crate::config::{Overrides, Setting};
    use crate::profile::{ProfileOptions, Speed};
    use crate::setup::Setup;
    use crate::step_launches;

    fn config(devices: &str, stages: i64) -> TrainConfig {
        let settings = [
            Setting::new("model.name", "gpt-nano"),
            Setting::new("pipeline.devices", devices),
            Setting::new("pipeline.stages", stages),
            Setting::new("pipeline.micro_batches", 1),
            Setting::new("pipeline.remat", "keep"),
            Setting::new("run.dtype", "bf16"),
        ];
        Overrides::new().layer(settings).unwrap().resolve().unwrap()
    }

    /// Layers one by one take as long as the passes of the step that they make up: its launches from the first layer to the
    /// norm, with which the update begins.
    #[test]
    fn layers_take_the_time_of_the_launches_of_a_step() {
        let gpu = KnownGpu::of_name("h200").unwrap();
        let config = config("cuda:h200", 1);
        let setup = Setup::new(&config).unwrap();
        let options = ProfileOptions::new(Path::new("none"));
        let samples = setup.costs.samples(0);
        let speed = Speed::of(&config, options, &[samples], &mut |_| {}).unwrap();
        assert_eq!(speed.basis(), Basis::Model);
        let times = speed.times(&setup.costs, 1);
        let passes = |work: &gpipe_remat::Work| work.forward + work.input_grad + work.weight_grad;
        let of_layers: f64 = times.work.iter().map(passes).sum();

        let traces = step_launches(&config, true).unwrap();
        let launches = traces.iter().flat_map(|trace| &trace.launches);
        let of_passes = launches
            .skip_while(|launch| !launch.name.starts_with("embedding_"))
            .take_while(|launch| !launch.name.starts_with("sum_of_squares"));
        let of_step: f64 = of_passes.map(|launch| gpu.seconds(launch, false)).sum();
        let ratio = of_layers / of_step;
        assert!((ratio - 1.0).abs() < 0.03, "{of_layers} of {of_step}");
    }

    #[test]
    fn gpus_of_several_kinds_are_refused() {
        let config = config("cuda:h200,cuda:a100", 2);
        let options = ProfileOptions::new(Path::new("none"));
        let refused = Speed::of(&config, options, &[1], &mut |_| {});
        let said = refused.err().unwrap().to_string();
        assert!(said.contains("such as cuda:h200*4"), "{said}");
    }
}
