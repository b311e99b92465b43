//! Forward and backward passes of a flow through a run of layers.

use gpipe_layers::{Layer, PassContext, Pending, Saved};
use gpipe_tensor::Tensors;

use super::value_watch::Look;
use crate::Result;
use crate::reach::{LayerPlaces, Reach};

/// The result of one layer's forward pass that its backward pass needs.
pub(crate) struct Step {
    saved: Saved,
    /// How many tensors of the backward flow are its outputs' gradients; the rest pass by.
    gradients: usize,
}

/// The output of a run of layers.
pub(crate) struct Passed {
    pub(crate) flow: Tensors,
    /// The tensors of the run's input that its layers touched.
    pub(crate) reach: Reach,
    /// How many tensors of the backward flow are gradients of the last layer's outputs.
    pub(crate) gradients: usize,
}

/// Computes the forward pass of the layers; `keep` receives the saved tensors of each.
pub(crate) fn forward(
    layers: &[Box<dyn Layer>],
    cx: &PassContext,
    mut x: Tensors,
    look: Option<Look>,
    mut keep: impl FnMut(Step),
) -> Result<Passed> {
    let mut reach = Reach::new(x.len());
    let mut gradients = 0;
    for (index, layer) in layers.iter().enumerate() {
        let places = LayerPlaces::of(layer.as_ref());
        let passing: Tensors = x.drain(places.arity.min(x.len())..).collect();
        let (mut y, saved) = layer.forward(cx, x)?;
        if let Some(look) = look {
            look.outputs(index, layer.as_ref(), &y)?;
        }
        reach.pass(&places, y.len());
        gradients = y.iter().filter(|tensor| tensor.dtype().is_float()).count();
        keep(Step { saved, gradients });
        y.extend(passing);
        x = y;
    }
    Ok(Passed {
        flow: x,
        reach,
        gradients,
    })
}

/// Computes again what the backward pass of the layers needs, and no outputs, which nothing does. `gradients` is that of
/// [`Passed`].
pub(crate) fn recompute(
    layers: &[Box<dyn Layer>],
    cx: &PassContext,
    x: Tensors,
    gradients: usize,
) -> Result<Vec<Step>> {
    let mut steps = Vec::with_capacity(layers.len());
    if let Some((last, before)) = layers.split_last() {
        let mut x = forward(before, cx, x, None, |step| steps.push(step))?.flow;
        x.truncate(last.arity());
        let saved = last.recompute(cx, x)?;
        steps.push(Step { saved, gradients });
    }
    Ok(steps)
}

/// Computes the backward pass of the layers. `back` takes one layer, its saved tensors and the gradients
/// of its outputs, and returns the gradients of its inputs.
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

/// Computes the weight gradients of a run; `pending` is ordered from the last layer to the first.
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
