//! The values that a key can have. Each type refuses what makes no sense when it is read, so a
//! [`Config`](super::Config) that exists holds none.

use std::fmt;
use std::ops::{Deref, RangeInclusive};
use std::str::FromStr;

use gpipe_layers::Gelu;
use gpipe_remat::Bytes;
use gpipe_tensor::DeviceId;
use serde::{Deserialize, Serialize};

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Whole<const LEAST: i64, const MOST: i64>(i64);

/// A number of things of which there is at least one. The limit keeps products of two in a `u64`.
pub type Size = Whole<1, { u32::MAX as i64 }>;
/// Transformer blocks: a model is a list of layers, which has to be made before it can be refused.
pub type Blocks = Whole<1, 10_000>;
/// Threads: more than any machine has, fewer than any system refuses to start.
pub type Threads = Whole<1, 1024>;
/// A number of things of which there may be none.
pub type Count = Whole<0, { u32::MAX as i64 }>;
/// The seed of a run: what a TOML file can hold.
pub type Seed = Whole<0, { i64::MAX }>;

impl<const LEAST: i64, const MOST: i64> TryFrom<i64> for Whole<LEAST, MOST> {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match number {
            n if (LEAST..=MOST).contains(&n) => Ok(Self(n)),
            n => Err(format!(
                "{n} is out of range: use a whole number from {LEAST} to {MOST}"
            )),
        }
    }
}

impl<const LEAST: i64, const MOST: i64> From<Whole<LEAST, MOST>> for i64 {
    fn from(whole: Whole<LEAST, MOST>) -> Self {
        whole.0
    }
}

impl<const LEAST: i64, const MOST: i64> Whole<LEAST, MOST> {
    /// As a count of things in memory.
    pub fn get(self) -> usize {
        // Both limits are at least 0, and `usize` is 64 bits wherever a model is worth training.
        self.0 as usize
    }

    /// Whether a step is one of every so many; 0 is never.
    pub fn divides(self, step: u64) -> bool {
        self.0 > 0 && step.is_multiple_of(self.u64())
    }

    /// As a number of steps or a seed.
    pub fn u64(self) -> u64 {
        self.0 as u64
    }
}

/// A finite number from 0 up: a rate, a decay, a norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Amount(f64);

/// A number from 0 to below 1: a probability, a share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(f64);

impl TryFrom<f64> for Amount {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        match number {
            n if n.is_finite() && n >= 0.0 => Ok(Self(n)),
            n => Err(format!(
                "{n} is out of range: use a finite number from 0 up"
            )),
        }
    }
}

impl TryFrom<f64> for Fraction {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        match number {
            n if (0.0..1.0).contains(&n) => Ok(Self(n)),
            n => Err(format!(
                "{n} is out of range: use a number from 0 to below 1"
            )),
        }
    }
}

impl From<Amount> for f64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> Self {
        fraction.0
    }
}

impl Amount {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Fraction {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A value by the name that it was given, such as a policy or a list of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[serde(bound(serialize = "T: Clone", deserialize = "T: FromStr<Err: fmt::Display>"))]
pub struct Named<T> {
    name: String,
    value: T,
}

impl<T: FromStr<Err: fmt::Display>> TryFrom<String> for Named<T> {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.parse() {
            Ok(value) => Ok(Self { name, value }),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl<T> From<Named<T>> for String {
    fn from(named: Named<T>) -> Self {
        named.name
    }
}

impl<T> Deref for Named<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> fmt::Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Steps of a run that are kept: `3` is the last three, `10,20..25` these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceSteps {
    /// So many last ones.
    Last(usize),
    /// Those in one of the ranges.
    Given(Vec<RangeInclusive<u64>>),
}

impl TraceSteps {
    /// Whether a step may be one of them: of the last ones, until later ones come.
    pub fn may_keep(&self, step: u64) -> bool {
        match self {
            Self::Last(count) => *count > 0,
            Self::Given(ranges) => ranges.iter().any(|range| range.contains(&step)),
        }
    }

