//! Layers that multiply by a matrix.

use gpipe_tensor::Shape;

use super::count::{each_element, elements, product, sum};
use super::{Activation, Meta};
use crate::Result;

/// `LinearLayer`: 2 an element and output.
///
/// # Errors
/// If the count does not fit.
pub fn linear(input: &Shape, outputs: usize) -> Result<Meta> {
    const LAYER: &str = "linear";
    let flops = product(LAYER, &[2, elements(LAYER, input)?, outputs as u64])?;
    Ok(Meta::same(flops, &input.with_last(outputs)))
}

/// `BiasLayer`: 1 an element.
///
/// # Errors
/// If the count does not fit.
pub fn bias(input: &Shape) -> Result<Meta> {
    each_element("bias", 1, input)
}

/// The settings of a `ProjectionLayer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    /// The innermost extent of the output.
    pub outputs: usize,
    /// The activation after the product.
    pub activation: Activation,
    /// Whether a bias is added; Lingvo charges it once, not for each row.
    pub bias: bool,
    /// Whether batch norm follows.
    pub batch_norm: bool,
    /// Whether the weights are normalised.
    pub weight_norm: bool,
}

/// `ProjectionLayer`: a matrix product, doubled for gated activations, plus the enabled options.
///
/// # Errors
/// If the activation has no cost or the count does not fit.
pub fn projection(input: &Shape, settings: &Projection) -> Result<Meta> {
    const LAYER: &str = "projection";
    let inputs = input.last() as u64;
    let rows = elements(LAYER, &input.with_last(1))?;
    let outputs = settings.outputs as u64;
    let inner = product(LAYER, &[outputs, settings.activation.inputs_an_output()])?;
    let mut terms = vec![
        product(LAYER, &[2, rows, inputs, inner])?,
        product(LAYER, &[rows, outputs, settings.activation.flops()?])?,
    ];
    if settings.bias {
        terms.push(inner);
    }
    if settings.batch_norm {
        terms.push(product(LAYER, &[10, rows, inner])?);
    }
    if settings.weight_norm {
        terms.push(2);
        terms.push(product(LAYER, &[2, inputs])?);
        terms.push(product(LAYER, &[2, inputs, inner])?);
    }
    Ok(Meta::same(
        sum(LAYER, &terms)?,
        &input.with_last(settings.outputs),
    ))
}

/// `FeedForwardNet`: its projections; its dropout is free. A memory by locality-sensitive hashing,
/// where it has one, is to be added by [`lsh_memory`].
///
/// # Errors
/// As [`projection`].
pub fn feed_forward(input: &Shape, projections: &[Projection]) -> Result<Meta> {
    let mut meta = Meta::same(0, input);
    for settings in projections {
        let next = projection(&meta.outputs[0], settings)?;
        meta = Meta {
            flops: sum("feed-forward net", &[meta.flops, next.flops])?,
            outputs: next.outputs,
        };
    }
    Ok(meta)
}

/// `LSHMemoryRankKOneHotTaskLayer` with `hashes` hash functions of 2^`log_buckets` buckets.
///
/// # Errors
/// If the count does not fit.
pub fn lsh_memory(
    input: &Shape,
    hashes: usize,
    log_buckets: usize,
    outputs: usize,
) -> Result<Meta> {
    const LAYER: &str = "lsh memory";
    let (hashes, log_buckets) = (hashes as u64, log_buckets as u64);
    let rows = elements(LAYER, &input.with_last(1))?;
    let terms = [
        product(LAYER, &[2, elements(LAYER, input)?, hashes, log_buckets])?,
        product(LAYER, &[2, rows, hashes, log_buckets])?,
        product(LAYER, &[rows, hashes, outputs as u64])?,
    ];
    Ok(Meta::same(sum(LAYER, &terms)?, &input.with_last(outputs)))
}

/// `CCTGatingNetwork`: 5·rows·hidden·(inputs + outputs).
///
/// # Errors
/// If the count does not fit.
pub fn gating_network(input: &Shape, hidden: usize, outputs: usize) -> Result<Meta> {
    const LAYER: &str = "gating network";
    let shape = input.with_last(outputs);
    let into = product(LAYER, &[5, elements(LAYER, input)?, hidden as u64])?;
    let out_of = product(LAYER, &[5, elements(LAYER, &shape)?, hidden as u64])?;
    Ok(Meta::same(sum(LAYER, &[into, out_of])?, &shape))
}
