//! The bytes of one stage.

/// The bytes that one stage's device handle counts during a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageMemory {
    /// Values of all parameters; a tied one counts at each of its places.
    pub values: u64,
    /// Gradients of all parameters; a tied one counts at each of its places.
    pub gradients: u64,
    /// Optimizer states of the parameters that are owned here.
    pub optimizer: u64,
    /// The peak of everything else during the forward and backward passes: tensors of micro-batches, and
    /// sums of gradients beyond the first where micro-batches are in several groups.
    pub activations: u64,
    /// A tied gradient from another stage, while it is merged.
    pub ties: u64,
}

impl StageMemory {
    /// Everything but activations and ties.
    pub fn fixed(&self) -> u64 {
        [self.gradients, self.optimizer]
            .into_iter()
            .fold(self.values, u64::saturating_add)
    }

    /// The peak of everything.
    pub fn peak(&self) -> u64 {
        self.fixed().saturating_add(self.activations.max(self.ties))
    }
}
