//! What can go wrong in this crate.

use crate::{DType, DeviceId, Shape};

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on tensors failed: always with the operation and the shapes.
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
        /// What it was given.
        got: String,
    },
    /// The element type does not fit the operation.
    #[error("{op}: needs {expected} elements, got {got}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The type that it needs.
        expected: DType,
        /// The type that it was given.
        got: DType,
    },
    /// The number of elements or bytes of a shape does not fit the machine.
    #[error("{op}: a tensor of shape {shape} is too large for this machine")]
    Size {
        /// The operation.
        op: &'static str,
        /// The shape asked for.
        shape: Shape,
    },
    /// The system has no memory left for a buffer.
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
        /// What may be alive at once.
        limit: u64,
    },
    /// A tensor that others still see was to be changed in place.
    #[error("{op}: cannot change a tensor in place that something else still holds")]
    Shared {
        /// The operation.
        op: &'static str,
    },
    /// An index points outside of what it indexes.
    #[error("{op}: index {index} is outside of 0..{len}")]
    Index {
        /// The operation.
        op: &'static str,
        /// The offending index.
        index: u64,
        /// The number of valid ones.
        len: u64,
    },
    /// An argument other than a shape has a value that makes no sense.
    #[error("{op}: {message}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The text does not name a device.
    #[error("unknown device `{0}`: use `cpu` or `cuda:N`")]
    UnknownDevice(String),
    /// The text does not name a precision.
    #[error("unknown precision `{0}`: use `f32` or `bf16`")]
    UnknownPrecision(String),
    /// The text does not name an instruction set.
    #[error("unknown instruction set `{0}`: use `best` or `avx512`")]
    UnknownInstructionSet(String),
    /// The device cannot be used by this build on this machine.
    #[error("device {device} is not available: {reason}")]
    Unavailable {
        /// The device asked for.
        device: DeviceId,
        /// Why, and what would help.
        reason: String,
    },
    /// A call of the driver, cuBLAS or NVRTC failed. What a device does later than it was asked shows
    /// in a later call.
    #[cfg(feature = "cuda")]
    #[error("cuda: {call}: {message}")]
    Cuda {
        /// The function.
        call: &'static str,
        /// What it answered.
        message: String,
    },
    /// The elements are needed on the host, but lie elsewhere.
    #[error("{op}: the tensor is on {device}: copy it to the processor first")]
    Elsewhere {
        /// The operation.
        op: &'static str,
        /// Where they lie.
        device: DeviceId,
    },
    /// Bytes that are no valid safetensors file, or name what is not there.
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
