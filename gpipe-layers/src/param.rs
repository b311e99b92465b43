//! A parameter: its name, value, gradient and what the optimizer remembers of it.

use gpipe_tensor::{Shape, Tensor};

/// What a parameter is to the optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A matrix: decayed under `decay = "matrices"`.
    Matrix,
    /// A bias or a gain.
    Vector,
    /// Accumulated like a gradient but applied as is (running statistics).
    Statistic,
}

/// How a parameter begins. Values are a function of (seed, name, element), never of the cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Normal with mean zero and this standard deviation.
    Normal(f32),
    /// Uniform between minus this and this.
    Uniform(f32),
}

/// One place of a parameter. A tied parameter has several places under one name; the first in
/// layer order owns it, the others follow.
#[derive(Debug)]
pub struct Param {
    /// The global name, such as `transformer.h.3.attn.c_attn.weight`.
    pub name: String,
    /// The extents.
    pub shape: Shape,
    /// What it is to the optimizer.
    pub kind: Kind,
    /// How it begins.
    pub init: Init,
    /// Whether another, earlier place owns it: this one only uses it and gathers a gradient.
    pub tied: bool,
    /// The value; `None` until the parameter is made.
    pub value: Option<Tensor>,
    /// The sum of the gradients of the micro-batches so far; made with the value.
    pub grad: Option<Tensor>,
    /// What the optimizer remembers (momentum; first and second moment). Empty where tied.
    pub state: Vec<Tensor>,
}
