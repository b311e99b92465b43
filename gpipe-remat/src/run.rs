//! Passing a flow through a run of layers, down and back.

use gpipe_layers::{Cx, Layer, Pending, Saved};
use gpipe_tensor::Tensors;

use crate::Result;

/// What one layer left behind on the way down.
pub(crate) struct Step {
    saved: Saved,
    /// How many tensors of the backward flow are its outputs' gradients; the rest pass by.
    gradients: usize,
}

/// Sends `x` down the layers, handing `keep` what each of them saves.
pub(crate) fn forward(
    layers: &[Box<dyn Layer>],
    cx: &Cx,
    mut x: Tensors,
    mut keep: impl FnMut(Step),
) -> Result<Tensors> {
    for layer in layers {
        let passing: Tensors = x.drain(layer.arity().min(x.len())..).collect();
        let (mut y, saved) = layer.forward(cx, x)?;
        keep(Step {
            saved,
            gradients: y.iter().filter(|tensor| tensor.dtype().is_float()).count(),
        });
        y.extend(passing);
        x = y;
    }
    Ok(x)
}

/// Sends `dy` back through the layers. `back` takes one layer, what it saved and the gradients of
/// its outputs, and gives the gradients of its inputs.
pub(crate) fn backward<'a>(
    layers: impl DoubleEndedIterator<Item = &'a mut Box<dyn Layer>>,
    steps: Vec<Step>,
    mut dy: Tensors,
    mut back: impl FnMut(&mut dyn Layer, Saved, Tensors) -> Result<Tensors>,
) -> Result<Tensors> {
    for (layer, step) in layers.rev().zip(steps.into_iter().rev()) {
        let passing: Tensors = dy.drain(step.gradients.min(dy.len())..).collect();
        let mut dx = back(layer.as_mut(), step.saved, dy)?;
        dx.extend(passing);
        dy = dx;
    }
    Ok(dy)
}

/// Adds the weight gradients of a run, whose layers left `pending` from the last to the first.
pub(crate) fn weight_grad<'a>(
    layers: impl DoubleEndedIterator<Item = &'a mut Box<dyn Layer>>,
    pending: Vec<Pending>,
) -> Result<()> {
    for (layer, pending) in layers.rev().zip(pending) {
        layer.weight_grad(pending)?;
    }
    Ok(())
}
