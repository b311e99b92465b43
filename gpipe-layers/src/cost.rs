//! What a layer costs: plain numbers, known before any tensor exists.

use gpipe_tensor::{DType, Shape};

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

    /// Number of elements; `u64::MAX` where that is not enough.
    pub fn elements(&self) -> u64 {
        self.shape
            .elements()
            .map_or(u64::MAX, |elements| elements as u64)
    }

    /// Bytes of the tensor; `u64::MAX` where that is not enough.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.bytes() as u64)
    }
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}

/// What one pass of one micro-batch through a layer costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The flow that it hands on.
    pub outputs: Vec<Flow>,
    /// FLOPs of the forward pass, 2 a multiply-add.
    pub forward: u64,
    /// FLOPs of the input gradient.
    pub input_grad: u64,
    /// FLOPs of the weight gradient.
    pub weight_grad: u64,
    /// Number of parameters, a tied one counted at each of its places.
    pub params: u64,
    /// Bytes of activations, and how long they live.
    pub memory: Memory,
    /// Bytes that forward and backward read and write, a lower bound for memory-bound layers.
    pub traffic: u64,
}

impl Cost {
    /// FLOPs of the forward pass and both gradients.
    pub fn flops(&self) -> u64 {
        [self.input_grad, self.weight_grad]
            .into_iter()
            .fold(self.forward, u64::saturating_add)
    }
}

/// The bytes that a layer holds and when, so that a peak is predicted exactly.
///
/// A buffer that several hold counts once, so what a layer keeps of its input, output or output
/// gradient is told apart (`…input`, `…output`, `…grad`) from what is its own. Each `…_peak` is the
/// most that is alive during that call beyond what was alive when it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The outputs are the inputs' own buffers (and dX is dY's).
    pub alias: bool,
    /// The outputs are written over the inputs where nothing else holds these, and dX over dY; the
    /// peaks below then lack the outputs (dX).
    pub in_place: bool,
    /// `Saved` holds the inputs.
    pub saves_input: bool,
    /// `Saved` holds the outputs.
    pub saves_output: bool,
    /// Bytes of everything else in `Saved`.
    pub saved_own: u64,
    /// `Pending` holds the inputs.
    pub pending_input: bool,
    /// `Pending` holds dY.
    pub pending_grad: bool,
    /// Bytes of everything else in `Pending`.
    pub pending_own: u64,
    /// During `forward`: outputs, `saved_own` and scratch.
    pub forward_peak: u64,
    /// During `input_grad`: dX, `pending_own` and scratch.
    pub input_grad_peak: u64,
    /// During `param_only_grad`: `pending_own` and scratch.
    pub param_only_grad_peak: u64,
    /// During `weight_grad`: scratch.
    pub weight_grad_peak: u64,
    /// During a fused `backward`; `None` where it is the two calls in a row.
    pub backward_peak: Option<u64>,
}
