//! The error type of this crate.

use crate::known_gpu::{KNOWN_GPUS, KnownGpu};
use crate::{DType, DeviceId, Shape};

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on tensors failed; names the operation and the shapes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shapes do not fit the operation or each other.
    #[error("{op}: {expected}, got {got}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// What the operation needs, in words.
        expected: String,
        /// The shape of the operand.
        got: String,
    },
    /// The element type does not fit the operation.
    #[error("{op}: needs {expected} elements, got {got}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The type that it needs.
        expected: DType,
        /// The type of the operand.
        got: DType,
    },
    /// The number of elements or bytes of a shape overflows.
    #[error("{op}: a tensor of shape {shape} is too large for this machine")]
    Size {
        /// The operation.
        op: &'static str,
        /// The shape asked for.
        shape: Shape,
    },
    /// The system or device has no memory for a buffer.
    #[error(
        "out of memory: no {bytes} bytes for a tensor; use smaller micro-batches, a smaller model or more rematerialization"
    )]
    OutOfMemory {
        /// The bytes asked for.
        bytes: usize,
    },
    /// A buffer would exceed the limit that was set for its handle.
    #[error(
        "out of memory: {bytes} bytes for a tensor exceed the limit of {limit} bytes; raise it, or use smaller micro-batches, a smaller model or more rematerialization"
    )]
    Limit {
        /// The bytes asked for.
        bytes: usize,
        /// The limit of live bytes.
        limit: u64,
    },
    /// An in-place operation on a tensor whose buffer something else holds.
    #[error("{op}: cannot change a tensor in place that something else still holds")]
    Shared {
        /// The operation.
        op: &'static str,
    },
    /// An index is out of range.
    #[error("{op}: index {index} is outside of 0..{len}")]
    Index {
        /// The operation.
        op: &'static str,
        /// The offending index.
        index: u64,
        /// The number of valid indices.
        len: u64,
    },
    /// An argument other than a shape has an invalid value.
    #[error("{op}: {message}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What is wrong, and what is valid.
        message: String,
    },
    /// The text does not name a device.
    #[error("unknown device `{0}`: use {known}", known = devices_like(.0))]
    UnknownDevice(String),
    /// The text does not name a precision.
    #[error("unknown precision `{0}`: use `f32` or `bf16`")]
    UnknownPrecision(String),
    /// The text does not name an instruction set.
    #[error("unknown instruction set `{0}`: use `best`, `avx512` or `avx2`")]
    UnknownInstructionSet(String),
    /// The device cannot be used by this build on this machine.
    #[error("device {device} is not available: {reason}")]
    Unavailable {
        /// The device asked for.
        device: DeviceId,
        /// The reason, and what would help.
        reason: String,
    },
    /// A call of the driver, cuBLAS or NVRTC failed. Failures of asynchronous work are reported by a later
    /// call.
    #[cfg(feature = "cuda")]
    #[error("cuda: {call}: {message}")]
    Cuda {
        /// The function.
        call: &'static str,
        /// The error message.
        message: String,
    },
    /// The device has failed in a way that no later call of this process recovers from.
    #[cfg(feature = "cuda")]
    #[error(
        "GPU lost: {call}: {message}; this process cannot use it any more: go on from the last checkpoint"
    )]
    GpuLost {
        /// The function that reported it.
        call: &'static str,
        /// The error message.
        message: String,
    },
    /// The elements are needed on the host, but are on another device.
    #[error("{op}: the tensor is on {device}: copy it to the processor first")]
    Elsewhere {
        /// The operation.
        op: &'static str,
        /// The device of the tensor.
        device: DeviceId,
    },
    /// A stored tensor cannot be fetched from where it is.
    #[error("{0}")]
    Fetch(String),
    /// Invalid safetensors data, or a tensor that the file does not have.
    #[error("safetensors: {0}")]
    Format(String),
}

impl Error {
    /// A shape error: `op` needs what `expected` says and was given `got`.
    pub(crate) fn shape(
        op: &'static str,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Shape {
            op,
            expected: expected.into(),
            got: got.to_string(),
        }
    }
}

/// The devices that there may be, in words, for a text that names none.
fn devices_like(text: &str) -> String {
    let known = KnownGpu::of_name(text);
    let known =
        known.map(|gpu| format!("`cuda:{}` to plan for one, else ", gpu.name.to_lowercase()));
    let is_model = text
        .strip_prefix("cuda:")
        .is_some_and(|name| name.contains(char::is_alphanumeric));
    if known.is_none() && is_model {
        let named = KNOWN_GPUS
            .iter()
            .map(|gpu| format!("`cuda:{}`", gpu.name.to_lowercase()));
        let named: Vec<_> = named.collect();
        return format!("`cpu` or `cuda:N`, or {} to plan for one", named.join(", "));
    }
    format!("{}`cpu` or `cuda:N`", known.unwrap_or_default())
}
