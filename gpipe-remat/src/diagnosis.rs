//! Search for the origin of a NaN or infinity.
//!
//! A training loop checks the loss and the gradient norm of each step at no cost. If one of them is not
//! finite, [`first_non_finite`] runs the same batch again and checks the values of every layer. Values are a function of parameters, batch, seed and step, so the
//! second run meets the very value that spoiled the first, as long as no update came between.

use gpipe_sched::{ItemOf, LossStage, Pipeline, PipelineError};
use gpipe_tensor::Tensors;

use crate::stage::value_watch::{LOSS, Watch, first_in};
use crate::{Error, LayerStage, NonFinite, Pass, Value};

/// The name of what comes before the first layer.
const INPUT: &str = "input";

/// The first element of the inputs of a micro-batch that is not finite.
fn broken_input(inputs: &Tensors) -> crate::Result<Option<f32>> {
    for input in inputs.iter().filter(|input| input.dtype().is_float()) {
        if let Some(found) = first_in(input)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Runs `batch` again and finds the first value that is not finite. `None` if every value is finite and
/// only sums over layers are not, and over several ranks.
///
/// `batch` is that of the step whose loss or gradient norm was not finite, and parameters have not
/// changed since. Gradients are those of the batch afterwards, as after any step; what layers with
/// state of their own recorded is discarded, so that nothing of the batch is left in them.
///
/// # Errors
/// If a stage fails.
pub fn first_non_finite<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    batch: Vec<ItemOf<LayerStage, T>>,
) -> Result<Option<NonFinite>, PipelineError> {
    // What the stages saw stays on their ranks.
    if pipeline.world().is_some() {
        return Ok(None);
    }
    // An input that cannot be checked is taken for finite: the step itself says what is wrong.
    let inputs = batch.iter().map(|item| broken_input(&item.input).ok()?);
    let inputs: Vec<Option<f32>> = inputs.collect();
    let last = pipeline.schedule().stages() - 1;
    pipeline.each(move |index, stage| {
        stage.watch(Some(Watch::new(index == last)));
        Ok::<_, Error>(())
    })?;
    let ran = pipeline.step(batch);
    let of_stages = pipeline.gather(|_, stage| Ok::<_, Error>(stage.seen()));
    // The step is a diagnosis: nothing of it may be committed.
    pipeline.each(|_, stage| {
        stage.watch(None);
        stage.discard()
    })?;
    let of_loss = ran?.losses.into_iter().enumerate();
    let of_loss = of_loss.filter(|(_, loss)| !loss.is_finite());
    let of_loss = of_loss.map(|(micro_batch, loss)| NonFinite {
        micro_batch,
        layer: LOSS.into(),
        pass: Pass::Forward,
        value: Value::Output,
        found: loss as f32,
    });
    // Each part reports the first bad value of each micro-batch in its own order. A bad value
    // propagates through the loss and back within its micro-batch only, so the first part on the way
    // holds the origin.
    let mut down = of_stages?;
    let mut back: Vec<NonFinite> = Vec::new();
    for stage in down.iter_mut().rev() {
        let (of_back, of_down) = stage
            .drain(..)
            .partition(|found| found.pass == Pass::Backward);
        *stage = of_down;
        back.extend::<Vec<_>>(of_back);
    }
    let path = down.into_iter().flatten().chain(of_loss).chain(back);
    // The lowest micro-batch; of its values the first, since `min_by_key` returns the first minimum.
    let Some(first) = path.min_by_key(|found| found.micro_batch) else {
        return Ok(None);
    };
    if let Some(&Some(found)) = inputs.get(first.micro_batch) {
        return Ok(Some(NonFinite {
            micro_batch: first.micro_batch,
            layer: INPUT.into(),
            pass: Pass::Forward,
            value: Value::Input,
            found,
        }));
    }
    let name = first.layer.clone();
    let culprits = pipeline.gather(move |_, stage| stage.broken_parameter(&name))?;
    Ok(Some(match culprits.into_iter().flatten().next() {
        Some((parameter, found)) => NonFinite {
            value: Value::Parameter(parameter),
            found,
            ..first
        },
        None => first,
    }))
}
