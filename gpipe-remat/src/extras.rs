//! Tensors that a model returns beside its output, which the loss ignores.

use gpipe_tensor::{Device, Tensor, Tensors};

use crate::{Error, Result};

/// Receives a flow on `device`: the output, and the tensors behind it.
pub(crate) fn receive(flow: Tensors, device: &Device) -> Result<(Tensor, Tensors)> {
    let mut received = flow.into_iter().map(|tensor| tensor.receive(device));
    let output = received.next().ok_or_else(|| {
        Error::Assembly("the model returns no tensor: end it with one for the loss".into())
    })??;
    let extras = received.collect::<gpipe_tensor::Result<Tensors>>()?;
    Ok((output, extras))
}

/// The flow of gradients of an output and of extras, whose own are zero and written over them. It stays with the worker of
/// the last stage.
pub(crate) fn gradients(dy: Tensor, extras: Tensors, transit: &Device) -> Result<Tensors> {
    let mut gradients = Tensors::from_iter([dy.hold(transit)?]);
    let floats = extras.into_iter().filter(|extra| extra.dtype().is_float());
    for mut extra in floats {
        extra.fill(0.0)?;
        gradients.push(extra.hold(transit)?);
    }
    Ok(gradients)
}
