//! Passing a flow through a run of layers, down and back.

use gpipe_layers::{Layer, PassContext, Pending, Saved};
use gpipe_tensor::Tensors;

use super::value_watch::Look;
use crate::Result;

/// What one layer left behind on the way down.
pub(crate) struct Step {
    saved: Saved,
    /// How many tensors of the backward flow are its outputs' gradients; the rest pass by.
    gradients: usize,
}

/// What a run of layers hands on.
pub(crate) struct Passed {
    pub(crate) flow: Tensors,
    /// How many tensors of the run's input some layer of it took, from the first. The others passed
    /// by, and are the last of `flow`.
    pub(crate) taken: usize,
}

/// Sends `x` down the layers, handing `keep` what each of them saves.
pub(crate) fn forward(
    layers: &[Box<dyn Layer>],
    cx: &PassContext,
    mut x: Tensors,
    look: Option<Look>,
    mut keep: impl FnMut(Step),
) -> Result<Passed> {
    let inputs = x.len();
    let mut untouched = inputs;
    for (index, layer) in layers.iter().enumerate() {
        let passing: Tensors = x.drain(layer.arity().min(x.len())..).collect();
        untouched = untouched.min(passing.len());
        let (mut y, saved) = layer.forward(cx, x)?;
        if let Some(look) = look {
            look.outputs(index, layer.as_ref(), &y)?;
        }
        keep(Step {
            saved,
            gradients: y.iter().filter(|tensor| tensor.dtype().is_float()).count(),
        });
        y.extend(passing);
        x = y;
    }
    Ok(Passed {
        flow: x,
        taken: inputs - untouched,
    })
}

/// Sends `dy` back through the layers. `back` takes one layer, what it saved and the gradients of
/// its outputs, and gives the gradients of its inputs.
pub(crate) fn backward<'a>(
    layers: impl DoubleEndedIterator<Item = &'a mut Box<dyn Layer>>,
    steps: Vec<Step>,
    mut dy: Tensors,
    look: Option<Look>,
    mut back: impl FnMut(&mut dyn Layer, Saved, Tensors) -> Result<Tensors>,
) -> Result<Tensors> {
    for (layer, (index, step)) in layers.rev().zip(steps.into_iter().enumerate().rev()) {
        let passing: Tensors = dy.drain(step.gradients.min(dy.len())..).collect();
        let mut dx = back(layer.as_mut(), step.saved, dy)?;
        if let Some(look) = look {
            look.input_gradients(index, layer.as_ref(), &dx)?;
            look.gradients(index, layer.as_mut())?;
        }
        dx.extend(passing);
        dy = dx;
    }
    Ok(dy)
}

/// Adds the weight gradients of a run, whose layers left `pending` from the last to the first.
pub(crate) fn weight_grad<'a>(
    layers: impl DoubleEndedIterator<Item = &'a mut Box<dyn Layer>>,
    pending: Vec<Pending>,
    look: Option<Look>,
) -> Result<()> {
    let places = (0..pending.len()).rev();
    for ((layer, index), pending) in layers.rev().zip(places).zip(pending) {
        layer.weight_grad(pending)?;
        if let Some(look) = look {
            look.gradients(index, layer.as_mut())?;
        }
    }
    Ok(())
}
