//! Replicas of a pipeline on hosts: which transfers leave a host, and what the sums of gradients cost.

use std::collections::{BTreeMap, BTreeSet};

use super::link::Link;

/// Where the workers of replicas lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The workers of a replica one behind the other: short ways for activations.
    #[default]
    Pipelines,
    /// The workers of a stage one behind the other, of all replicas: short ways for sums of gradients.
    Stages,
}

/// Replicas of a pipeline, each with its share of the micro-batches, on hosts of as many workers each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replication {
    /// Number of replicas; a plan is that of the first, which has the largest share of the batch.
    pub replicas: usize,
    /// Workers of each host.
    pub workers_per_host: usize,
    /// Which of them are neighbours.
    pub placement: Placement,
    /// The link from a host to the others: whatever leaves it at a time shares its bandwidth.
    pub host_link: Link,
}

impl Default for Replication {
    /// One pipeline on one host.
    fn default() -> Self {
        Self {
            replicas: 1,
            workers_per_host: usize::MAX,
            placement: Placement::Pipelines,
            host_link: Link::FREE,
        }
    }
}

impl Replication {
    /// The host of a worker of a replica, of which each has `workers`.
    fn host(&self, replica: usize, worker: usize, workers: usize) -> usize {
        let place = match self.placement {
            Placement::Pipelines => replica * workers + worker,
            Placement::Stages => worker * self.replicas + replica,
        };
        place / self.workers_per_host.max(1)
    }
}

/// The gradients of a stage that are summed over the replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradients {
    pub device: usize,
    pub bytes: f64,
    /// The action in which they become complete, layer by layer: its start and end, in seconds.
    pub complete: [f64; 2],
    pub layers: usize,
}

/// The links between the devices of a plan, and the hosts that these are on.
pub(super) struct Layout {
    replication: Replication,
    link: Link,
    workers: usize,
    /// The most transfers between neighbours that leave a host at a time.
    sharing: usize,
    /// Devices of a host, with the number of replicas there; hosts that are alike once.
    hosts: BTreeSet<Vec<(usize, usize)>>,
}

impl Layout {
    /// Of a plan whose devices are `used` of each replica's `workers`.
    pub fn new(replication: Replication, link: Link, workers: usize, used: &[usize]) -> Self {
        let (mut leaving, mut of_host) = (BTreeMap::new(), BTreeMap::new());
        if replication.replicas.saturating_mul(workers) > replication.workers_per_host
            || replication.replicas > 1
        {
            for replica in 0..replication.replicas {
                let host = |device: usize| replication.host(replica, used[device], workers);
                for device in 0..used.len() {
                    let devices: &mut BTreeMap<usize, usize> =
                        of_host.entry(host(device)).or_default();
                    *devices.entry(device).or_default() += 1;
                    if device > 0 && host(device - 1) != host(device) {
                        *leaving.entry(host(device - 1)).or_default() += 1;
                    }
                }
            }
        }
        let alike = of_host.into_values();
        Self {
            replication,
            link,
            workers,
            sharing: leaving.into_values().max().unwrap_or(1_usize),
            hosts: alike.map(|devices| devices.into_iter().collect()).collect(),
        }
    }

    /// The link between two workers of a replica: that of hosts if it is so in any replica.
    pub fn between(&self, from: usize, to: usize) -> Link {
        let host = |replica, worker| self.replication.host(replica, worker, self.workers);
        let mut replicas = 0..self.replication.replicas;
        match replicas.any(|replica| host(replica, from) != host(replica, to)) {
            false => self.link,
            true => Link {
                latency: self.replication.host_link.latency,
                bytes_per_second: self.replication.host_link.bytes_per_second / self.sharing as f64,
            },
        }
    }

