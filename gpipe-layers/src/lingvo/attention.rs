//! Attention, and the Transformer layers of GPipe.

use gpipe_tensor::Shape;

use super::Meta;
use super::count::{elements, extents, product, sum};
use crate::Result;

/// `MultiHeadedAttention` of a query (b, t, d) over `source` positions:
/// 15·b·t·s·d + 4·b·d²·(t + s). Outputs have the query's shape and the probabilities' (b, heads, t, s).
///
/// # Errors
/// If the query has another rank or the count does not fit.
pub fn multi_headed_attention(query: &Shape, source: usize, heads: usize) -> Result<Meta> {
    const LAYER: &str = "multi-headed attention";
    let [batch, target, width] = extents(LAYER, query)?;
    let query_elements = elements(LAYER, query)?;
    let source_elements = elements(LAYER, &Shape::from([batch, source, width]))?;
    let flops = [
        product(LAYER, &[15, query_elements, source as u64])?,
        product(LAYER, &[4, query_elements, width as u64])?,
        product(LAYER, &[4, source_elements, width as u64])?,
    ];
    Ok(Meta {
        flops: sum(LAYER, &flops)?,
        outputs: vec![query.clone(), Shape::from([batch, heads, target, source])],
    })
}

/// The order of the extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// (time, batch, width).
    TimeMajor,
    /// (batch, time, width).
    BatchMajor,
}

/// `GPipeTransformerLayer`, `GPipeEvolvedTransformer…Layer` and their batch-major form: 5·T²·B·D.
/// Projections and feed-forward net are not counted.
///
/// # Errors
/// If the input has another rank or the count does not fit.
pub fn transformer_layer(input: &Shape, order: Order) -> Result<Meta> {
    const LAYER: &str = "transformer layer";
    let [outer, inner, _] = extents(LAYER, input)?;
    let time = match order {
        Order::TimeMajor => outer,
        Order::BatchMajor => inner,
    };
    let flops = product(LAYER, &[5, elements(LAYER, input)?, time as u64])?;
    Ok(Meta::same(flops, input))
}

/// `GPipeTransformerSoftmaxLayer`: 100, whatever the shape.
///
/// # Errors
/// If the input has another rank than 3.
pub fn transformer_softmax(input: &Shape, classes: usize) -> Result<Meta> {
    extents::<3>("transformer softmax", input)?;
    Ok(Meta::same(100, &input.with_last(classes)))
}

/// `GPipeTransformerEmbeddingLayer`: 2·B·T·D·V, as if the gather were a matrix product.
///
/// # Errors
/// If the ids have another rank than 2 or the count does not fit.
pub fn transformer_embedding(ids: &Shape, vocabulary: usize, width: usize) -> Result<Meta> {
    const LAYER: &str = "transformer embedding";
    let [outer, inner] = extents(LAYER, ids)?;
    let shape = Shape::from([outer, inner, width]);
    let flops = product(LAYER, &[2, elements(LAYER, &shape)?, vocabulary as u64])?;
    Ok(Meta::same(flops, &shape))
}
