//! The input of a step or an evaluation: one item per micro-batch.

use crate::executor::failure::PipelineError;
use crate::executor::loss_stage::LossStage;
use crate::executor::stage::{MicroBatch, Stage};

/// The data of one micro-batch.
#[derive(Clone, Debug)]
pub struct Item<F, G> {
    /// The index and the samples of the micro-batch.
    pub micro_batch: MicroBatch,
    /// The input of the first stage.
    pub input: F,
    /// The target of the loss stage.
    pub target: G,
}

/// The item of a pipeline of stages `S` with the loss stage `T`.
pub type ItemOf<S, T> = Item<<S as Stage>::Flow, <T as LossStage<<S as Stage>::Flow>>::Target>;

/// Refuses items that are not the micro-batches of one step, in order.
pub(crate) fn check_items<F, G>(batch: &[Item<F, G>], train: bool) -> Result<(), PipelineError> {
    let Some(first) = batch.first() else {
        return Err(PipelineError::Batch(
            "no items: give at least one micro-batch".into(),
        ));
    };
    for (position, item) in batch.iter().enumerate() {
        let m = &item.micro_batch;
        let message = if m.index != position {
            format!(
                "item {position} is micro-batch {}: give them in order from 0",
                m.index
            )
        } else if m.step != first.micro_batch.step {
            format!(
                "item {position} is of step {}, not {}",
                m.step, first.micro_batch.step
            )
        } else if m.train != train {
            let wanted = if train {
                "true in a step"
            } else {
                "false in a forward pass"
            };
            format!(
                "micro-batch {position} has train = {}: it must be {wanted}",
                m.train
            )
        } else {
            continue;
        };
        return Err(PipelineError::Batch(message));
    }
    Ok(())
}
