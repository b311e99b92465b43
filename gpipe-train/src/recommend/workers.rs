//! Workers and links as they are written: `8*300T:80GiB` and `5e-6:25G`.

use gpipe_remat::planner::{Link, Worker};
use gpipe_remat::{Bytes, Rates};
use gpipe_tensor::{DeviceId, Precision};

use super::PlanningOptions;
use crate::config::{Devices, Named, TrainConfig};
use crate::error::{Error, Result};
use crate::known_gpus::{KnownGpu, rates};

/// Workers that one item of a list may stand for.
const MOST_ALIKE: usize = 1024;

/// The configuration for workers that are listed GPUs, not the configured processors: bf16 is stored there.
pub(super) fn on_gpus(config: &TrainConfig, gpu: &'static str) -> TrainConfig {
    let mut config = config.clone();
    if !config.pipeline.devices.has_gpu() {
        config.pipeline.devices = Named::of(Devices::bare(DeviceId::Known(gpu)));
    }
    config
}

impl PlanningOptions {
    /// Plans for these workers, `COUNT*FLOPS:MEMORY` each with commas between them, as `8*300T:80GiB,4*100T`. A known
    /// GPU (`8*h100`) stands for its FLOP/s at `precision`, its memory, its way to store bf16 and, for all workers, its bytes a second.
    /// `memory` is that of workers without one, in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another text.
    pub fn list_workers(
        &mut self,
        list: &str,
        precision: Precision,
        memory: Option<u64>,
    ) -> Result<()> {
        let mut workers = Vec::new();
        for item in list.split(',').map(str::trim) {
            let fault = || {
                Error::invalid(format!(
                    "--workers {list}: `{item}` is not a worker: write COUNT*FLOPS:MEMORY such as \
                     8*300T:80GiB, or a known GPU such as 8*h100"
                ))
            };
            let unread = |error| Error::invalid(format!("--workers {list}: {error}"));
            let (count, rest) = item.split_once('*').unwrap_or(("1", item));
            let (speed, own) = match rest.split_once(':') {
                Some((speed, own)) => (speed.trim(), Some(own.trim())),
                None => (rest.trim(), None),
            };
            let count = count.trim().parse::<usize>().map_err(|_| fault())?;
            if !(1..=MOST_ALIKE).contains(&count) {
                return Err(Error::invalid(format!(
                    "--workers {list}: {count} workers: use 1 to {MOST_ALIKE} for an item"
                )));
            }
            let gpu = KnownGpu::of_name(speed);
            self.gpu = self.gpu.or(gpu.map(|gpu| gpu.name));
            let speed = match gpu.map(|gpu| rates(gpu, precision)) {
                Some(rates) => {
                    let slower = |known: Rates| rates.flops_per_byte() > known.flops_per_byte();
                    if self.rates.is_none_or(slower) {
                        self.rates = Some(rates);
                    }
                    Some(rates.flops)
                }
                None => scaled(speed).filter(|speed| *speed > 0.0),
            };
            let worker = Worker {
                speed: speed.ok_or_else(fault)?,
                memory: match own {
                    Some(own) => Some(own.parse::<Bytes>().map_err(unread)?.0),
                    None => memory.or(gpu.map(|gpu| gpu.memory)),
                },
            };
            workers.extend(std::iter::repeat_n(worker, count));
        }
        self.workers = Some(workers);
        Ok(())
    }
}

/// Reads a link, its latency in seconds and its bytes a second, as the value of a flag: `5e-6:25G`.
///
/// # Errors
/// [`Error::Invalid`] for another text.
pub fn parse_link(flag: &str, text: &str) -> Result<Link> {
    let fault = || {
        Error::invalid(format!(
            "{flag} {text}: write SECONDS:BYTES_PER_SECOND such as 5e-6:25G"
        ))
    };
    let (latency, bandwidth) = text.split_once(':').ok_or_else(fault)?;
    let latency = scaled(latency.trim()).filter(|latency| *latency >= 0.0);
    let bandwidth = scaled(bandwidth.trim()).filter(|bandwidth| *bandwidth > 0.0);
    Ok(Link {
        latency: latency.ok_or_else(fault)?,
        bytes_per_second: bandwidth.ok_or_else(fault)?,
    })
}

/// A number with a decimal suffix: k, M, G, T or P; 0, or of a size with which times are numbers.
fn scaled(text: &str) -> Option<f64> {
    let letters = ["k", "M", "G", "T", "P"];
    let found = letters.iter().position(|letter| text.ends_with(letter));
    let (number, power) = match found {
        Some(place) => (&text[..text.len() - 1], place as i32 + 1),
        None => (text, 0),
    };
    let number: f64 = number.trim().parse().ok()?;
    let scaled = number * 1000_f64.powi(power);
    (scaled == 0.0 || (1e-100..1e100).contains(&scaled.abs())).then_some(scaled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(list: &str, memory: Option<u64>) -> Result<PlanningOptions> {
        let mut options = PlanningOptions::default();
        options.list_workers(list, Precision::Bf16, memory)?;
        Ok(options)
    }

    #[test]
    fn workers_are_listed_with_speed_and_memory() {
        let options = listed("2*300T:80GiB, 1.5e12", Some(7)).unwrap();
        let workers = options.workers.unwrap();
        assert_eq!((workers.len(), options.rates, options.gpu), (3, None, None));
        assert_eq!(
            (workers[0].speed, workers[0].memory),
            (3e14, Some(80 << 30))
        );
        assert_eq!((workers[2].speed, workers[2].memory), (1.5e12, Some(7)));
        for bad in [
            "", "0*1T", "2*", "2*x", "-1T", "nan", "1T:0", "1*1T:x", "1025*1", "8*h1000",
            "4*1e-300",
        ] {
            let message = listed(bad, None).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("--workers {bad}: ")),
                "{message}"
            );
        }
        let many = listed("1024*h100", None).unwrap().workers.unwrap();
        assert_eq!(many.len(), 1024);
        let message = listed("1025*h100", None).unwrap_err().to_string();
        assert_eq!(
            message,
            "--workers 1025*h100: 1025 workers: use 1 to 1024 for an item"
        );
    }

    #[test]
    fn known_gpus_bring_their_memory_and_bandwidth() {
        let options = listed("8*h200,a100:40GiB", None).unwrap();
        let workers = options.workers.unwrap();
        assert_eq!(options.gpu, Some("H200"));
        assert_eq!(workers[7].memory, Some(141_000_000_000));
        assert_eq!(workers[8].memory, Some(40 << 30));
        assert!((workers[0].speed / workers[8].speed - 989.4 / 312.0).abs() < 1e-9);
        // An H200 has fewer bytes a FLOP than an A100.
        let rates = options.rates.unwrap();
        assert!((rates.flops_per_byte() - 989.4 / 4.8).abs() < 1e-9);
    }

    #[test]
    fn links_have_a_latency_and_a_bandwidth() {
        let read = parse_link("--link", "5e-6:25G").unwrap();
        assert_eq!((read.latency, read.bytes_per_second), (5e-6, 25e9));
        for bad in ["", "1", "1:0", "-1:1", "nan:1", "1:x", "1:1e-300"] {
            assert!(parse_link("--link", bad).is_err(), "{bad}");
        }
    }
}
