//! Two cost models of a layer.

use crate::choice::choose;
use crate::{Error, Flow, Layer, Result};

/// The formulas that weigh the layers of a model for a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostModel {
    /// Every FLOP of forward, input gradient and weight gradient, by [`Layer::cost`].
    #[default]
    Complete,
    /// The forward formulas of Lingvo's `FPropMeta`, by [`Layer::lingvo`]: for comparison. They
    /// charge an embedding as a matrix product and take a language model's head for free.
    Lingvo,
}

impl CostModel {
    /// Cost of one micro-batch through the layer, in FLOPs of this model.
    ///
    /// # Errors
    /// If the layer cannot take such a flow, or Lingvo has no formula for it.
    pub fn price(self, layer: &dyn Layer, inputs: &[Flow]) -> Result<u64> {
        match self {
            Self::Complete => layer.cost(inputs).map(|cost| cost.flops()),
            Self::Lingvo => layer.lingvo(inputs),
        }
    }
}

const MODELS: [(&str, CostModel); 2] = [
    ("complete", CostModel::Complete),
    ("lingvo", CostModel::Lingvo),
];

impl std::str::FromStr for CostModel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        choose("cost model", text, &MODELS)
    }
}
