//! How the ranks of a run lie on hosts and cores.

use gpipe_report::FoundRank;
use gpipe_sched::{Reader, World, Writer};

use crate::error::{Error, Result};
use crate::machine;
use crate::text_table::table;

/// All ranks, each of which lists its own devices. Every rank calls it.
///
/// # Errors
/// [`Error::Run`] if a rank fails.
pub fn ranks_of(world: &World, devices: &[String]) -> Result<Vec<FoundRank>> {
    let mut own = Writer::default();
    own.number(std::process::id() as usize);
    own.text(&machine::allowed_processors().unwrap_or_default());
    own.number(machine::processor().threads);
    own.number(machine::host_threads());
    own.number(devices.len());
    devices.iter().for_each(|device| own.text(device));
    let all = world.share(own.finish(), None).map_err(Error::run)?;
    let read = |(rank, parcel)| {
        let mut parcel = Reader::new(parcel);
        Ok(FoundRank {
            rank,
            host: world.host(rank),
            process: parcel.number()? as u32,
            cores: Some(parcel.text()?).filter(|cores| !cores.is_empty()),
            threads: parcel.number()?,
            host_threads: parcel.number()?,
            devices: (0..parcel.number()?)
                .map(|_| parcel.text())
                .collect::<std::result::Result<_, _>>()?,
        })
    };
    let read = all.into_iter().enumerate().map(read);
    let read: std::result::Result<_, String> = read.collect();
    read.map_err(|fault| Error::run(std::io::Error::other(fault)))
}

/// The number of ranks that may run on the same processors as this one.
pub fn sharing(ranks: &[FoundRank], rank: usize) -> usize {
    let own = &ranks[rank];
    let shares = |other: &&FoundRank| other.host == own.host && other.cores == own.cores;
    ranks.iter().filter(shares).count()
}

/// A table of the ranks.
pub fn table_of(ranks: &[FoundRank]) -> String {
    let row = |rank: &FoundRank| {
        vec![
            rank.rank.to_string(),
            rank.host.clone(),
            rank.process.to_string(),
            format!("{} of {}", rank.threads, rank.host_threads),
            rank.cores.clone().unwrap_or_default(),
            rank.devices.join(","),
        ]
    };
    let rows: Vec<Vec<String>> = ranks.iter().map(row).collect();
    table(
        &["rank", "host", "process", "cores", "numbers", "devices"],
        &["host", "numbers", "devices"],
        &rows,
    )
}

/// Says which rank may run on fewer cores than it needs threads: `threads` if they are given, or else its share of
/// those of its host.
pub fn pinned(ranks: &[FoundRank], threads: Option<usize>) -> Option<String> {
    let needs = |rank: &FoundRank| {
        let here = ranks.iter().filter(|other| other.host == rank.host).count();
        // More than the host has is no launcher's doing.
        let share = (rank.host_threads / here.max(1)).max(1);
        threads.map_or(share, |threads| threads.min(rank.host_threads))
    };
    let rank = ranks.iter().find(|rank| rank.threads < needs(rank))?;
    let (what, own) = match threads {
        Some(threads) => (format!("for {threads} threads"), String::new()),
        None => (
            format!("of {}", rank.host_threads),
            format!(", where its share is {}", needs(rank)),
        ),
    };
    Some(format!(
        "the launcher keeps rank {} ({}) on {} core{} {what}{own}: use --bind-to none of mpirun, -bind-to none of \
         mpiexec, or --cpus-per-task of srun",
        rank.rank,
        rank.host,
        rank.threads,
        if rank.threads == 1 { "" } else { "s" },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: usize, host: &str, cores: &str, threads: usize) -> FoundRank {
        FoundRank {
            rank,
            host: host.to_owned(),
            cores: Some(cores.to_owned()),
            threads,
            host_threads: 16,
            ..FoundRank::default()
        }
    }

    #[test]
    fn ranks_on_few_cores_are_named() {
        let free = [rank(0, "a", "0-15", 16), rank(1, "a", "0-15", 16)];
        assert_eq!((sharing(&free, 0), pinned(&free, None)), (2, None));
        assert!(pinned(&free, Some(16)).is_none());
        assert_eq!(pinned(&free, Some(64)), None);
        let halves = [rank(0, "a", "0-7", 8), rank(1, "a", "8-15", 8)];
        assert_eq!((sharing(&halves, 1), pinned(&halves, None)), (1, None));
        let few = pinned(&halves, Some(9)).unwrap();
        assert!(few.contains("rank 0 (a) on 8 cores for 9 threads"), "{few}");
        let one = [rank(0, "a", "0-15", 16), rank(1, "b", "3", 1)];
        let one = pinned(&one, None).unwrap();
        assert!(
            one.contains("rank 1 (b) on 1 core of 16, where its share is 16"),
            "{one}"
        );
    }
}
