//! Common parts of all checks: their error, and tensors to try a layer with.

use gpipe_tensor::{Device, Shape, Tensor, Tensors, init_uniform};

use crate::{Error, Flow, Layer, PassContext, Saved, try_params};

/// The result of a check.
pub type Result<T> = std::result::Result<T, CheckError>;

/// A violation of the contract of a layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The layer itself failed, or cannot take these tensors.
    #[error(transparent)]
    Layer(#[from] Error),
    /// An error of a tensor that the check needs: not enough memory, or another element type.
    #[error("check: {0}")]
    Tensor(#[from] gpipe_tensor::Error),
    /// A pass returned other tensors than the cost describes.
    #[error("{layer}: {call} returned {got}, but {expected} are described")]
    Flow {
        /// The layer's name.
        layer: String,
        /// The call.
        call: String,
        /// Shapes and types that the cost describes.
        expected: String,
        /// Shapes and types of the returned tensors.
        got: String,
    },
    /// A call holds other bytes than the cost's [`Memory`](crate::Memory) predicts.
    #[error("{layer}: {call}: {counted} bytes {moment} are counted, but {predicted} are predicted")]
    Bytes {
        /// The layer's name.
        layer: String,
        /// The call, and what else holds its inputs.
        call: String,
        /// `alive after it` or `at its peak`.
        moment: &'static str,
        /// Bytes by the cost.
        predicted: u64,
        /// Bytes by the device.
        counted: u64,
    },
    /// An output or a gradient differs from the expected value.
    #[error("{layer}: {of}, element {element}: expected {expected}, got {got}")]
    Value {
        /// The layer's name.
        layer: String,
        /// Name of the output or gradient.
        of: String,
        /// The index of the element in row-major order.
        element: usize,
        /// The expected value, within the tolerance.
        expected: f64,
        /// The actual value.
        got: f64,
    },
    /// Two kinds of backward pass have different bits.
    #[error("{layer}: {of}, element {element}: {fused:e} by backward, {split:e} by {way}")]
    Bits {
        /// The layer's name.
        layer: String,
        /// Name of the output or gradient.
        of: String,
        /// The index of the element in row-major order.
        element: usize,
        /// The other kind.
        way: &'static str,
        /// By `backward`.
        fused: f32,
        /// By the other kind.
        split: f32,
    },
}

/// The description of tensors.
pub(super) fn flows(tensors: &[Tensor]) -> Vec<Flow> {
    let flow = |tensor: &Tensor| Flow {
        shape: tensor.shape().clone(),
        dtype: tensor.dtype(),
    };
    tensors.iter().map(flow).collect()
}

/// The gradients that belong to a flow.
pub(super) fn gradients_like(flow: &[Flow]) -> Vec<Flow> {
    let floats = flow.iter().filter(|flow| flow.dtype.is_float());
    floats.cloned().collect()
}

/// An error unless the tensors have the described shapes and types.
pub(super) fn expect_flow(
    layer: &dyn Layer,
    call: &str,
    expected: &[Flow],
    tensors: &[Tensor],
) -> Result<()> {
    let got = flows(tensors);
    if got == expected {
        return Ok(());
    }
    let list = |flows: &[Flow]| {
        let flows: Vec<String> = flows.iter().map(ToString::to_string).collect();
        format!("[{}]", flows.join(", "))
    };
    Err(CheckError::Flow {
        layer: layer.name().to_owned(),
        call: call.to_owned(),
        expected: list(expected),
        got: list(&got),
    })
}

/// Values in −1..1 that are not small.
pub(super) fn random(device: &Device, flow: &Flow, name: &str) -> Result<Tensor> {
    let uniform = init_uniform(device, flow.shape.clone(), 1.0, 9, name)?.to_f32s()?;
    let values: Vec<f32> = uniform.iter().map(|x| x + 0.05f32.copysign(*x)).collect();
    let tensor = Tensor::from_f32(device, flow.shape.clone(), values)?;
    Ok(tensor.to_dtype(flow.dtype)?)
}

/// Random gradients of these outputs.
pub(super) fn random_gradients(device: &Device, outputs: &[Flow]) -> Result<Tensors> {
    let gradients = gradients_like(outputs).into_iter().enumerate();
    gradients
        .map(|(i, flow)| random(device, &flow, &format!("gradient {i}")))
        .collect()
}

/// The device of the tensors that a layer takes.
pub(super) fn device_of(layer: &dyn Layer, inputs: &Tensors) -> Result<Device> {
    match inputs.first() {
        Some(tensor) => Ok(tensor.device().clone()),
        None => Err(CheckError::Layer(Error::Input {
            layer: layer.name().to_owned(),
            expected: "one tensor or more to be checked with".into(),
            got: "nothing".into(),
        })),
    }
}

pub(super) fn saved(layer: &dyn Layer, cx: &PassContext, inputs: &Tensors) -> Result<Saved> {
    Ok(layer.forward(cx, inputs.clone())?.1)
}

pub(super) fn f64s(tensor: &Tensor) -> Result<Vec<f64>> {
    let values = tensor.to_f32s()?;
    Ok(values.iter().copied().map(f64::from).collect())
}

/// The gradient of one parameter.
pub(super) struct Gradient {
    pub(super) name: String,
    pub(super) values: Vec<f32>,
}

/// Takes the gradients of all parameters that have one, and begins the next mini-batch.
pub(super) fn take_gradients(layer: &mut dyn Layer) -> Result<Vec<Gradient>> {
    let mut gradients = Vec::new();
    try_params(layer, |param| {
        if !param.frozen {
            let values = param.grad()?.to_f32s();
            gradients.push(Gradient {
                values: values.map_err(Error::within(&param.name))?.to_vec(),
                name: param.name.clone(),
            });
        }
        param.zero_grad()
    })?;
    layer.begin_mini_batch()?;
    Ok(gradients)
}

/// Clears the gradients and the changes of an unfinished mini-batch.
pub(super) fn clean(layer: &mut dyn Layer) -> Result<()> {
    layer.begin_mini_batch()?;
    Ok(try_params(layer, |param| param.zero_grad())?)
}

/// The values as a tensor.
pub(super) fn tensor(device: &Device, shape: &Shape, values: &[f64]) -> Result<Tensor> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Ok(Tensor::from_f32(device, shape.clone(), values)?)
}