    /// How many are kept at most.
    pub fn most(&self) -> usize {
        match self {
            Self::Last(count) => *count,
            Self::Given(_) => usize::MAX,
        }
    }
}

impl FromStr for TraceSteps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{text}` are no steps: use a number of last steps such as 3, or a list such as 10,20..25"
            )
        };
        let step = |text: &str| text.trim().parse::<u32>().map_err(|_| fault());
        if let Ok(count) = step(text) {
            return Ok(Self::Last(count as usize));
        }
        let range = |item: &str| {
            let (first, last) = item.split_once("..").unwrap_or((item, item));
            let (first, last) = (step(first)?, step(last)?);
            if first == 0 || first > last {
                return Err(fault());
            }
            Ok(u64::from(first)..=u64::from(last))
        };
        let items = text.split(',').filter(|item| !item.trim().is_empty());
        let ranges = items.map(range).collect::<Result<Vec<_>, _>>()?;
        if ranges.is_empty() {
            return Err(fault());
        }
        Ok(Self::Given(ranges))
    }
}

/// The most bytes that a worker may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(Option<Bytes>);

impl Memory {
    /// The limit, if there is one.
    pub fn bytes(self) -> Option<u64> {
        self.0.map(|Bytes(bytes)| bytes)
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self(None)),
            text => match text.parse() {
                Ok(bytes) => Ok(Self(Some(bytes))),
                Err(error) => Err(format!("{error}, or `unlimited`")),
            },
        }
    }
}

/// The form of GELU, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeluForm(pub Gelu);

impl FromStr for GeluForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tanh" => Ok(Self(Gelu::Tanh)),
            "erf" => Ok(Self(Gelu::Erf)),
            _ => Err(format!("unknown form of GELU `{text}`: use tanh or erf")),
        }
    }
}

/// How layers are cut into stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The least bottleneck.
    Balance,
    /// Lingvo's rule.
    Histogram,
    /// So many layers each.
    Sizes(Vec<usize>),
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "balance" => return Ok(Self::Balance),
            "histogram" => return Ok(Self::Histogram),
            _ => {}
        }
        let sizes: Result<Vec<usize>, _> =
            text.split(',').map(|size| size.trim().parse()).collect();
        sizes.map(Self::Sizes).map_err(|_| {
            format!("`{text}` is no partition: use balance, histogram or sizes such as 3,3,4,2")
        })
    }
}

/// Workers, as a user lists them: `cpu*4`, `cuda:0,1,2,3`, `cpu,cuda:0*2`, or a bare `cpu` for every
/// stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<(DeviceId, Option<u32>)>);

impl Devices {
    /// The same device for every stage.
    pub fn bare(id: DeviceId) -> Self {
        Self(vec![(id, None)])
    }

    /// The device that is repeated for every stage, if the list is a bare name.
    pub fn repeated(&self) -> Option<DeviceId> {
        match self.0[..] {
            [(id, None)] => Some(id),
            _ => None,
        }
    }

    /// The devices that are listed, each as often as it stands there.
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

    /// How many workers are listed.
    pub fn workers(&self) -> u64 {
        self.0
            .iter()
            .map(|(_, count)| u64::from(count.unwrap_or(1)))
            .sum()
    }

    /// The device of each of `count` workers, which are as many as listed unless a bare name is
    /// repeated.
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

    /// The list as short as it can be: a bare name where all workers are alike.
    pub fn shortest(self) -> Self {
        match self.0[..] {
            [(first, _), ..] if self.0.iter().all(|&(id, _)| id == first) => Self::bare(first),
            _ => self,
        }
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
                    let fault = || {
                        format!(
                            "`{item}` repeats no worker: write a whole number from 1 up after *"
                        )
                    };
                    (name.trim(), Some(count.ok_or_else(fault)?))
                }
            };
            // `cuda:0,1,2` lists three of a kind.
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
        ] {
            assert!(bad.parse::<Devices>().is_err(), "{bad}");
        }
    }

    #[test]
    fn steps_are_the_last_ones_or_a_list() {
        let kept = |text: &str| {
            let steps = text.parse::<TraceSteps>().unwrap();
            (1..=30)
                .filter(|&step| steps.may_keep(step))
                .collect::<Vec<u64>>()
        };
        assert_eq!("3".parse(), Ok(TraceSteps::Last(3)));
        assert!(kept("0").is_empty());
        assert_eq!(kept("7,"), [7]);
        assert_eq!(kept("10, 20..22"), [10, 20, 21, 22]);
        for bad in ["", ",", "-1", "0,3", "5..3", "1...3", "x", "99999999999"] {
            assert!(bad.parse::<TraceSteps>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_partition_is_a_rule_or_sizes() {
        assert_eq!("3, 3,4,2".parse(), Ok(Cut::Sizes(vec![3, 3, 4, 2])));
        assert_eq!("histogram".parse(), Ok(Cut::Histogram));
        for bad in ["", "3,,4", "-1,2", "even", "99999999999999999999"] {
            assert!(bad.parse::<Cut>().is_err(), "{bad}");
        }
    }
}
