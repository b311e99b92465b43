//! The first value of a step that is not finite, as data.

use std::fmt;

/// The direction through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// The forward pass.
    Forward,
    /// The backward pass.
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
    /// An input of the model.
    Input,
    /// An output of the layer; for the loss, the loss itself.
    Output,
    /// An input gradient of the layer.
    InputGradient,
    /// The gradient of the named parameter, summed up to this micro-batch.
    Gradient(String),
    /// The named parameter, which was not finite before the step began.
    Parameter(String),
}

/// The first value of a step that is not finite.
///
/// First in the order of one stage: micro-batches ascending, each forward and then back. That is
/// the same value for every cut, schedule and policy.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// The micro-batch.
    pub micro_batch: usize,
    /// The layer's global name; `input` before the first one, `loss` after the last one.
    pub layer: String,
    /// The pass.
    pub pass: Pass,
    /// The kind of value.
    pub value: Value,
    /// The value: NaN or infinite.
    pub found: f32,
}

impl NonFinite {
    /// What to do about it.
    pub(crate) fn mend(&self) -> &'static str {
        match self.value {
            Value::Input => "give inputs that are finite",
            _ => "use a lower learning rate, or clip the gradients",
        }
    }
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
            Value::Input => write!(f, "the input of the model holds {found}"),
            Value::Output => write!(f, "the output is {found}"),
            Value::InputGradient => write!(f, "the gradient of the input is {found}"),
            Value::Gradient(name) => write!(f, "the gradient of {name} is {found}"),
            Value::Parameter(name) => write!(f, "{name} was {found} before the step"),
        }
    }
}
