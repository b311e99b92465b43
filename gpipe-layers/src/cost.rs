//! Costs of a layer: plain numbers, known before any tensor exists.

use std::sync::Arc;

use gpipe_tensor::{DType, Shape};
use smallvec::SmallVec;

use crate::Memory;
use crate::wiring::Wiring;

/// The shape and element type of one tensor of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The extents, the batch outermost.
    pub shape: Shape,
    /// The element type.
    pub dtype: DType,
}

impl Flow {
    /// A flow of floats.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        Self {
            shape: shape.into(),
            dtype: DType::F32,
        }
    }

    /// The same shape with elements of another type.
    #[must_use]
    pub fn of(self, dtype: DType) -> Self {
        Self { dtype, ..self }
    }

    /// A flow of indices.
    pub fn u32(shape: impl Into<Shape>) -> Self {
        Self {
            shape: shape.into(),
            dtype: DType::U32,
        }
    }

    /// Number of elements; saturates at `u64::MAX`.
    pub fn elements(&self) -> u64 {
        self.shape
            .elements()
            .map_or(u64::MAX, |elements| elements as u64)
    }

    /// Bytes of the tensor, with what lies between its rows; saturates at `u64::MAX`.
    pub fn bytes(&self) -> u64 {
        self.shape.stored_elements().map_or(u64::MAX, |elements| {
            (elements as u64).saturating_mul(self.dtype.bytes() as u64)
        })
    }
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}

/// The costs of one micro-batch in a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// The output flow.
    pub outputs: Vec<Flow>,
    /// FLOPs of the forward pass; a multiply-add counts 2.
    pub forward: u64,
    /// FLOPs of [`recompute`](crate::Layer::recompute), at most `forward`; `None` where it is the forward pass.
    pub recompute: Option<u64>,
    /// FLOPs of the input gradient.
    pub input_grad: u64,
    /// FLOPs of the input gradient that [`param_only_grad`](crate::Layer::param_only_grad) computes too, because
    /// parameters inside the layer depend on them; at most `input_grad`.
    pub param_only_grad: u64,
    /// FLOPs of the weight gradient.
    pub weight_grad: u64,
    /// Number of parameters; a tied one counts at each of its places.
    pub params: u64,
    /// Bytes of activations and their lifetimes.
    pub memory: Memory,
    /// Bytes that forward and backward pass read and write: a lower bound for memory-bound layers.
    pub traffic: u64,
    /// Bytes in whose time a processor gathers rows for the products of convolutions, besides `traffic`. Estimates for
    /// processors count them; cost models, and GPUs, whose libraries may gather none, do not.
    pub gathered: u64,
    /// The layers inside, whose calls a [`Ledger`](crate::Ledger) then replays in place of `memory`.
    pub inside: Option<Arc<Inside>>,
    /// Why a pass of training refuses these inputs, in the words of an error, where one of an evaluation takes them.
    pub training_fault: Option<String>,
}

/// The costs of the layers inside a layer, and what each takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    pub(crate) wiring: Wiring,
    /// One a layer.
    pub(crate) costs: Vec<Cost>,
    /// The last layer that [`recompute`](crate::Layer::recompute) calls, where the layers up to it are one after the
    /// other: its outputs, and those behind it, are not made. `None` where it is the forward pass.
    pub(crate) last_recomputed: Option<usize>,
    pub(crate) inputs: Vec<Flow>,
}

impl Inside {
    /// The tensors of a source: 0 for the inputs, i + 1 for layer i.
    pub(crate) fn flow(&self, source: usize) -> &[Flow] {
        match source.checked_sub(1) {
            None => &self.inputs,
            Some(layer) => &self.costs[layer].outputs,
        }
    }

    /// For each source, which of its tensors are floats.
    pub(crate) fn floats(&self) -> Vec<SmallVec<[bool; 2]>> {
        let floats = |source: usize| {
            let flow = self.flow(source).iter();
            flow.map(|flow| flow.dtype.is_float()).collect()
        };
        (0..=self.costs.len()).map(floats).collect()
    }
}

impl Cost {
    /// The cost of a layer with this output flow, zero in everything else.
    pub fn new(outputs: Vec<Flow>) -> Self {
        Self {
            outputs,
            ..Self::default()
        }
    }

    /// The same with these FLOPs: forward, input gradient, weight gradient.
    #[must_use]
    pub fn with_flops(self, forward: u64, input_grad: u64, weight_grad: u64) -> Self {
        Self {
            forward,
            input_grad,
            weight_grad,
            ..self
        }
    }

    /// The same with these FLOPs of [`recompute`](crate::Layer::recompute).
    #[must_use]
    pub fn with_recompute(self, flops: u64) -> Self {
        Self {
            recompute: Some(flops),
            ..self
        }
    }

    /// FLOPs of [`recompute`](crate::Layer::recompute).
    pub fn recomputed(&self) -> u64 {
        self.recompute.unwrap_or(self.forward)
    }

    /// The same with this number of parameters.
    #[must_use]
    pub fn with_params(self, params: u64) -> Self {
        Self { params, ..self }
    }

    /// The same with these bytes of activations.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// The same with these bytes that are read and written.
    #[must_use]
    pub fn with_traffic(self, traffic: u64) -> Self {
        Self { traffic, ..self }
    }

    /// The same of inputs that a pass of training refuses with this error.
    #[must_use]
    pub fn with_training_fault(self, fault: Option<String>) -> Self {
        Self {
            training_fault: fault,
            ..self
        }
    }

    /// FLOPs of the forward pass and both gradients.
    pub fn flops(&self) -> u64 {
        [self.input_grad, self.weight_grad]
            .into_iter()
            .fold(self.forward, u64::saturating_add)
    }
}
