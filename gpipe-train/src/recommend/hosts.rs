//! Hosts of as many workers each, and the replicas that they can hold.

use std::collections::BTreeSet;

use gpipe_remat::planner::{Link, Placement, Replication, Worker};
use gpipe_report::MeasuredLink;
use gpipe_report::numbers::counted;
use gpipe_sched::World;

use crate::error::{Error, Result};
use crate::links;

/// The most workers of all hosts.
const MOST: usize = 1024;

/// The ranks of a launcher: as many on each host, and the slowest links between them that were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranks {
    pub(super) hosts: usize,
    pub(super) per_host: usize,
    pub(super) link: Link,
    pub(super) host_link: Link,
}

impl Ranks {
    /// Of a world with these links between neighbours.
    ///
    /// # Errors
    /// [`Error::Invalid`] for hosts with different numbers of ranks, or whose ranks are not neighbours.
    pub fn of(world: &World, links: &[MeasuredLink]) -> Result<Self> {
        let hosts: Vec<String> = (0..world.ranks()).map(|rank| world.host(rank)).collect();
        Self::on(&hosts, links)
    }

    /// Of ranks on these hosts.
    fn on(hosts: &[String], links: &[MeasuredLink]) -> Result<Self> {
        let runs: Vec<_> = hosts.chunk_by(|one, other| one == other).collect();
        let per_host = runs[0].len();
        let distinct: BTreeSet<_> = hosts.iter().collect();
        if runs.iter().any(|run| run.len() != per_host) || distinct.len() != runs.len() {
            return Err(Error::invalid(
                "--auto over ranks needs as many on each host, one behind the other: start them so (mpirun --map-by \
                 slot), or list --workers for one host without a launcher",
            ));
        }
        let between = |is_inside: bool| {
            let inside = |link: &&MeasuredLink| (link.hosts[0] == link.hosts[1]) == is_inside;
            links::slowest(links.iter().filter(inside))
        };
        let link = between(true).unwrap_or(Link::FREE);
        Ok(Self {
            hosts: runs.len(),
            per_host,
            link,
            host_link: between(false).unwrap_or(link),
        })
    }
}

/// Hosts, each with the workers that are listed for one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hosts {
    pub count: usize,
    pub link: Link,
    pub workers_per_host: usize,
    /// Whether plans are run by a launcher: those for a list of costs are not.
    pub is_launched: bool,
}

impl Hosts {
    /// As many hosts, each with `workers` workers that are linked by `inside`, and the link between hosts where that is
    /// another; `None` if no number is given.
    pub fn of(
        count: Option<usize>,
        link: Option<Link>,
        (workers, inside): (usize, Link),
    ) -> Result<Option<Self>> {
        let Some(count) = count else {
            return match link {
                Some(_) => Err(Error::invalid(
                    "--host-link is between hosts: give their number too, such as --hosts 2",
                )),
                None => Ok(None),
            };
        };
        if count == 0 || count.saturating_mul(workers) > MOST {
            return Err(Error::invalid(format!(
                "--hosts {count}, of {} each: use --hosts 1 to {}, for at most {MOST} workers in all",
                counted(workers as u64, "worker"),
                MOST / workers.max(1)
            )));
        }
        Ok(Some(Self {
            count,
            link: link.unwrap_or(inside),
            workers_per_host: workers,
            is_launched: true,
        }))
    }

    /// The ways to lay `replicas` replicas on these workers of all hosts: of each, the workers of a replica.
    pub fn replications(
        &self,
        workers: &[Worker],
        replicas: usize,
    ) -> Vec<(Replication, Vec<Worker>)> {
        if replicas == 0 || !workers.len().is_multiple_of(replicas) {
            return Vec::new();
        }
        let each = workers.len() / replicas;
        let mut found = Vec::new();
        for placement in [Placement::Pipelines, Placement::Stages] {
            let of = |replica: usize, worker: usize| match placement {
                Placement::Pipelines => workers[replica * each + worker],
                Placement::Stages => workers[worker * replicas + replica],
            };
            let alike = (0..each).all(|worker| {
                let mut replicas = 1..replicas;
                replicas.all(|replica| of(replica, worker) == of(0, worker))
            });
            // With one replica, one worker or one host, the two are the same.
            let differs = replicas > 1 && each > 1 && self.count > 1;
            if alike && (placement == Placement::Pipelines || differs) {
                let replication = Replication {
                    replicas,
                    workers_per_host: self.workers_per_host,
                    placement,
                    host_link: self.link,
                };
                found.push((replication, (0..each).map(|worker| of(0, worker)).collect()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: usize, workers: usize) -> Result<Option<Hosts>> {
        Hosts::of(Some(count), None, (workers, Link::FREE))
    }

    #[test]
    fn replicas_have_the_same_workers() {
        let worker = |speed: f64| Worker {
            speed,
            memory: None,
        };
        let hosts = hosts(2, 4).unwrap().unwrap();
        let mixed = [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0].map(worker);
        let ways = |replicas: usize| {
            let ways = hosts.replications(&mixed, replicas).into_iter();
            ways.map(|(way, workers)| (way.placement, workers.len()))
                .collect::<Vec<_>>()
        };
        // Halves are alike as hosts, and as pairs of neighbours; quarters as neither pipelines.
        assert_eq!(ways(1), [(Placement::Pipelines, 8)]);
        assert_eq!(ways(2), [(Placement::Pipelines, 4), (Placement::Stages, 4)]);
        assert_eq!(ways(4), []);
        assert_eq!(ways(3), []);
    }

    /// Of the links between ranks, the slowest inside hosts and the slowest between them.
    #[test]
    fn ranks_are_hosts_with_the_links_that_were_measured() {
        let of = |names: &str| {
            let names: Vec<String> = names.chars().map(String::from).collect();
            let link = |(from, hosts): (usize, &[String])| MeasuredLink {
                from,
                to: from + 1,
                hosts: [hosts[0].clone(), hosts[1].clone()],
                latency_seconds: (from + 1) as f64,
                bytes_per_second: 100.0 - from as f64,
            };
            let links: Vec<_> = names.windows(2).enumerate().map(link).collect();
            Ranks::on(&names, &links)
        };
        let ranks = of("aabbcc").unwrap();
        assert_eq!((ranks.hosts, ranks.per_host), (3, 2));
        let link = |latency, bytes_per_second| Link {
            latency,
            bytes_per_second,
        };
        assert_eq!(ranks.link, link(5.0, 96.0));
        assert_eq!(ranks.host_link, link(4.0, 97.0));
        assert_eq!(of("aa").unwrap().host_link, link(1.0, 100.0));
        assert_eq!(of("ab").unwrap().link, Link::FREE);
        assert!(of("aab").is_err() && of("abab").is_err());
    }

    #[test]
    fn as_many_hosts_as_can_be_planned() {
        assert!(hosts(0, 8).is_err() && hosts(129, 8).is_err());
        assert_eq!(hosts(128, 8).unwrap().unwrap().count, 128);
    }
}
