//! Values that have names, such as a rule or a limit. Each type refuses what makes no sense when it is
//! read, so a [`TrainConfig`](super::TrainConfig) that exists holds none.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use gpipe_layers::Gelu;
use gpipe_remat::Bytes;
use serde::{Deserialize, Serialize};

/// A value by the name that it was given, such as a policy or a list of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[serde(bound(serialize = "T: Clone", deserialize = "T: FromStr<Err: fmt::Display>"))]
pub struct Named<T> {
    name: String,
    value: T,
}

impl<T: fmt::Display> Named<T> {
    /// A value by its own name.
    pub fn of(value: T) -> Self {
        Self {
            name: value.to_string(),
            value,
        }
    }
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

/// The most bytes that a worker may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(Option<Bytes>);

impl Memory {
    /// No limit.
    pub const UNLIMITED: Self = Self(None);

    /// The limit, if there is one.
    pub fn bytes(self) -> Option<u64> {
        self.0.map(|Bytes(bytes)| bytes)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("unlimited"),
            Some(bytes) => bytes.fmt(f),
        }
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

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balance => f.write_str("balance"),
            Self::Histogram => f.write_str("histogram"),
            Self::Sizes(sizes) => {
                let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
                f.write_str(&sizes.join(","))
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_a_rule_or_sizes() {
        assert_eq!("3, 3,4,2".parse(), Ok(Cut::Sizes(vec![3, 3, 4, 2])));
        assert_eq!("histogram".parse(), Ok(Cut::Histogram));
        for bad in ["", "3,,4", "-1,2", "even", "99999999999999999999"] {
            assert!(bad.parse::<Cut>().is_err(), "{bad}");
        }
    }
}
