//! Taking flows and saved tensors apart, with errors that name the layer.

use gpipe_tensor::ops::Window;
use gpipe_tensor::{DType, Shape, Tensor, Tensors};

pub(super) use crate::saved::{foreign, unpack};
use crate::{Error, Flow, Param, Result, Saved};

/// The one tensor of a flow.
pub(super) fn single(layer: &str, flow: Tensors) -> Result<Tensor> {
    let count = flow.len();
    let mut tensors = flow.into_iter();
    match (tensors.next(), tensors.next()) {
        (Some(tensor), None) => Ok(tensor),
        _ => Err(unexpected(layer, "one tensor", count)),
    }
}

/// The state of a layer that saves its input x alone, in the type of its weight.
pub(super) fn saved_input(layer: &str, x: &Tensor, weight: &Param) -> Result<Saved> {
    let kept = x.to_dtype(weight.value()?.dtype());
    let kept = kept.map_err(Error::within(layer))?;
    Ok(Saved {
        given: (x.dtype() != kept.dtype()).then(|| x.dtype()),
        ..Saved::new([kept])
    })
}

/// The description of the one tensor of floats of a flow, whose innermost extent is `width` if
/// one is needed.
pub(super) fn floats<'a>(
    layer: &str,
    inputs: &'a [Flow],
    width: Option<usize>,
) -> Result<&'a Flow> {
    let expected = || match width {
        Some(width) => format!("floats of shape (…, {width})"),
        None => "one tensor of floats".to_owned(),
    };
    match inputs {
        [x] if x.dtype.is_float() && width.is_none_or(|width| x.shape.last() == width) => {
            checked(layer, &x.shape)?;
            Ok(x)
        }
        _ => Err(unexpected(layer, expected(), Flows(inputs))),
    }
}

/// The shape of the images that a window makes of others, with this number of channels.
pub(super) fn images(layer: &str, x: &Flow, window: &Window, channels: usize) -> Result<Shape> {
    let &[samples, height, width, _] = x.shape.dims() else {
        let expected = "images (samples, height, width, channels)";
        return Err(unexpected(layer, expected, x));
    };
    let size = window.output([height, width]);
    let [height, width] = size.map_err(Error::within(layer))?;
    Ok([samples, height, width, channels].into())
}

/// Elements of a tensor of this shape, if its bytes can be addressed.
pub(super) fn checked(layer: &str, shape: &Shape) -> Result<u64> {
    let addressable = |elements: &usize| *elements <= isize::MAX as usize / size_of::<f32>();
    match shape.elements().ok().filter(addressable) {
        Some(elements) => Ok(elements as u64),
        None => Err(Error::within(layer)(gpipe_tensor::Error::Size {
            op: "cost",
            shape: shape.clone(),
        })),
    }
}

/// A flow of floats of this type whose bytes can be addressed.
pub(super) fn output(layer: &str, shape: Shape, dtype: DType) -> Result<Flow> {
    checked(layer, &shape)?;
    Ok(Flow { shape, dtype })
}

/// An error: the flow is not one that the layer takes.
pub(super) fn unexpected(
    layer: &str,
    expected: impl Into<String>,
    got: impl std::fmt::Display,
) -> Error {
    Error::Input {
        layer: layer.to_owned(),
        expected: expected.into(),
        got: got.to_string(),
    }
}

/// A flow in an error message.
pub(super) struct Flows<'a>(pub &'a [Flow]);

impl std::fmt::Display for Flows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, flow) in self.0.iter().enumerate() {
            write!(f, "{}{flow}", if i == 0 { "" } else { ", " })?;
        }
        if self.0.is_empty() {
            f.write_str("nothing")?;
        }
        Ok(())
    }
}

/// The FLOPs, or bytes, of a gradient that a frozen parameter does without.
pub(super) fn trained(param: &Param, flops: u64) -> u64 {
    if param.frozen { 0 } else { flops }
}

/// A product that stops at the largest number: FLOPs beyond it mean nothing anyway.
pub(super) fn times(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |a, &b| a.saturating_mul(b))
}
