//! Hosts of as many workers each, and the replicas that they can hold.

use gpipe_remat::planner::{Link, Placement, Replication, Worker};

use crate::error::{Error, Result};

/// The most workers of all hosts.
const MOST: usize = 1024;

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
                "--hosts {count}, of {workers} workers each: use --hosts 1 to {}, for at most {MOST} workers in all",
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

    #[test]
    fn as_many_hosts_as_can_be_planned() {
        assert!(hosts(0, 8).is_err() && hosts(129, 8).is_err());
        assert_eq!(hosts(128, 8).unwrap().unwrap().count, 128);
    }
}
