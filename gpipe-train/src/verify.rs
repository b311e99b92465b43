//! Verification that stages, schedule, rematerialization and threads of a configuration leave the
//! results of training unchanged, bit for bit.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use gpipe_data::Dataset;
use gpipe_remat::WireCodec;
use gpipe_sched::{Action, Op, Schedule, World};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::launch::{check_alike, check_replicas, check_same_files};
use crate::setup::Setup;
use crate::training_loop::{Recipe, train};

/// A comparison of a configuration with the same training in one stage on one thread, without
/// rematerialization.
#[derive(Debug)]
pub struct Verification<'a> {
    config: &'a TrainConfig,
    setup: Setup,
    single: TrainConfig,
    single_schedule: Schedule,
    world: Option<Arc<World>>,
}

/// The result of a [`Verification`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The number of compared parameters; tied ones count at each place.
    pub parameters: usize,
    /// The first difference in losses, gradient norms or parameters; `None` if all bits are equal.
    pub difference: Option<String>,
}

impl<'a> Verification<'a> {
    /// Sets up both runs and checks their memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::Input`] if either cannot be run on this machine, or if the stages of
    /// the schedule add up gradients in different orders.
    pub fn new(config: &'a TrainConfig) -> Result<Self> {
        Self::over(config, None)
    }

    /// [`new`](Self::new) over the ranks of a world, if there is one: rank 0 compares.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(config: &'a TrainConfig, world: Option<Arc<World>>) -> Result<Self> {
        check_replicas(world.as_deref(), config)?;
        let mut single = config.clone();
        single.pipeline = config.pipeline.single().map_err(Error::invalid)?;
        let setup = Setup::over(config, world.as_ref())?;
        setup.check_memory(config)?;
        let replicas = 0..config.pipeline.replicas.get();
        let schedules = replicas.map(|replica| match replica == setup.table.groups().replica() {
            true => Ok(setup.schedule.clone()),
            false => Ok(Setup::with_schedule(config, None, replica)?.schedule),
        });
        let single_schedule = in_one_stage(&schedules.collect::<Result<Vec<_>>>()?)?;
        Setup::with_schedule(&single, Some(single_schedule.clone()), 0)?.check_memory(&single)?;
        Ok(Self {
            config,
            setup,
            single,
            single_schedule,
            world,
        })
    }

    /// Whether the schedule adds up gradients in ascending order of micro-batches.
    pub fn is_ascending(&self) -> bool {
        self.setup.schedule.is_ascending()
    }

    /// Trains `steps` steps in one stage and as configured, and compares losses, gradient norms and
    /// parameters. `between` is called between the two runs.
    ///
    /// # Errors
    /// Failures of a run.
    pub fn run(self, dataset: &Dataset, steps: u64, between: impl FnOnce()) -> Result<Verdict> {
        if let Some(world) = &self.world {
            check_alike(world, self.config)?;
            check_same_files(world, dataset, None)?;
        }
        if self.world.as_ref().is_some_and(|world| world.rank() > 0) {
            outcome(self.setup, self.config, dataset, steps)?;
            return Ok(Verdict {
                parameters: 0,
                difference: None,
            });
        }
        let single = Setup::with_schedule(&self.single, Some(self.single_schedule), 0)?;
        let expected = outcome(single, &self.single, dataset, steps)?;
        between();
        let got = outcome(self.setup, self.config, dataset, steps)?;
        Ok(Verdict {
            parameters: expected.values.len(),
            difference: first_difference(&expected, &got),
        })
    }
}

/// The compared results of a run, as bits, so that NaN equals itself.
struct Outcome {
    losses: Vec<u64>,
    grad_norms: Vec<u64>,
    /// The values of every place of every parameter, by name.
    values: BTreeMap<String, Vec<u32>>,
}

/// A single-stage schedule that adds up gradients in the same order as the schedules of all replicas, since
/// floating-point sums depend on the order.
fn in_one_stage(replicas: &[Schedule]) -> Result<Schedule> {
    let (mut micro_batches, mut first) = (0, Vec::new());
    for schedule in replicas {
        let order = |stage| {
            let adds = schedule.of_stage(stage).filter(|a| a.op.adds_gradient());
            adds.map(|action| micro_batches + action.micro_batch)
                .collect::<Vec<_>>()
        };
        let own = order(0);
        if let Some(other) = (1..schedule.stages()).find(|&stage| order(stage) != own) {
            return Err(Error::invalid(format!(
                "stages 0 and {other} of this schedule add up gradients in different orders, so \
                 no single stage gives the same bits"
            )));
        }
        first.extend(own);
        micro_batches += schedule.micro_batches();
    }
    let forward = (0..micro_batches).map(|m| Action::new(0, Op::Forward, m));
    let backward = first.iter().map(|&m| Action::new(0, Op::Backward, m));
    let lane = forward.chain(backward).collect();
    Schedule::new(vec![0], micro_batches, vec![lane]).map_err(Error::input)
}

