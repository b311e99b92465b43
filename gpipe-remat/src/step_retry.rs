//! A step that runs out of the memory that CUDA graphs take begins again without them.

use gpipe_sched::{ItemOf, LossStage, Outcome, Pipeline, PipelineError};
use gpipe_tensor::Tensors;

use crate::{Error, LayerStage};

/// [`Pipeline::step`] on `batch`. If it fails after a GPU ran out of memory of which arenas or graphs had some
/// ([`Device::is_short_by_graphs`](gpipe_tensor::Device::is_short_by_graphs)), it is made once more, without those, on the
/// batch that `again` returns, which is the same one. Parameters and the state of layers are those before the step until
/// then, so that the result has the same bits. Over several ranks a step is made once.
///
/// # Errors
/// As [`Pipeline::step`].
pub fn step_with_retry<T: LossStage<Tensors> + 'static, E>(
    pipeline: &mut Pipeline<LayerStage, T>,
    batch: Vec<ItemOf<LayerStage, T>>,
    again: impl FnOnce() -> Result<Vec<ItemOf<LayerStage, T>>, E>,
) -> Result<Outcome, PipelineError> {
    let failed = match pipeline.step(batch) {
        Err(failed) if pipeline.world().is_none() => failed,
        outcome => return outcome,
    };
    let is_short = pipeline.gather(|_, stage| Ok::<_, Error>(stage.device().is_short_by_graphs()));
    match is_short {
        Ok(is_short) if is_short.contains(&true) => match again() {
            Ok(batch) => pipeline.step(batch),
            Err(_) => Err(failed),
        },
        _ => Err(failed),
    }
}
