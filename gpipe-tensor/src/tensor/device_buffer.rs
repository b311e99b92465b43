//! A buffer in the memory of a GPU.

use std::ops::Range;

use crate::cuda::Memory;
use crate::dtype::{DType, of_bf16};
use crate::error::{Error, Result};

/// Elements in the memory of a GPU.
pub(super) struct DeviceBuffer {
    /// `None` only while it moves to another handle.
    pub memory: Option<Memory>,
    pub elements: usize,
    pub dtype: DType,
    /// Values of indices, which operations check on the host before they launch.
    pub indices: Option<Vec<u32>>,
}

impl DeviceBuffer {
    pub(super) fn bytes(&self) -> usize {
        self.dtype.bytes() * self.elements
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn memory(&self) -> Result<&Memory> {
        self.memory.as_ref().ok_or_else(|| Error::Argument {
            op: "tensor",
            message: "its memory was lost when a copy failed".into(),
        })
    }

    /// The error for elements that are needed on the host.
    pub(super) fn elsewhere(&self, op: &'static str) -> Error {
        match &self.memory {
            Some(memory) => Error::Elsewhere {
                op,
                device: memory.gpu().id(),
            },
            None => Error::Shared { op },
        }
    }

    pub(super) fn indices(&self, elements: Range<usize>) -> Result<&[u32]> {
        match &self.indices {
            Some(indices) => Ok(&indices[elements]),
            None => Err(Error::DType {
                op: "indices",
                expected: DType::U32,
                got: self.dtype,
            }),
        }
    }

    /// Those of `bf16` elements.
    pub(super) fn to_bits(&self, elements: Range<usize>) -> Result<Vec<u16>> {
        let (from, n) = (self.dtype.bytes() * elements.start, elements.len());
        self.memory()?.read(from, n, u16::from_ne_bytes)
    }

    pub(super) fn to_floats(&self, elements: Range<usize>) -> Result<Vec<f32>> {
        let memory = self.memory()?;
        let (from, n) = (self.dtype.bytes() * elements.start, elements.len());
        match self.dtype {
            DType::F32 => memory.read(from, n, f32::from_ne_bytes),
            DType::BF16 => memory.read(from, n, |bits| of_bf16(u16::from_ne_bytes(bits))),
            got => Err(Error::DType {
                op: "floats",
                expected: DType::F32,
                got,
            }),
        }
    }
}
