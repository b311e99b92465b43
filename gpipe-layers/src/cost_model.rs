//! Cost models of a layer.

use std::num::NonZero;
use std::str::FromStr;

use crate::choice::choose;
use crate::{Error, Flow, Layer, Result};

/// The FLOPs that processors and GPUs compute in the time of one byte from memory: about 100 GFLOP/s and 10 GB/s
/// of a core, 50 TFLOP/s and 3.4 TB/s of an H100, 12 TFLOP/s and 0.35 TB/s of a P40.
const FLOPS_PER_BYTE: NonZero<u32> = NonZero::new(10).unwrap();

/// The formulas that weigh the layers of a model for a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostModel {
    /// Every FLOP of forward, input gradient and weight gradient, by [`Layer::cost`].
    #[default]
    Complete,
    /// The forward formulas of Lingvo's `FPropMeta`, by [`Layer::lingvo`]: for comparison. They
    /// charge an embedding as a matrix product and take a language model's head for free.
    Lingvo,
    /// Time: the FLOPs of [`Complete`](Self::Complete) and, one after the other, the bytes that a layer reads and
    /// writes ([`Cost::traffic`](crate::Cost::traffic)), each as this many FLOPs. By a given number instead of a
    /// measured one, so that every run and every rank cuts alike. A list of prices for a whole step adds the update.
    Time(NonZero<u32>),
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
            Self::Time(flops_per_byte) => layer.cost(inputs).map(|cost| {
                let bytes = cost.traffic.saturating_mul(flops_per_byte.get().into());
                cost.flops().saturating_add(bytes)
            }),
        }
    }

    /// The FLOPs in the time of one byte; `None` where bytes are free.
    pub fn flops_per_byte(self) -> Option<f64> {
        match self {
            Self::Time(flops_per_byte) => Some(flops_per_byte.get().into()),
            Self::Complete | Self::Lingvo => None,
        }
    }
}

const MODELS: [(&str, CostModel); 3] = [
    ("complete", CostModel::Complete),
    ("time", CostModel::Time(FLOPS_PER_BYTE)),
    ("lingvo", CostModel::Lingvo),
];

impl FromStr for CostModel {
    type Err = Error;

    /// A name, or `time:N` for N FLOPs in the time of one byte.
    fn from_str(text: &str) -> Result<Self> {
        let Some(number) = text.strip_prefix("time:") else {
            return choose("cost model", text, &MODELS).map_err(|error| match error {
                Error::Config(fault) => Error::Config(format!(
                    "{fault}, or time:N for N FLOPs in the time of one byte, such as time:{FLOPS_PER_BYTE}"
                )),
                error => error,
            });
        };
        number.parse().map(Self::Time).map_err(|_| {
            Error::Config(format!(
                "`{text}`: `{number}` is no number of FLOPs in the time of one byte: use a whole number from 1 \
                 up, such as time:{FLOPS_PER_BYTE}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_every_form() {
        for (text, model) in [
            ("complete", CostModel::Complete),
            ("time", CostModel::Time(FLOPS_PER_BYTE)),
            ("time:3", CostModel::Time(NonZero::new(3).unwrap())),
            ("lingvo", CostModel::Lingvo),
        ] {
            assert_eq!(text.parse::<CostModel>().unwrap(), model);
        }
        let said = "x".parse::<CostModel>().unwrap_err().to_string();
        assert!(
            said.contains("complete or time or lingvo, or time:N "),
            "{said}"
        );
        let example = said.rsplit(' ').next().unwrap();
        assert_eq!(
            example.parse::<CostModel>().unwrap(),
            "time".parse().unwrap()
        );
    }
}
