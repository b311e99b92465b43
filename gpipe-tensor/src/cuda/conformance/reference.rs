//! Tensors and numbers of the processor, with which those of kernels are compared.

use super::Outcome;
use crate::testing::device;
use crate::{DType, Result, Shape, Tensor};

pub(super) const SINGLE: DType = DType::F32;

/// A tensor of these values.
pub(super) fn tensor(shape: impl Into<Shape>, values: &[f32]) -> Tensor {
    Tensor::from_f32(&device(), shape, values).expect("as many values as elements")
}

pub(super) fn floats(tensor: &Tensor) -> &[f32] {
    tensor.f32s().expect("floats")
}

/// The floats of what an operation of the processor gives.
pub(super) fn computed(tensor: Result<Tensor>) -> Vec<f32> {
    let tensor = tensor.expect("the operands fit");
    tensor.f32s().expect("floats").to_vec()
}

/// The sums of two lists.
pub(super) fn sums_of(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// An error unless two numbers in double precision are as good as equal.
pub(super) fn near_double(what: &str, got: f64, wanted: f64, tolerance: f64) -> Outcome {
    if (got - wanted).abs() <= tolerance * wanted.abs().max(1.0) {
        return Ok(());
    }
    Err(format!("{what}: {got}, not {wanted}"))
}
