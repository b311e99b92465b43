//! Gradients of a stage by group of micro-batches: further sums beside those of the parameters.

use std::collections::{VecDeque, vec_deque};
use std::ops::Range;

use gpipe_layers::{Layer, Param};
use gpipe_sched::{GroupSums, Groups};
use gpipe_tensor::{Device, Tensor, ops};

use crate::{Error, Result};

/// The gradient of each parameter that has one, in layer order.
type Gradients = VecDeque<Tensor>;

/// The sums of a stage's gradients. The current one lies in the parameters, where layers add to it.
pub(crate) struct GroupGradients {
    groups: Groups,
    sums: GroupSums<Gradients>,
}

impl GroupGradients {
    pub(crate) fn new(groups: Groups) -> Self {
        Self {
            groups,
            sums: GroupSums::new(groups),
        }
    }

    /// Drops all sums but the current one, at the beginning of a step.
    pub(crate) fn clear(&mut self) {
        self.sums = GroupSums::new(self.groups);
    }

    /// Puts the sum of a micro-batch's group into the parameters.
    pub(crate) fn enter(
        &mut self,
        micro_batch: usize,
        layers: &mut [Box<dyn Layer>],
        device: &Device,
    ) -> Result<()> {
        self.sums.enter(micro_batch, |sum| {
            let mut sum = match sum {
                Some(sum) => sum,
                None => zeros(layers, device)?,
            };
            each(layers, |param| {
                // A frozen parameter has no gradient, and takes none out of the queue.
                if let Some(grad) = &mut param.grad
                    && let Some(other) = sum.pop_front()
                {
                    sum.push_back(std::mem::replace(grad, other));
                }
                Ok(())
            })?;
            Ok(sum)
        })
    }

    /// Adds to the sum in the parameters those that the micro-batch's group completes.
    pub(crate) fn leave(
        &mut self,
        micro_batch: usize,
        layers: &mut [Box<dyn Layer>],
    ) -> Result<()> {
        self.sums.leave(micro_batch, |mut other| {
            each(layers, |param| {
                if let Some(grad) = &mut param.grad
                    && let Some(other) = other.pop_front()
                {
                    ops::add_assign(grad, &other)?;
                }
                Ok(())
            })
        })
    }
}

/// The sums that a replica has at its end: of these groups, a tensor for each parameter that has a gradient; `None`
/// stands for those in the parameters.
pub(crate) type Parts<'a> = Vec<(Range<usize>, Option<vec_deque::Iter<'a, Tensor>>)>;

impl GroupGradients {
    /// Whether the next micro-batch is the last of this replica.
    pub(crate) fn is_last(&self) -> bool {
        self.sums.is_last()
    }

    /// Whether all micro-batches of this replica were added.
    pub(crate) fn is_complete(&self) -> bool {
        self.sums.is_complete()
    }

    /// What is to be summed over the replicas.
    pub(crate) fn parts(&self) -> Parts<'_> {
        let current = self.sums.current().map(|groups| (groups, None));
        let held = self.sums.held();
        let held = held.map(|(groups, sum)| (groups, Some(sum.iter())));
        current.into_iter().chain(held).collect()
    }
}

fn zeros(layers: &mut [Box<dyn Layer>], device: &Device) -> Result<Gradients> {
    let mut zeros = Gradients::new();
    each(layers, |param| {
        if let Some(grad) = &param.grad {
            zeros.push_back(Tensor::zeros(device, grad.shape().clone())?);
        }
        Ok(())
    })?;
    Ok(zeros)
}

fn each(
    layers: &mut [Box<dyn Layer>],
    mut visit: impl FnMut(&mut Param) -> Result<()>,
) -> Result<()> {
    let mut result = Ok::<(), Error>(());
    for layer in layers {
        layer.params(&mut |param| {
            if result.is_ok() {
                result = visit(param);
            }
        });
    }
    result
}
