//! Parsing of `--workers` and `--link`.

use gpipe_remat::Bytes;
use gpipe_remat::planner::{Link, Worker};
use gpipe_train::recommend::PlanningOptions;

use crate::args::AutoArgs;
use crate::fail::{Fail, Result};

/// Parses workers such as `8*300T:80GiB,4*100T`: count, FLOP/s, and memory, by default `memory`.
fn parse(list: &str, memory: Option<u64>) -> Result<Vec<Worker>> {
    let mut workers = Vec::new();
    for item in list.split(',').map(str::trim) {
        let fault = || {
            Fail::invalid(format!(
                "--workers {list}: `{item}` is not a worker: write COUNT*FLOPS:MEMORY such as 8*300T:80GiB"
            ))
        };
        let (count, rest) = item.split_once('*').unwrap_or(("1", item));
        let (speed, own) = match rest.split_once(':') {
            Some((speed, own)) => (speed, Some(own)),
            None => (rest, None),
        };
        let count = count
            .trim()
            .parse::<usize>()
            .ok()
            .filter(|count| (1..=1000).contains(count));
        let worker = Worker {
            speed: scaled(speed.trim())
                .filter(|speed| *speed > 0.0)
                .ok_or_else(fault)?,
            memory: match own {
                Some(own) => Some(own.trim().parse::<Bytes>().map_err(Fail::usage)?.0),
                None => memory,
            },
        };
        workers.extend(std::iter::repeat_n(worker, count.ok_or_else(fault)?));
    }
    Ok(workers)
}

/// Parses a number with a decimal suffix: k, M, G, T or P.
fn scaled(text: &str) -> Option<f64> {
    let letters = ["k", "M", "G", "T", "P"];
    let found = letters.iter().position(|letter| text.ends_with(letter));
    let (number, power) = match found {
        Some(place) => (&text[..text.len() - 1], place as i32 + 1),
        None => (text, 0),
    };
    let number: f64 = number.trim().parse().ok()?;
    let scaled = number * 1000_f64.powi(power);
    scaled.is_finite().then_some(scaled)
}

impl AutoArgs {
    /// The planning options; `memory` is the default limit of a worker in bytes.
    pub fn options(&self, memory: Option<u64>) -> Result<PlanningOptions> {
        let workers = self.workers.as_deref().map(|list| parse(list, memory));
        let mut options = PlanningOptions::default();
        options.workers = workers.transpose()?;
        options.link = self.link()?;
        Ok(options)
    }

    /// Whether any flag is given.
    pub fn is_given(&self) -> bool {
        self.workers.is_some() || self.link.is_some()
    }

    /// Parses a link such as `5e-6:25G`: latency in seconds and bytes per second.
    fn link(&self) -> Result<Option<Link>> {
        let Some(text) = &self.link else {
            return Ok(None);
        };
        let fault = || {
            Fail::invalid(format!(
                "--link {text}: write SECONDS:BYTES_PER_SECOND such as 5e-6:25G"
            ))
        };
        let (latency, bandwidth) = text.split_once(':').ok_or_else(fault)?;
        let latency = scaled(latency.trim()).filter(|latency| *latency >= 0.0);
        let bandwidth = scaled(bandwidth.trim()).filter(|bandwidth| *bandwidth > 0.0);
        Ok(Some(Link {
            latency: latency.ok_or_else(fault)?,
            bytes_per_second: bandwidth.ok_or_else(fault)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_listed_with_speed_and_memory() {
        let workers = parse("2*300T:80GiB, 1.5e12", Some(7)).unwrap();
        assert_eq!(workers.len(), 3);
        assert_eq!(
            (workers[0].speed, workers[0].memory),
            (3e14, Some(80 << 30))
        );
        assert_eq!((workers[2].speed, workers[2].memory), (1.5e12, Some(7)));
        for bad in [
            "", "0*1T", "2*", "2*x", "-1T", "nan", "1T:0", "1*1T:x", "2000*1",
        ] {
            assert!(parse(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn links_have_a_latency_and_a_bandwidth() {
        let link = |text: &str| {
            let link = Some(text.to_owned());
            AutoArgs {
                link,
                workers: None,
            }
            .link()
        };
        let read = link("5e-6:25G").unwrap().unwrap();
        assert_eq!((read.latency, read.bytes_per_second), (5e-6, 25e9));
        assert_eq!(AutoArgs::default().link().unwrap(), None);
        for bad in ["", "1", "1:0", "-1:1", "nan:1", "1:x"] {
            assert!(link(bad).is_err(), "{bad}");
        }
    }
}
