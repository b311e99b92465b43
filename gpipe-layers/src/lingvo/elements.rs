//! Layers that charge each element.

use gpipe_tensor::Shape;

use super::count::{each_element, elements, product};
use super::{Activation, Meta};
use crate::Result;

/// `BatchNormLayer` and `BatchNormLayerNoPadding`: 10 an element.
///
/// # Errors
/// If the count does not fit.
pub fn batch_norm(input: &Shape) -> Result<Meta> {
    each_element("batch norm", 10, input)
}

/// `GroupNormLayer`: 10 an element.
///
/// # Errors
/// If the count does not fit.
pub fn group_norm(input: &Shape) -> Result<Meta> {
    each_element("group norm", 10, input)
}

/// `LayerNorm`: 10 an element.
///
/// # Errors
/// If the count does not fit.
pub fn layer_norm(input: &Shape) -> Result<Meta> {
    each_element("layer norm", 10, input)
}

/// `DropoutLayer` and `DeterministicDropoutLayer`: 10 an element.
///
/// # Errors
/// If the count does not fit.
pub fn dropout(input: &Shape) -> Result<Meta> {
    each_element("dropout", 10, input)
}

/// `ActivationLayer`: the shape stays, even for the gated kinds that really halve it.
///
/// # Errors
/// If the activation has no cost or the count does not fit.
pub fn activation(input: &Shape, activation: Activation) -> Result<Meta> {
    each_element("activation", activation.flops()?, input)
}

/// `PerDimScaleLayer`: 5 an element.
///
/// # Errors
/// If the count does not fit.
pub fn per_dim_scale(input: &Shape) -> Result<Meta> {
    each_element("per-dim scale", 5, input)
}

/// `ResidualAddLayer` and `ReZeroAddLayer`: 2 an element of x.
///
/// # Errors
/// If the count does not fit.
pub fn residual_add(x: &Shape) -> Result<Meta> {
    each_element("residual add", 2, x)
}

/// `MemoryAddLayer`: 2 an element of x, but the shape of y.
///
/// # Errors
/// If the count does not fit.
pub fn memory_add(x: &Shape, y: &Shape) -> Result<Meta> {
    Ok(Meta::same(each_element("memory add", 2, x)?.flops, y))
}

/// `StochasticResidualLayer`: 6 an element of x.
///
/// # Errors
/// If the count does not fit.
pub fn stochastic_residual(x: &Shape) -> Result<Meta> {
    each_element("stochastic residual", 6, x)
}

/// `PaddingLayer`: 2 for each element of the larger of input and paddings.
///
/// # Errors
/// If the count does not fit.
pub fn padding(input: &Shape, paddings: &Shape) -> Result<Meta> {
    const LAYER: &str = "padding";
    let larger = elements(LAYER, input)?.max(elements(LAYER, paddings)?);
    Ok(Meta::same(product(LAYER, &[2, larger])?, input))
}
