//! The links between neighbouring ranks, measured by messages like those between stages.

use std::time::Instant;

use gpipe_remat::planner::Link;
use gpipe_report::{MeasuredLink, numbers};
use gpipe_sched::{Label, Parcel, PipelineError, Reader, World, Writer};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::launch::check_alike;
use crate::text_table::table;

/// Bytes of a message, and how often it goes to and fro after the first times, which do not count.
const MESSAGES: [(usize, usize); 2] = [(1, 33), (1 << 20, 9)];
const WARM_UP: usize = 3;

/// Measures the link of every rank to the next one. Every rank calls it, with the same configuration.
///
/// # Errors
/// [`Error::Invalid`] if ranks were started differently; [`Error::Run`] if one fails.
pub fn measure(world: &World, config: &TrainConfig) -> Result<Vec<MeasuredLink>> {
    check_alike(world, config)?;
    measured(world).map_err(Error::run)
}

fn measured(world: &World) -> std::result::Result<Vec<MeasuredLink>, PipelineError> {
    let (rank, ranks) = (world.rank(), world.ranks());
    let mut own = Writer::default();
    // Pairs of even ranks and the next ones are measured at the same time, and then those of odd ones.
    for first in [0, 1] {
        world.share(Parcel::default(), None)?;
        let leads = rank % 2 == first;
        let other = match leads {
            true => Some(rank + 1).filter(|&next| next < ranks),
            false => rank.checked_sub(1),
        };
        if let Some(other) = other {
            let seconds = exchanged(world, other, leads)?;
            if leads {
                seconds.into_iter().for_each(|seconds| own.float(seconds));
            }
        }
    }
    let all = world.share(own.finish(), None)?;
    let link = |(from, parcel): (usize, Parcel)| {
        let mut parcel = Reader::new(parcel);
        // The last rank has none.
        let (small, large) = (parcel.float().ok()?, parcel.float().ok()?);
        let bytes = MESSAGES[1].0 - MESSAGES[0].0;
        Some(MeasuredLink {
            from,
            to: from + 1,
            hosts: [world.host(from), world.host(from + 1)],
            latency_seconds: small,
            bytes_per_second: bytes as f64 / (large - small).max(1e-9),
        })
    };
    Ok(all.into_iter().enumerate().filter_map(link).collect())
}

/// Sends messages of each size to another rank, which sends them back: the median seconds of one way.
fn exchanged(
    world: &World,
    other: usize,
    leads: bool,
) -> std::result::Result<[f64; 2], PipelineError> {
    let call = world.call();
    let mut medians = [0.0; 2];
    for (place, (bytes, times)) in MESSAGES.into_iter().enumerate() {
        // Copied for each message, as tensors are.
        let message = Parcel {
            head: Vec::new(),
            bodies: vec![vec![1; bytes]],
        };
        let mut seconds = Vec::with_capacity(times);
        for part in 0..WARM_UP + times {
            let label = Label { call, place, part };
            let start = Instant::now();
            if leads {
                world.post(other, label, message.clone())?;
            }
            world.take_posted(other, label)?;
            if !leads {
                world.post(other, label, message.clone())?;
            }
            seconds.push(start.elapsed().as_secs_f64() / 2.0);
        }
        medians[place] = numbers::median(&mut seconds[WARM_UP..]);
    }
    Ok(medians)
}

/// A table of the links.
pub fn table_of(links: &[MeasuredLink]) -> String {
    let row = |link: &MeasuredLink| {
        vec![
            format!("{} to {}", link.from, link.to),
            link.hosts[0].clone(),
            link.hosts[1].clone(),
            format!("{:.1} µs", 1e6 * link.latency_seconds),
            format!("{}/s", numbers::bytes(link.bytes_per_second as u64)),
        ]
    };
    let heading = ["ranks", "from host", "to host", "latency", "bytes"];
    let rows: Vec<_> = links.iter().map(row).collect();
    table(&heading, &heading[..3], &rows)
}

/// The slowest of some links; none of none.
pub(crate) fn slowest<'a>(links: impl Iterator<Item = &'a MeasuredLink>) -> Option<Link> {
    let link = |link: &MeasuredLink| Link {
        latency: link.latency_seconds,
        bytes_per_second: link.bytes_per_second,
    };
    links.map(link).reduce(|one, other| Link {
        latency: one.latency.max(other.latency),
        bytes_per_second: one.bytes_per_second.min(other.bytes_per_second),
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use gpipe_sched::InMemory;

    use super::*;

    #[test]
    fn every_rank_knows_the_links_of_all() {
        for ranks in [1, 2, 5] {
            let run = |transport| thread::spawn(move || measured(&World::new(transport)).unwrap());
            let running: Vec<_> = InMemory::new(ranks).into_iter().map(run).collect();
            let found: Vec<_> = running.into_iter().map(|run| run.join().unwrap()).collect();
            assert!(found.iter().all(|links| *links == found[0]));
            let ends: Vec<_> = found[0].iter().map(|link| (link.from, link.to)).collect();
            assert_eq!(ends, (1..ranks).map(|to| (to - 1, to)).collect::<Vec<_>>());
            for link in &found[0] {
                assert!(link.latency_seconds > 0.0 && link.bytes_per_second.is_finite());
            }
        }
    }
}
