//! The bytes of one stage.

/// The bytes that one stage's device handle counts during a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageMemory {
    /// Values of all parameters, a tied one counted at each of its places.
    pub values: u64,
    /// Gradients, likewise.
    pub gradients: u64,
    /// What the optimizer remembers of the parameters that are owned here.
    pub optimizer: u64,
    /// The most at once of everything else during the forward and backward passes.
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

    /// The most at once of everything.
    pub fn peak(&self) -> u64 {
        self.fixed().saturating_add(self.activations.max(self.ties))
    }
}
