//! The key `run.nccl`: what carries flows between GPUs of different ranks.

use std::fmt;
use std::str::FromStr;

/// When NCCL carries flows between GPUs of different ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NcclUse {
    /// Where all ranks have the same one; else flows go through host memory.
    #[default]
    Auto,
    /// Always: a run without it is refused.
    On,
    /// Never.
    Off,
}

const NAMES: [(&str, NcclUse); 3] = [
    ("auto", NcclUse::Auto),
    ("on", NcclUse::On),
    ("off", NcclUse::Off),
];

impl fmt::Display for NcclUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, which)| which == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for NcclUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, which)| *which)
            .ok_or_else(|| format!("`{text}` says nothing of NCCL: use auto, on or off"))
    }
}