fn outcome(
    mut setup: Setup,
    config: &TrainConfig,
    dataset: &Dataset,
    steps: u64,
) -> Result<Outcome> {
    setup.open_weights(config)?;
    let recipe = Recipe {
        config,
        dataset,
        optimizer: setup.optimizer.clone(),
        learning_rate: setup.learning_rate.clone(),
    };
    let mut assembled = setup.assemble(config)?;
    let (mut losses, mut grad_norms) = (Vec::new(), Vec::new());
    train(&recipe, &mut assembled, 0..steps, |_, _, step| {
        losses.push(step.loss.to_bits());
        grad_norms.push(step.grad_norm.to_bits());
        Ok::<_, Error>(ControlFlow::Continue(()))
    })?;
    let codec = WireCodec::of(&assembled.pipeline);
    let values = assembled.pipeline.gather_at_root(&codec, |_, stage| {
        let mut values = Vec::new();
        let mut result = Ok(());
        stage.params(|param| {
            match param
                .exact()
                .map(|value| value.to_f32s().map(|values| bits(&values)))
            {
                Ok(Ok(bits)) => {
                    let place = if param.tied { " where it is tied" } else { "" };
                    values.push((format!("{}{place}", param.name), bits));
                }
                Ok(Err(error)) => result = Err(gpipe_remat::Error::from(error)),
                Err(error) => result = Err(error.into()),
            }
        });
        result.map(|()| values)
    });
    let values = values.map_err(Error::run)?.into_iter().flatten().collect();
    Ok(Outcome {
        losses,
        grad_norms,
        values,
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The first difference: losses and gradient norms by step, then parameters by name.
fn first_difference(expected: &Outcome, got: &Outcome) -> Option<String> {
    for (index, (left, right)) in expected.losses.iter().zip(&got.losses).enumerate() {
        let [norm_left, norm_right] = [expected.grad_norms[index], got.grad_norms[index]];
        for (what, left, right) in [
            ("loss", *left, *right),
            ("gradient norm", norm_left, norm_right),
        ] {
            if left != right {
                let (left, right) = (f64::from_bits(left), f64::from_bits(right));
                return Some(format!(
                    "{what} of step {}: {left:?} in one stage, {right:?} as configured",
                    index + 1
                ));
            }
        }
    }
    if let Some(name) = expected
        .values
        .keys()
        .find(|&name| !got.values.contains_key(name))
    {
        return Some(format!("parameter {name} is missing as configured"));
    }
    for (name, right) in &got.values {
        let Some(left) = expected.values.get(name) else {
            return Some(format!("parameter {name} is missing in one stage"));
        };
        if left.len() != right.len() {
            return Some(format!(
                "parameter {name}: {} elements in one stage, {} as configured",
                left.len(),
                right.len()
            ));
        }
        if let Some(place) = left
            .iter()
            .zip(right)
            .position(|(left, right)| left != right)
        {
            let (left, right) = (f32::from_bits(left[place]), f32::from_bits(right[place]));
            return Some(format!(
                "parameter {name}, element {place}: {left:?} in one stage, {right:?} as configured"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            losses: vec![1.5f64.to_bits(), 1.25f64.to_bits()],
            grad_norms: vec![2f64.to_bits(); 2],
            values: BTreeMap::from([("w".to_owned(), bits(&[1.0, 2.0]))]),
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(first_difference(&outcome(), &outcome()), None);
        let with = |change: fn(&mut Outcome)| {
            let mut changed = outcome();
            change(&mut changed);
            first_difference(&outcome(), &changed).expect("a difference")
        };
        let loss = with(|outcome| outcome.losses[1] += 1);
        assert_eq!(
            loss,
            "loss of step 2: 1.25 in one stage, 1.2500000000000002 as configured"
        );
        assert!(with(|outcome| outcome.grad_norms[0] += 1).starts_with("gradient norm of step 1"));
        let value =
            with(|outcome| outcome.values = BTreeMap::from([("w".to_owned(), bits(&[1.0, -2.0]))]));
        assert_eq!(
            value,
            "parameter w, element 1: 2.0 in one stage, -2.0 as configured"
        );
        let shape =
            with(|outcome| outcome.values = BTreeMap::from([("w".to_owned(), bits(&[1.0]))]));
        assert!(
            shape.contains("2 elements in one stage, 1 as configured"),
            "{shape}"
        );
        assert!(with(|outcome| outcome.values.clear()).contains("missing as configured"));
        let more = with(|outcome| drop(outcome.values.insert("b".to_owned(), Vec::new())));
        assert_eq!(more, "parameter b is missing in one stage");
    }
}
