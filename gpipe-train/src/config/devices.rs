//! The key `pipeline.devices`: a list of workers.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use gpipe_tensor::DeviceId;

/// A list of workers by device: `cpu*4`, `cuda:0,1,2,3`, `cpu,cuda:0*2`, or a bare `cpu` for every
/// stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<(DeviceId, Option<u32>)>);

impl Devices {
    /// The same device for every stage.
    pub fn bare(id: DeviceId) -> Self {
        Self(vec![(id, None)])
    }

    /// A number of workers on one device.
    pub fn several(id: DeviceId, count: u32) -> Self {
        Self(vec![(id, Some(count))])
    }

    /// One worker on each of these devices.
    pub fn of_ids(ids: impl IntoIterator<Item = DeviceId>) -> Self {
        let mut runs: Vec<(DeviceId, Option<u32>)> = Vec::new();
        for id in ids {
            match runs.last_mut() {
                Some((last, Some(count))) if *last == id => *count += 1,
                _ => runs.push((id, Some(1))),
            }
        }
        Self(runs)
    }

    /// The device that is repeated for every stage, if the list is a bare name.
    pub fn repeated(&self) -> Option<DeviceId> {
        match self.0[..] {
            [(id, None)] => Some(id),
            _ => None,
        }
    }

    /// The device of each item of the list, duplicates included.
    pub fn listed(&self) -> impl Iterator<Item = DeviceId> {
        self.0.iter().map(|&(id, _)| id)
    }

    /// The device of the first worker.
    pub fn first(&self) -> DeviceId {
        self.0.first().map_or(DeviceId::Cpu, |&(id, _)| id)
    }

    /// Whether any worker is on a GPU.
    pub fn has_gpu(&self) -> bool {
        self.0.iter().any(|&(id, _)| id != DeviceId::Cpu)
    }

    /// The number of listed workers; a bare name counts as one.
    pub fn workers(&self) -> u64 {
        self.0
            .iter()
            .map(|(_, count)| u64::from(count.unwrap_or(1)))
            .sum()
    }

    /// The devices of the first `count` workers; a bare name is repeated.
    pub fn of_workers(&self, count: usize) -> Vec<DeviceId> {
        if let Some(id) = self.repeated() {
            return vec![id; count];
        }
        let runs = self
            .0
            .iter()
            .flat_map(|&(id, count)| std::iter::repeat_n(id, count.unwrap_or(1) as usize));
        runs.take(count).collect()
    }

    /// The shortest equivalent list: a bare name if all workers have the same device. GPUs that are planned for by their
    /// names are as many as are listed.
    pub fn shortest(self) -> Self {
        match self.0[..] {
            [(DeviceId::Known(_), _), ..] => self,
            [(first, _), ..] if self.0.iter().all(|&(id, _)| id == first) => Self::bare(first),
            _ => self,
        }
    }

    /// How many GPUs these workers have: devices of this machine, or those that are planned for, of which each in a list is
    /// one of its own. `None` if some have none.
    pub fn gpus(&self, workers: usize) -> Option<usize> {
        let ids = self.of_workers(workers);
        let is_own = |id: &DeviceId| matches!(id, DeviceId::Known(_)) && self.repeated().is_none();
        let (own, shared): (Vec<_>, Vec<_>) = ids.iter().copied().partition(is_own);
        let gpus = own.len() + shared.into_iter().collect::<HashSet<_>>().len();
        (!ids.contains(&DeviceId::Cpu)).then_some(gpus)
    }
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut last = None;
        let item = |item: &str| {
            let (name, count) = match item.trim().split_once('*') {
                None => (item.trim(), None),
                Some((name, count)) => {
                    let count = count.trim().parse().ok().filter(|&count: &u32| count > 0);
                    let error = || format!("`{item}`: write a whole number from 1 up after *");
                    (name.trim(), Some(count.ok_or_else(error)?))
                }
            };
            if item.contains('+') {
                return Err(format!("`{}`: write numbers without a sign", item.trim()));
            }
            // `cuda:0,1,2` lists three CUDA devices.
            let id = match (last, name.parse()) {
                (Some(DeviceId::Cuda(_)), Ok(ordinal)) => DeviceId::Cuda(ordinal),
                _ => name
                    .parse::<DeviceId>()
                    .map_err(|error| error.to_string())?,
            };
            last = Some(id);
            Ok((id, count))
        };
        text.split(',')
            .map(item)
            .collect::<Result<_, String>>()
            .map(Self)
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (id, count)) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            write!(f, "{id}")?;
            if let Some(count) = count {
                write!(f, "*{count}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_neighbours_are_counted() {
        let devices: Devices = "cpu*2,cuda:0,cuda:1*2,cpu".parse().unwrap();
        let ids = devices.of_workers(6);
        assert_eq!(
            Devices::of_ids(ids).to_string(),
            "cpu*2,cuda:0*1,cuda:1*2,cpu*1"
        );
    }

    #[test]
    fn workers_are_listed_repeated_or_bare() {
        let devices = |text: &str| text.parse::<Devices>().unwrap();
        assert_eq!(devices("cpu*4").workers(), 4);
        assert_eq!(devices("cpu").of_workers(3), [DeviceId::Cpu; 3]);
        assert_eq!(
            devices("cpu, cuda:1*2").of_workers(3),
            [DeviceId::Cpu, DeviceId::Cuda(1), DeviceId::Cuda(1)]
        );
        assert_eq!(
            devices("cuda:0,1*2, 3,cpu"),
            devices("cuda:0,cuda:1*2,cuda:3,cpu")
        );
        assert_eq!(devices("cpu*3").shortest().to_string(), "cpu");
        assert_eq!(
            devices("cpu,cuda:1*2").shortest().to_string(),
            "cpu,cuda:1*2"
        );
        for bad in [
            "",
            "gpu",
            "cpu*",
            "cpu*0",
            "cpu*-1",
            "cpu,,cpu",
            "cpu*99999999999",
            "0",
            "cpu,1",
            "cuda:0,-1",
            "cuda:+1",
            "cuda:0,+1",
            "cpu*+2",
        ] {
            assert!(bad.parse::<Devices>().is_err(), "{bad}");
        }
    }
}
