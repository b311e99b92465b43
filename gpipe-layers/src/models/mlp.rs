//! A multi-layer perceptron.

use super::sizes::MOST_BLOCKS;
use crate::layers::{Activation, Dropout, Function, Layout, Linear, Sequential};
use crate::{Error, Layer, Result};

/// The configuration of a multi-layer perceptron.
#[derive(Clone, Debug, PartialEq)]
pub struct MlpConfig {
    /// Width of the input.
    pub inputs: usize,
    /// Width of each hidden layer.
    pub hidden: Vec<usize>,
    /// Width of the output.
    pub outputs: usize,
    /// The activation after each hidden layer.
    pub activation: Function,
    /// Share that is dropped after each activation.
    pub dropout: f32,
}

/// Linear layers `linear_0`, `linear_1`, … with biases, as PyTorch's; an activation and, unless its
/// share is 0, a dropout after all but the last. From (batch, inputs) to (batch, outputs).
///
/// # Errors
/// [`Error::Config`] for a width of zero, more than 10,000 hidden layers, or a dropout outside of 0..1.
pub fn mlp(config: &MlpConfig) -> Result<Vec<Box<dyn Layer>>> {
    if config.hidden.len() > MOST_BLOCKS {
        return Err(Error::Config(format!(
            "mlp: {} hidden layers: use {MOST_BLOCKS} or fewer",
            config.hidden.len()
        )));
    }
    let widths = [
        &[config.inputs],
        config.hidden.as_slice(),
        &[config.outputs],
    ]
    .concat();
    if widths.contains(&0) {
        return Err(Error::Config(format!(
            "mlp: widths {widths:?}: use a width of 1 or more everywhere"
        )));
    }
    let mut layers = Sequential::new();
    for (i, pair) in widths.windows(2).enumerate() {
        if i > 0 {
            let name = format!("activation_{}", i - 1);
            layers = layers.then(Activation::new(name, config.activation));
        }
        let dropout = Dropout::new(format!("dropout_{}", i.max(1) - 1), config.dropout)?;
        if i > 0 && config.dropout > 0.0 {
            layers = layers.then(dropout);
        }
        let name = format!("linear_{i}");
        layers = layers.then(Linear::new(name, pair[0], pair[1], Layout::OutIn));
    }
    Ok(layers.into_layers())
}
