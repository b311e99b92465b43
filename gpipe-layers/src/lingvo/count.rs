//! Counting without overflow.

use gpipe_tensor::Shape;

use super::Meta;
use crate::{Error, Result};

/// A cost of this number of FLOPs per element, with the same shape.
pub(super) fn each_element(layer: &str, flops: u64, input: &Shape) -> Result<Meta> {
    let flops = product(layer, &[flops, elements(layer, input)?])?;
    Ok(Meta::same(flops, input))
}

pub(super) fn extents<const RANK: usize>(layer: &str, shape: &Shape) -> Result<[usize; RANK]> {
    let dims = shape.dims().try_into();
    dims.map_err(|_| mismatch(layer, format!("{RANK} extents"), shape))
}

pub(super) fn elements(layer: &str, shape: &Shape) -> Result<u64> {
    let elements = shape.elements().map_err(|_| overflow(layer))?;
    Ok(elements as u64)
}

pub(super) fn product(layer: &str, factors: &[u64]) -> Result<u64> {
    if factors.contains(&0) {
        return Ok(0);
    }
    let product = factors
        .iter()
        .try_fold(1_u64, |product, &factor| product.checked_mul(factor));
    product.ok_or_else(|| overflow(layer))
}

pub(super) fn sum(layer: &str, terms: &[u64]) -> Result<u64> {
    let sum = terms
        .iter()
        .try_fold(0_u64, |sum, &term| sum.checked_add(term));
    sum.ok_or_else(|| overflow(layer))
}

pub(super) fn overflow(layer: &str) -> Error {
    Error::Config(format!(
        "{layer}: the count of flops does not fit 64 bits: use smaller sizes"
    ))
}

pub(super) fn mismatch(layer: &str, expected: String, got: &Shape) -> Error {
    Error::Input {
        layer: layer.to_owned(),
        expected,
        got: got.to_string(),
    }
}
