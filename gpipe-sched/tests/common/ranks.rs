//! Toy pipelines over ranks that are threads of one process.

use std::sync::Arc;

use gpipe_sched::{Codec, Pipeline, PipelineError, Reader, Route, Schedule, World, Writer};

use super::{Difference, Failure, Plan, Toy, ToyPipeline, batch, sequential};

/// A flow of one number.
pub struct Numbers;

impl Codec<i64> for Numbers {
    fn pack(&self, value: i64, out: &mut Writer) -> Result<(), String> {
        out.bits(value.cast_unsigned());
        // As the content of a tensor would.
        out.body(value.to_le_bytes().to_vec());
        Ok(())
    }

    fn unpack(&self, from: &mut Reader) -> Result<i64, String> {
        let value = from.bits()?.cast_signed();
        match from.body()? == value.to_le_bytes() {
            true => Ok(value),
            false => Err("two halves that differ".to_owned()),
        }
    }

    fn pack_flow(&self, value: i64, route: Route, out: &mut Writer) -> Result<(), String> {
        out.number(route.from);
        out.number(route.to);
        self.pack(value, out)
    }

    fn unpack_flow(&self, route: Route, from: &mut Reader) -> Result<i64, String> {
        match (from.number()?, from.number()?) == (route.from, route.to) {
            true => self.unpack(from),
            false => Err(format!("a flow of other workers than {route:?}")),
        }
    }
}

/// This rank's part of a pipeline whose devices are dealt out to the ranks in turn.
pub fn join(
    schedule: Schedule,
    plan: &Plan,
    world: &Arc<World>,
) -> Result<ToyPipeline, PipelineError> {
    let ranks = world.ranks();
    let rank_of = (0..schedule.devices()).map(|device| device % ranks);
    let (of_stages, of_loss) = (plan.clone(), plan.clone());
    Pipeline::join(
        schedule,
        world,
        1,
        rank_of.collect(),
        Arc::new(Numbers),
        move |stage| Ok::<_, Failure>(Toy::new(stage, of_stages.clone())),
        move || Ok::<_, Failure>(Difference::new(of_loss)),
    )
}

/// One step, whose results are those of a loop on every rank.
pub fn step(pipeline: &mut ToyPipeline, step: u64) -> Result<(), PipelineError> {
    let (stages, micro_batches) = {
        let schedule = pipeline.schedule();
        (schedule.stages(), schedule.micro_batches())
    };
    let outcome = pipeline.step(batch(step, micro_batches, true))?;
    let gradients = pipeline.gather_across(&Numbers, |_, toy| Ok::<_, Failure>(toy.gradient))?;
    let actions = outcome.timeline.spans().len();
    assert_eq!(
        actions,
        pipeline.schedule().lanes().iter().flatten().count()
    );
    assert_eq!(
        (outcome.losses, gradients),
        sequential(step, stages, micro_batches)
    );
    Ok(())
}
