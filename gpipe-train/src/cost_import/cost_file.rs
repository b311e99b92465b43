//! The contents of a file of costs.

use gpipe_remat::planner::{Described, Link, Worker};

/// What a file says.
#[derive(Debug)]
pub struct CostFile {
    /// First to last.
    pub layers: Vec<Described>,
    /// Samples of a step, if it says.
    pub batch: Option<usize>,
    /// Workers, if it says.
    pub workers: Option<Vec<Worker>>,
    /// What is between them, if it says.
    pub link: Option<Link>,
}