    /// The sums of the gradients of all stages over the replicas. Every replica receives the other values of its
    /// share of the elements, while the backward pass still runs, and sends the sums back afterwards: `[end, back]`,
    /// the time at which the first half has arrived, and the seconds of the second.
    pub fn sums(&self, gradients: &[Gradients]) -> [f64; 2] {
        let replicas = self.replication.replicas;
        if replicas == 1 {
            return [0.0; 2];
        }
        let share = |bytes: f64, others: usize, link: Link| {
            bytes * others as f64 / replicas as f64 / link.bytes_per_second
        };
        let (mut end, mut back) = (0.0_f64, 0.0_f64);
        for host in &self.hosts {
            let here: BTreeMap<usize, usize> = host.iter().copied().collect();
            let on_host = |of: &&Gradients| here.contains_key(&of.device);
            let mut stages: Vec<&Gradients> = gradients.iter().filter(on_host).collect();
            stages.sort_by(|a, b| a.complete[0].total_cmp(&b.complete[0]));
            // The link of the host sends whatever is there; the one inside is each device's own.
            let (mut free, mut outside) = (0.0_f64, 0.0_f64);
            let mut own = BTreeMap::<usize, [f64; 2]>::new();
            for stage in stages {
                let ([begin, complete], here) = (stage.complete, here[&stage.device]);
                let inside = share(stage.bytes, here - 1, self.link);
                let out = share(stage.bytes, replicas - here, self.replication.host_link);
                let out = out * here as f64;
                let [own_free, own_all] = own.entry(stage.device).or_default();
                (free, *own_free) = (free.max(begin) + out, own_free.max(begin) + inside);
                (outside, *own_all) = (outside + out, *own_all + inside);
                let last = complete + inside.max(out) / stage.layers.max(1) as f64;
                end = end.max(free).max(*own_free).max(last);
            }
            let longest = own.values().map(|[_, all]| *all).fold(outside, f64::max);
            back = back.max(longest);
        }
        let leaves = |host: &Vec<(usize, usize)>| host.iter().any(|&(_, here)| here < replicas);
        let latency = match self.hosts.iter().any(leaves) {
            true => self.replication.host_link.latency,
            false => self.link.latency,
        };
        [end + latency, back + latency]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: Link = Link {
        latency: 0.0,
        bytes_per_second: 100.0,
    };

    fn replication(replicas: usize, placement: Placement) -> Replication {
        Replication {
            replicas,
            workers_per_host: 4,
            placement,
            host_link: Link {
                latency: 0.5,
                bytes_per_second: 10.0,
            },
        }
    }

    fn layout(replicas: usize, workers: usize, placement: Placement) -> Layout {
        let used: Vec<usize> = (0..workers).collect();
        Layout::new(replication(replicas, placement), INSIDE, workers, &used)
    }

    /// Four hosts of four workers in four pipelines: each on a host of its own, or all of them over all hosts.
    #[test]
    fn pipelines_or_sums_leave_their_hosts() {
        let gradients = [0, 1, 2, 3].map(|device| Gradients {
            device,
            bytes: 80.0,
            complete: [1.0, 3.0],
            layers: 2,
        });
        let pipelines = layout(4, 4, Placement::Pipelines);
        assert_eq!(pipelines.between(1, 2), INSIDE);
        // Of four devices three quarters each through one link: 4 x 60 bytes, at 10 bytes/s from 1 s on.
        assert_eq!(pipelines.sums(&gradients), [25.5, 24.5]);
        let stages = layout(4, 4, Placement::Stages);
        assert_eq!(stages.between(1, 2).bytes_per_second, 10.0 / 4.0);
        // 60 bytes at 100 bytes/s, hidden but for one layer of two.
        let [end, back] = stages.sums(&gradients);
        assert!((end - 3.3).abs() < 1e-12 && (back - 0.6).abs() < 1e-12);
    }

    /// Two pipelines over two hosts each: one boundary of three crosses, and each host has two devices to sum.
    #[test]
    fn a_pipeline_may_span_hosts_that_its_replicas_do_not_share() {
        let layout = layout(2, 8, Placement::Pipelines);
        let crossing = (1..8).filter(|&to| layout.between(to - 1, to) != INSIDE);
        assert_eq!(crossing.collect::<Vec<_>>(), [4]);
        assert_eq!(layout.between(3, 4).bytes_per_second, 10.0);
        assert_eq!(layout.hosts.len(), 2);
    }

    #[test]
    fn one_replica_sums_nothing() {
        let layout = layout(1, 8, Placement::Pipelines);
        let gradients = Gradients {
            device: 0,
            bytes: 1.0,
            complete: [0.0; 2],
            layers: 1,
        };
        assert_eq!(layout.sums(&[gradients]), [0.0; 2]);
        assert_eq!(layout.between(3, 4).latency, 0.5);
    }
}
