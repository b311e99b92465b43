//! Gradients of a stage by group of micro-batches: further sums beside those of the parameters.

use std::collections::{VecDeque, vec_deque};
use std::ops::Range;

use gpipe_layers::{Kind, Layer, try_params};
use gpipe_sched::{GroupSums, Groups};
use gpipe_tensor::{Device, Tensor, ops};

use super::statistics::Statistics;
use crate::{Error, Result};

/// A sum that is not the current one.
#[derive(Default)]
struct Sum {
    /// The gradient of each parameter that has one, in layer order.
    gradients: VecDeque<Tensor>,
    /// The rows that statistics are of, in layer order.
    rows: Vec<u64>,
}

/// The sums of a stage's gradients. The current one lies in the parameters, where layers add to it.
pub(crate) struct GroupGradients {
    groups: Groups,
    sums: GroupSums<Sum>,
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
                None => Sum::zeros(layers, device)?,
            };
            let mut rows = sum.rows.iter_mut();
            for layer in layers {
                layer.params(&mut |param| {
                    // A frozen parameter has no gradient, and takes none out of the queue.
                    if let Some(grad) = &mut param.grad
                        && let Some(other) = sum.gradients.pop_front()
                    {
                        sum.gradients.push_back(std::mem::replace(grad, other));
                    }
                });
                layer.merged_rows(&mut |count| {
                    if let Some(other) = rows.next() {
                        std::mem::swap(count, other);
                    }
                });
            }
            Ok(sum)
        })
    }

    /// Adds to the sum in the parameters those that the micro-batch's group completes.
    pub(crate) fn leave(
        &mut self,
        micro_batch: usize,
        layers: &mut [Box<dyn Layer>],
    ) -> Result<()> {
        self.sums.leave(micro_batch, |mut other, is_later| {
            let mut rows = other.rows.into_iter();
            for layer in &mut *layers {
                let mut pairs = 0;
                layer.merged_rows(&mut |_| pairs += 1);
                let mut of_layer = Statistics {
                    rows: rows.by_ref().take(pairs).collect(),
                    values: Vec::new(),
                };
                try_params(layer.as_mut(), |param| {
                    if param.frozen {
                        return Ok(());
                    }
                    let Some(other) = other.gradients.pop_front() else {
                        return Ok(());
                    };
                    match &mut param.grad {
                        Some(_) if pairs > 0 && param.kind == Kind::Statistic => {
                            of_layer.values.push(other);
                            Ok(())
                        }
                        Some(grad) => ops::add_assign(grad, &other),
                        None => Ok(()),
                    }
                })?;
                let mut own = Statistics::take(layer.as_mut());
                let merged = match is_later {
                    true => own.merge(&of_layer),
                    false => {
                        let merged = of_layer.merge(&own);
                        if merged.is_ok() {
                            std::mem::swap(&mut own, &mut of_layer);
                        }
                        merged
                    }
                };
                // Back in the layer after an error too: the next step needs the tensors.
                own.put(layer.as_mut());
                merged?;
            }
            Ok(())
        })
    }
}

/// The sums that a replica has at its end: of these groups, a tensor for each parameter that has a gradient, and the rows
/// that statistics are of; `None` stands for those in the layers.
pub(crate) type Parts<'a> = Vec<(Range<usize>, Option<Held<'a>>)>;

/// A sum that is not in the layers, in layer order.
pub(crate) struct Held<'a> {
    pub gradients: vec_deque::Iter<'a, Tensor>,
    pub rows: std::slice::Iter<'a, u64>,
}

/// The sums of all layers of a stage.
pub(crate) struct StageSums<'a> {
    /// Number of layers before the pipeline, whose sums are others.
    before: usize,
    of_before: Parts<'a>,
    others: Parts<'a>,
}

impl<'a> StageSums<'a> {
    pub(crate) fn new(
        before: usize,
        of_before: &'a GroupGradients,
        others: &'a GroupGradients,
    ) -> Self {
        Self {
            before,
            of_before: of_before.parts(),
            others: others.parts(),
        }
    }

    /// Those that the layer at this place is among; layers take theirs in order.
    pub(crate) fn of(&mut self, place: usize) -> &mut Parts<'a> {
        match place < self.before {
            true => &mut self.of_before,
            false => &mut self.others,
        }
    }
}

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
        let held = held.map(|(groups, sum)| {
            let held = Held {
                gradients: sum.gradients.iter(),
                rows: sum.rows.iter(),
            };
            (groups, Some(held))
        });
        current.into_iter().chain(held).collect()
    }
}

impl Sum {
    fn zeros(layers: &mut [Box<dyn Layer>], device: &Device) -> Result<Self> {
        let mut sum = Self::default();
        for layer in layers {
            try_params(layer.as_mut(), |param| {
                if let Some(grad) = &param.grad {
                    let zeros = Tensor::zeros(device, grad.shape().clone())?;
                    sum.gradients.push_back(zeros);
                }
                Ok::<_, Error>(())
            })?;
            layer.merged_rows(&mut |_| sum.rows.push(0));
        }
        Ok(sum)
    }
}
