//! The contents of a cost file.

use gpipe_remat::planner::{Described, Link, Worker};

/// The contents of a cost file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CostFile {
    /// The layers, first to last; times in seconds, sizes in bytes.
    pub layers: Vec<Described>,
    /// Samples per step, if the file has them.
    pub batch: Option<usize>,
    /// The workers, if the file has them.
    pub workers: Option<Vec<Worker>>,
    /// The link between workers, if the file has one.
    pub link: Option<Link>,
}

impl CostFile {
    /// Costs of layers alone, first to last.
    pub fn from_layers(layers: Vec<Described>) -> Self {
        Self {
            layers,
            ..Self::default()
        }
    }
}
