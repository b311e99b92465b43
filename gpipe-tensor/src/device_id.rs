//! Names of devices.

use std::fmt;

/// The name of a device: `cpu`, `cuda:N`, or `cuda:NAME` of a GPU that plans know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceId {
    /// The host's processor.
    Cpu,
    /// The CUDA device of this ordinal.
    Cuda(u32),
    /// A GPU that need not be here, by its name in [`KNOWN_GPUS`](crate::KNOWN_GPUS): plans are made for it, and hosts
    /// on paper have it.
    Known(&'static str),
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::Known(name) => write!(f, "cuda:{}", name.to_lowercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (text, id) in [
            ("cpu", DeviceId::Cpu),
            ("cuda:0", DeviceId::Cuda(0)),
            ("cuda:12", DeviceId::Cuda(12)),
            ("cuda:h200", DeviceId::Known("H200")),
            ("cuda:4090", DeviceId::Known("4090")),
        ] {
            assert_eq!(text.parse::<DeviceId>().unwrap(), id);
            assert_eq!(id.to_string(), text);
        }
        for text in ["", "gpu", "cpu:0", "cuda", "cuda:", "CPU"] {
            let error = text.parse::<DeviceId>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("unknown device `{text}`: use `cpu` or `cuda:N`")
            );
        }
        for text in ["cuda:-1", "cuda:x", "cuda:b200"] {
            let error = text.parse::<DeviceId>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "unknown device `{text}`: use `cpu` or `cuda:N`, or `cuda:h200`, `cuda:h100`, `cuda:a100`, `cuda:4090` \
                     to plan for one"
                )
            );
        }
        let known = "h100".parse::<DeviceId>().unwrap_err();
        assert_eq!(
            known.to_string(),
            "unknown device `h100`: use `cuda:h100` to plan for one, else `cpu` or `cuda:N`"
        );
    }
}
