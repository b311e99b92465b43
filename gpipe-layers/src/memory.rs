//! The bytes that each call of a layer holds, tensor by tensor.

/// Some of the tensors of a flow, by their place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TensorSet {
    /// None of them.
    #[default]
    None,
    /// All of them.
    All,
    /// Those at these places, counted from 0.
    Only(Vec<usize>),
}

impl TensorSet {
    /// Whether the tensor at this place is among them.
    pub fn contains(&self, place: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Only(places) => places.contains(&place),
        }
    }
}

/// All tensors, or none.
impl From<bool> for TensorSet {
    fn from(all: bool) -> Self {
        match all {
            true => Self::All,
            false => Self::None,
        }
    }
}

/// The origin of the buffer of a tensor that a call returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The call allocates it.
    #[default]
    New,
    /// It *is* the argument's tensor at this place.
    Same(usize),
    /// It reuses the buffer of the argument's tensor at this place if nothing else holds that, and is new
    /// otherwise.
    Over(usize),
}

/// The bytes that each call of a layer holds, so that peaks are predicted exactly.
///
/// A buffer with several holders counts once, so inputs, outputs and output gradients that a layer keeps
/// (`…_inputs`, `…_outputs`, `…_grads`) are separate from its other bytes (`…_own`). Each `…_peak` is the
/// most live bytes during that call, beyond those at its beginning.
///
/// Places count the tensors of the flow that the layer takes or returns. In a flow of gradients
/// they count the gradients: one for each tensor of floats. Only tensors count, not a shape or an
/// opaque value that is saved beside them.
///
/// A layer from one new tensor to another that saves its input:
///
/// ```
/// use gpipe_layers::{Flow, Memory, TensorSet};
///
/// let x = Flow::f32([8, 32]);
/// let memory = Memory::new()
///     .with_saved_inputs(TensorSet::All)
///     .with_forward_peak(x.bytes())
///     .with_input_grad_peak(x.bytes());
/// assert_eq!(memory.saved_own, 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// The origin of each output, as places of the inputs; outputs beyond the list are new.
    pub outputs: Vec<Origin>,
    /// The origin of each tensor of dX, as places of dY; tensors beyond the list are new.
    pub gradients: Vec<Origin>,
    /// The inputs that `Saved` holds.
    pub saved_inputs: TensorSet,
    /// The outputs that `Saved` holds.
    pub saved_outputs: TensorSet,
    /// Bytes of everything else in `Saved`.
    pub saved_own: u64,
    /// The inputs that `Pending` holds, of those that `Saved` held.
    pub pending_inputs: TensorSet,
    /// The tensors of dY that `Pending` holds.
    pub pending_grads: TensorSet,
    /// Bytes of everything else in `Pending`.
    pub pending_own: u64,
    /// During `forward`: outputs that are not [`Same`](Origin::Same), `saved_own` and scratch.
    /// Where an output is written [`Over`](Origin::Over) an input, the peak is less by its bytes.
    pub forward_peak: u64,
    /// During `recompute`: `saved_own` and scratch. `None` where it is `forward`; with a number, the layer saves no outputs.
    pub recompute_peak: Option<u64>,
    /// During `input_grad`: dX likewise, `pending_own` and scratch.
    pub input_grad_peak: u64,
    /// During `param_only_grad`: `pending_own` and scratch.
    pub param_only_grad_peak: u64,
    /// During `weight_grad`: scratch.
    pub weight_grad_peak: u64,
    /// During a fused `backward`; `None` where it is the two calls in a row.
    pub backward_peak: Option<u64>,
}

impl Memory {
    /// New outputs and gradients; nothing saved, nothing pending, all peaks 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first `tensors` outputs are the inputs' own buffers, and dX is dY's.
    pub fn handed_on(tensors: usize) -> Self {
        let same: Vec<Origin> = (0..tensors).map(Origin::Same).collect();
        Self {
            outputs: same.clone(),
            gradients: same,
            ..Self::default()
        }
    }

    /// Bytes that the input gradient adds to what the forward pass saved.
    pub(crate) fn grown(&self) -> u64 {
        self.pending_own.saturating_sub(self.saved_own)
    }

    /// The origin of the output at this place.
    pub fn output(&self, place: usize) -> Origin {
        self.outputs.get(place).copied().unwrap_or_default()
    }

    /// The origin of the tensor of dX at this place.
    pub fn gradient(&self, place: usize) -> Origin {
        self.gradients.get(place).copied().unwrap_or_default()
    }
}

/// Setters by value, one for each field: `with_` and its name.
macro_rules! setters {
    ($($(#[$doc:meta])* $setter:ident, $field:ident: $type:ty;)*) => {
        impl Memory {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $setter(self, $field: $type) -> Self {
                    Self { $field, ..self }
                }
            )*
        }
    };
}

setters! {
    /// Sets [`outputs`](Self::outputs).
    with_outputs, outputs: Vec<Origin>;
    /// Sets [`gradients`](Self::gradients).
    with_gradients, gradients: Vec<Origin>;
    /// Sets [`saved_inputs`](Self::saved_inputs).
    with_saved_inputs, saved_inputs: TensorSet;
    /// Sets [`saved_outputs`](Self::saved_outputs).
    with_saved_outputs, saved_outputs: TensorSet;
    /// Sets [`saved_own`](Self::saved_own).
    with_saved_own, saved_own: u64;
    /// Sets [`pending_inputs`](Self::pending_inputs).
    with_pending_inputs, pending_inputs: TensorSet;
    /// Sets [`pending_grads`](Self::pending_grads).
    with_pending_grads, pending_grads: TensorSet;
    /// Sets [`pending_own`](Self::pending_own).
    with_pending_own, pending_own: u64;
    /// Sets [`forward_peak`](Self::forward_peak).
    with_forward_peak, forward_peak: u64;
    /// Sets [`recompute_peak`](Self::recompute_peak).
    with_recompute_peak, recompute_peak: Option<u64>;
    /// Sets [`input_grad_peak`](Self::input_grad_peak).
    with_input_grad_peak, input_grad_peak: u64;
    /// Sets [`param_only_grad_peak`](Self::param_only_grad_peak).
    with_param_only_grad_peak, param_only_grad_peak: u64;
    /// Sets [`weight_grad_peak`](Self::weight_grad_peak).
    with_weight_grad_peak, weight_grad_peak: u64;
    /// Sets [`backward_peak`](Self::backward_peak).
    with_backward_peak, backward_peak: Option<u64>;
}
