//! The first value of a step that is not finite, as data.

use std::fmt;

/// On which way through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// From inputs to the loss.
    Forward,
    /// From the loss back.
    Backward,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// Which value of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// What the layer hands on. For the loss, that is the loss itself.
    Output,
    /// What it hands back.
    InputGradient,
    /// What it has summed for one of its parameters, named here, up to this micro-batch.
    Gradient(String),
    /// A parameter, named here, that was not finite before the step began.
    Parameter(String),
}

/// The first value of a step that is no finite number.
///
/// First in the order of one stage: micro-batches ascending, each forward and then back. That is
/// the same value for every cut, schedule and policy.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// In which micro-batch.
    pub micro_batch: usize,
    /// The layer's global name; `loss` after the last one.
    pub layer: String,
    /// On which way.
    pub pass: Pass,
    /// Of what.
    pub value: Value,
    /// The value: not a number, or infinite.
    pub found: f32,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            micro_batch,
            layer,
            pass,
            value,
            found,
        } = self;
        write!(f, "micro-batch {micro_batch}, layer {layer}, {pass}: ")?;
        match value {
            Value::Output => write!(f, "the output is {found}"),
            Value::InputGradient => write!(f, "the gradient of the input is {found}"),
            Value::Gradient(name) => write!(f, "the gradient of {name} is {found}"),
            Value::Parameter(name) => write!(f, "{name} was {found} before the step"),
        }
    }
}
