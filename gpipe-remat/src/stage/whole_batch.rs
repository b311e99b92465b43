//! Layers before the pipeline: the first layers of the first stage, which run once on the samples of all
//! micro-batches of a group.

use gpipe_layers::{Layer, PassContext};
use gpipe_sched::{Groups, MicroBatch};
use gpipe_tensor::{Device, Tensor, Tensors, ops};

use super::group_gradients::GroupGradients;
use super::run::{self, Step};
use super::value_watch::Look;
use crate::{Error, Result, micro_batches};

/// What the layers before the pipeline hold between their forward and their backward pass.
pub(crate) struct WholeBatch {
    groups: Groups,
    /// The first layer with a backward pass.
    trained: usize,
    /// The sums of their gradients by group, each of which adds to them once.
    gradients: GroupGradients,
    /// By group; `None` before its first and after its last micro-batch.
    passes: Vec<Option<GroupPass>>,
}

/// The pass of a group.
struct GroupPass {
    outputs: Tensors,
    steps: Vec<Step>,
    /// dY of each micro-batch of the group whose backward pass has run.
    gradients: Vec<Option<Tensors>>,
}

impl WholeBatch {
    /// Layers of which those before `trained` have no backward pass.
    pub(crate) fn new(groups: Groups, trained: usize) -> Self {
        Self {
            groups,
            trained,
            gradients: GroupGradients::new(groups.whole()),
            passes: Vec::new(),
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.passes.clear();
        self.gradients.clear();
    }

    /// The sums of their gradients.
    pub(crate) fn gradients(&self) -> &GroupGradients {
        &self.gradients
    }

    /// The place of a micro-batch in its group, and the size of that.
    fn place(&self, m: &MicroBatch) -> (usize, usize, usize) {
        let group = self.groups.of(m.index);
        let members = self.groups.micro_batches(group);
        (group, m.index - members.start, members.len())
    }

    /// The outputs of `layers` for a micro-batch, as views. The first micro-batch of a group computes those of
    /// the whole group from `x`, the inputs of the group; others drop theirs.
    pub(crate) fn forward(
        &mut self,
        layers: &[Box<dyn Layer>],
        cx: &PassContext,
        m: &MicroBatch,
        x: Tensors,
        device: &Device,
        look: Option<Look>,
    ) -> Result<Tensors> {
        let (group, place, members) = self.place(m);
        let samples = x.first().map_or(0, |x| x.shape().rows());
        let rows = micro_batches(samples, members)?.swap_remove(place);
        if rows.len() as u64 != m.samples.end - m.samples.start {
            return Err(Error::Assembly(format!(
                "inputs of {samples} samples for a group of {members} micro-batches, one of them of {}: layers \
                 before the pipeline take those of the whole group (`group_items`)",
                m.samples.end - m.samples.start
            )));
        }
        if self.passes.len() <= group {
            self.passes.resize_with(group + 1, || None);
        }
        let pass = match &mut self.passes[group] {
            Some(pass) => pass,
            begun @ None => {
                let start = m.samples.start.saturating_sub(rows.start as u64);
                let samples = start..start + samples as u64;
                let cx = PassContext::new(cx.seed, cx.step, samples, cx.train);
                let x = x.into_iter().map(|x| x.receive(device));
                let x = x.collect::<gpipe_tensor::Result<Tensors>>()?;
                let trained = self.trained.min(layers.len());
                let mut steps = Vec::with_capacity(layers.len() - trained);
                let (frozen, layers) = layers.split_at(trained);
                let passed = run::forward(frozen, &cx, x, look, drop)?;
                let look = look.map(|look| look.behind(trained));
                let keep = |step| steps.push(step);
                let passed = run::forward(layers, &cx, passed.flow, look, keep)?;
                begun.insert(GroupPass {
                    outputs: passed.flow,
                    steps,
                    gradients: (0..members).map(|_| None).collect(),
                })
            }
        };
        let views = pass.outputs.iter().map(|y| Ok(y.rows(rows.clone())?));
        views.collect()
    }

    /// Takes dY of a micro-batch, if the outputs are owed gradients. The last one of a group runs the backward pass of
    /// the group.
    pub(crate) fn backward(
        &mut self,
        layers: &mut [Box<dyn Layer>],
        m: &MicroBatch,
        dy: Tensors,
        device: &Device,
        look: Option<Look>,
    ) -> Result<()> {
        let (group, place, _) = self.place(m);
        let missing = || Error::Assembly("a backward pass before the forward pass".into());
        let slot = self.passes.get_mut(group).ok_or_else(missing)?;
        let pass = slot.as_mut().ok_or_else(missing)?;
        let has_backward = self.trained < layers.len();
        pass.gradients[place] = Some(if has_backward { dy } else { Tensors::new() });
        if pass.gradients.iter().any(Option::is_none) {
            return Ok(());
        }
        let Some(GroupPass {
            outputs,
            steps,
            gradients,
        }) = slot.take()
        else {
            return Err(missing());
        };
        if !has_backward {
            return Ok(());
        }
        let floats = outputs.iter().filter(|y| y.dtype().is_float());
        let shapes: Vec<_> = floats.map(|y| y.shape().clone()).collect();
        drop(outputs);
        let mut gradients: Vec<Tensors> = gradients.into_iter().flatten().collect();
        let dy = match gradients.len() {
            1 => gradients.swap_remove(0),
            _ => {
                let whole = shapes.into_iter().enumerate().map(|(place, shape)| {
                    let rows = gradients.iter().map(|dy| &dy[place]);
                    let rows = rows.map(|dy| dy.reshape([1, dy.elements()]));
                    let rows = rows.collect::<gpipe_tensor::Result<Vec<Tensor>>>()?;
                    let whole = ops::concat(&rows.iter().collect::<Vec<_>>())?;
                    Ok::<_, Error>(whole.reshape(shape)?)
                });
                whole.collect::<Result<Tensors>>()?
            }
        };
        drop(gradients);
        let number = group - self.groups.own().start;
        self.gradients.enter(number, layers, device)?;
        let trained = &mut layers[self.trained..];
        let look = look.map(|look| look.behind(self.trained));
        let mut place = trained.len();
        run::backward(trained.iter_mut(), steps, dy, look, |layer, saved, dy| {
            place -= 1;
            if place > 0 {
                return Ok(layer.backward(saved, dy)?);
            }
            // The gradient of the first one's input is not needed.
            let pending = layer.param_only_grad(saved, dy)?;
            layer.weight_grad(pending)?;
            Ok(Tensors::new())
        })?;
        self.gradients.leave(number, layers)
    }
}
