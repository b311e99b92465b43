//! Values in text form, such as a policy or a memory limit. Each type refuses invalid text when it is
//! deserialized, so a [`TrainConfig`](super::TrainConfig) holds valid values only.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use gpipe_layers::Gelu;
use gpipe_remat::Bytes;
use serde::{Deserialize, Serialize};

/// A parsed value that keeps the text it was given as, such as a policy or a list of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[serde(bound(serialize = "T: Clone", deserialize = "T: FromStr<Err: fmt::Display>"))]
pub struct Named<T> {
    name: String,
    value: T,
}

impl<T: fmt::Display> Named<T> {
    /// A value whose text is its [`Display`](fmt::Display) form.
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

/// A limit on the memory of a worker: bytes such as `2GiB`, or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(Option<Bytes>);

impl Memory {
    /// No limit.
    pub const UNLIMITED: Self = Self(None);

    /// The limit in bytes; `None` without one.
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

/// The form of GELU: `tanh` or `erf`.
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
