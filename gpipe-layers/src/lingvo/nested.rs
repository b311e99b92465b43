//! Layers that forward inputs, contain or repeat others.

use gpipe_tensor::Shape;

use super::count::{mismatch, product, sum};
use super::{Formula, Meta};
use crate::Result;

/// `IdentityLayer`, `FetchLayer`, `PrintShapeLayer`, `MeshSplitLayer`: no cost.
pub fn free(inputs: &[Shape]) -> Meta {
    Meta {
        flops: 0,
        outputs: inputs.to_vec(),
    }
}

/// `FirstNLayer`: no cost; its outputs are the first `n` inputs, at least one.
pub fn first_n(inputs: &[Shape], n: usize) -> Meta {
    free(&inputs[..n.max(1).min(inputs.len())])
}

/// `SequentialLayer`, `UnarySequentialLayer` and `FeatureExtractionLayer`: the layers in a row, the
/// whole row `repeat` times.
///
/// # Errors
/// The first layer's that fails, or if the sum does not fit.
pub fn sequential(inputs: &[Shape], layers: &[&Formula<'_>], repeat: usize) -> Result<Meta> {
    let mut meta = free(inputs);
    for _ in 0..repeat {
        for layer in layers {
            let next = layer(&meta.outputs)?;
            meta = Meta {
                flops: sum("sequential", &[meta.flops, next.flops])?,
                outputs: next.outputs,
            };
        }
    }
    Ok(meta)
}

/// `RepeatLayer`: the body's cost times the count; the shapes are taken to stay.
///
/// # Errors
/// The body's, or if the product does not fit.
pub fn repeat(inputs: &[Shape], body: &Formula<'_>, count: usize) -> Result<Meta> {
    let flops = product("repeat", &[body(inputs)?.flops, count as u64])?;
    Ok(Meta {
        flops,
        outputs: inputs.to_vec(),
    })
}

/// `ParallelRepeatLayer`: the body on each of `count` slices along a new outermost axis.
///
/// # Errors
/// The body's, if an input is a scalar, or if the product does not fit.
pub fn parallel_repeat(inputs: &[Shape], body: &Formula<'_>, count: usize) -> Result<Meta> {
    const LAYER: &str = "parallel repeat";
    let slices = inputs
        .iter()
        .map(|input| match input.dims() {
            [_, slice @ ..] => Ok(Shape::from(slice)),
            [] => Err(mismatch(LAYER, "an outermost axis".into(), input)),
        })
        .collect::<Result<Vec<_>>>()?;
    let meta = body(&slices)?;
    let stacked = |slice: &Shape| Shape::from([&[count], slice.dims()].concat().as_slice());
    Ok(Meta {
        flops: product(LAYER, &[meta.flops, count as u64])?,
        outputs: meta.outputs.iter().map(stacked).collect(),
    })
}

/// `ParallelLayer`, and `GraphLayer` with its wiring in `merge`: every branch gets the inputs;
/// `merge` computes the cost and the outputs of joining the branches' outputs.
///
/// # Errors
/// A branch's, the merge's, or if the sum does not fit.
pub fn parallel(
    inputs: &[Shape],
    branches: &[&Formula<'_>],
    merge: impl FnOnce(&[Vec<Shape>]) -> Result<Meta>,
) -> Result<Meta> {
    let mut flops = Vec::with_capacity(branches.len() + 1);
    let mut outputs = Vec::with_capacity(branches.len());
    for branch in branches {
        let meta = branch(inputs)?;
        flops.push(meta.flops);
        outputs.push(meta.outputs);
    }
    let merged = merge(&outputs)?;
    flops.push(merged.flops);
    Ok(Meta {
        flops: sum("parallel", &flops)?,
        outputs: merged.outputs,
    })
}
