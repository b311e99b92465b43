//! Actions: an operation of one stage on one micro-batch.

use std::fmt;
use std::str::FromStr;

/// An operation of a stage on a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// `F`: the forward pass.
    Forward,
    /// `B`: both gradients in one action.
    Backward,
    /// `I`: the gradient of the stage's input, for which the previous stage waits.
    InputGrad,
    /// `W`: the gradient of the stage's weights, for which no stage waits.
    WeightGrad,
    /// `R`: recomputes, ahead of the backward pass, activations that were not kept.
    Recompute,
}

impl Op {
    /// All operations, in the order in which a stage may run them on a micro-batch.
    pub const ALL: [Self; 5] = [
        Self::Forward,
        Self::Recompute,
        Self::Backward,
        Self::InputGrad,
        Self::WeightGrad,
    ];

    /// The letter of PyTorch's text form (`R` is an extension).
    pub const fn letter(self) -> char {
        match self {
            Self::Forward => 'F',
            Self::Backward => 'B',
            Self::InputGrad => 'I',
            Self::WeightGrad => 'W',
            Self::Recompute => 'R',
        }
    }

    /// Whether it takes a gradient and sends one to the previous stage: `B` or `I`.
    pub const fn is_backward(self) -> bool {
        matches!(self, Self::Backward | Self::InputGrad)
    }

    /// Whether it adds the weight gradient and so ends the stage's work on the micro-batch: `B` or
    /// `W`.
    pub const fn adds_gradient(self) -> bool {
        matches!(self, Self::Backward | Self::WeightGrad)
    }
}

impl fmt::Display for Op {
    /// The name in words, as in errors; [`Op::letter`] is the short form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::InputGrad => "input gradient",
            Self::WeightGrad => "weight gradient",
            Self::Recompute => "recompute",
        })
    }
}

/// An operation of one stage on one micro-batch. The text form is PyTorch's: `2F0` is stage 2,
/// forward, micro-batch 0.
///
/// ```
/// let action: gpipe_sched::Action = "2F0".parse()?;
/// assert_eq!((action.stage, action.micro_batch), (2, 0));
/// assert_eq!(action.to_string(), "2F0");
/// # Ok::<(), gpipe_sched::ActionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// The stage, counted from 0.
    pub stage: usize,
    /// The operation.
    pub op: Op,
    /// The micro-batch, counted from 0.
    pub micro_batch: usize,
}

impl Action {
    /// Operation `op` of `stage` on `micro_batch`.
    pub const fn new(stage: usize, op: Op, micro_batch: usize) -> Self {
        Self {
            stage,
            op,
            micro_batch,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage, self.op.letter(), self.micro_batch)
    }
}

/// Text that is not an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no action: write stage, one of F B I W R, and micro-batch, as in 2F0")]
pub struct ActionError {
    /// The beginning of the text.
    text: String,
}

impl FromStr for Action {
    type Err = ActionError;

    fn from_str(text: &str) -> Result<Self, ActionError> {
        let parse = || {
            let at = text.find(|c: char| !c.is_ascii_digit())?;
            let letter = text[at..].chars().next()?;
            let op = Op::ALL.into_iter().find(|op| op.letter() == letter)?;
            let micro_batch = &text[at + letter.len_utf8()..];
            // `parse` alone would accept a sign.
            if !micro_batch.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            Some(Self::new(
                text[..at].parse().ok()?,
                op,
                micro_batch.parse().ok()?,
            ))
        };
        parse().ok_or_else(|| ActionError {
            text: text.chars().take(40).collect(),
        })
    }
}
