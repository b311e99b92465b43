//! Transparent outputs of an encoder: a learned weighted mean of what every layer takes and the last one gives, as in
//! Lingvo's `GPipeTransformerStack` (Bapna et al., arXiv:1808.07561).
//!
//! The sum of what was weighted so far and the weights are tensors of the flow, behind the activations and the segments.
//! The weights, of shape (1, n), have no samples: they are the same for all of a step, and nothing counts or cuts them.

mod mean;
mod sums;
mod weights;

pub use sums::{TransparentAdd, TransparentSum};
pub use weights::TransparentWeights;
