//! A pipeline of integer arithmetic: exact, and sensitive to the order of all operations.

pub mod faulty;
pub mod ranks;
pub mod replicas;

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use gpipe_sched::{
    Action, Item, LossStage, MicroBatch, Op, Part, Pipeline, PipelineError, Place, Schedule, Stage,
};

/// A planned failure of a stage or the loss stage, and where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    Error,
    Panic,
    /// Does not return while it is planned.
    Stall,
}

/// Faults planted in the test's own stages, which the tests of failures must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A failure is not returned.
    Silent,
    /// A failure names a wrong place.
    Misplaced,
    /// State of a failed step remains in the next.
    Unclean,
    /// A failure blocks forever.
    Stuck,
}

impl Planted {
    pub const ALL: [Self; 4] = [Self::Silent, Self::Misplaced, Self::Unclean, Self::Stuck];
}

/// Planned failures, shared by all stages of a pipeline.
#[derive(Clone, Default)]
pub struct Plan(Arc<Mutex<Vec<(Place, Trouble)>>>, Option<Planted>);

impl Plan {
    /// A plan of stages with a fault.
    pub fn faulty(planted: Option<Planted>) -> Self {
        Self(Arc::default(), planted)
    }

    pub fn set(&self, troubles: impl IntoIterator<Item = (Place, Trouble)>) {
        *self.0.lock().unwrap() = troubles.into_iter().collect();
    }

    fn planned(&self, place: Place) -> Option<(Place, Trouble)> {
        let plan = self.0.lock().unwrap();
        plan.iter().copied().find(|(there, _)| *there == place)
    }

    pub fn pass(&self, place: Place) -> Result<(), Failure> {
        match self.planned(place) {
            Some(_) if self.1 == Some(Planted::Silent) => Ok(()),
            Some(_) if self.1 == Some(Planted::Misplaced) => {
                Err(Failure(Place::Loss { micro_batch: 99 }))
            }
            Some(_) if self.1 == Some(Planted::Stuck) => loop {
                std::thread::park();
            },
            Some((_, Trouble::Error)) => Err(Failure(place)),
            Some((_, Trouble::Panic)) => panic!("panic at {place}"),
            Some((_, Trouble::Stall)) => {
                while self.planned(place).is_some() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("error at {0}")]
pub struct Failure(pub Place);

/// `y = factor · x + 1`; the gradient is a polynomial in the order of its contributions.
pub struct Toy {
    index: usize,
    factor: i64,
    pub gradient: i64,
    inputs: Vec<Option<i64>>,
    pending: Vec<Option<i64>>,
    plan: Plan,
    /// Not `Send`: a stage never leaves its thread.
    _bound: PhantomData<Rc<()>>,
}

fn factor(stage: usize) -> i64 {
    2 * stage as i64 + 3
}

fn add(gradient: i64, contribution: i64) -> i64 {
    gradient.wrapping_mul(31).wrapping_add(contribution)
}

fn forward(factor: i64, x: i64) -> i64 {
    x.wrapping_mul(factor).wrapping_add(1)
}

fn put(list: &mut Vec<Option<i64>>, index: usize, value: i64) {
    list.resize(list.len().max(index + 1), None);
    assert_eq!(
        list[index].replace(value),
        None,
        "micro-batch {index} came twice"
    );
}

impl Toy {
    pub fn new(index: usize, plan: Plan) -> Self {
        let (inputs, pending) = (Vec::new(), Vec::new());
        Self {
            index,
            factor: factor(index),
            gradient: 0,
            inputs,
            pending,
            plan,
            _bound: PhantomData,
        }
    }

    fn pass(&self, op: Op, m: &MicroBatch) -> Result<(), Failure> {
        self.plan
            .pass(Place::Action(Action::new(self.index, op, m.index)))
    }

    fn input_grad_of(&mut self, m: &MicroBatch, dy: i64) -> Option<i64> {
        let x = self.inputs[m.index].take().expect("a forward pass");
        put(&mut self.pending, m.index, x.wrapping_mul(dy));
        (self.index > 0).then(|| dy.wrapping_mul(self.factor))
    }

    fn weight_grad_of(&mut self, m: &MicroBatch) {
        let pending = self.pending[m.index].take().expect("an input gradient");
        self.gradient = add(self.gradient, pending);
    }
}

impl Stage for Toy {
    type Flow = i64;
    type Error = Failure;

    fn begin(&mut self, _step: u64) -> Result<(), Failure> {
        if self.plan.1 != Some(Planted::Unclean) {
            self.inputs.clear();
            self.pending.clear();
            self.gradient = 0;
        }
        self.plan.pass(Place::Begin(Part::Stage(self.index)))
    }

    fn forward(&mut self, m: &MicroBatch, x: i64) -> Result<i64, Failure> {
        self.pass(Op::Forward, m)?;
        if m.train {
            put(&mut self.inputs, m.index, x);
        }
        Ok(forward(self.factor, x))
    }

    fn backward(&mut self, m: &MicroBatch, dy: i64) -> Result<Option<i64>, Failure> {
        self.pass(Op::Backward, m)?;
        let dx = self.input_grad_of(m, dy);
        self.weight_grad_of(m);
        Ok(dx)
    }

    fn input_grad(&mut self, m: &MicroBatch, dy: i64) -> Result<Option<i64>, Failure> {
        self.pass(Op::InputGrad, m)?;
        Ok(self.input_grad_of(m, dy))
    }

    fn weight_grad(&mut self, m: &MicroBatch) -> Result<(), Failure> {
        self.pass(Op::WeightGrad, m)?;
        self.weight_grad_of(m);
        Ok(())
    }

    fn recompute(&mut self, m: &MicroBatch) -> Result<(), Failure> {
        assert!(self.inputs[m.index].is_some(), "something to compute from");
        self.pass(Op::Recompute, m)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.plan.pass(Place::Finish(Part::Stage(self.index)))
    }
}

/// `loss = y - target`, modulo what fits an f64; the gradient is the same number, whole.
pub struct Difference {
    losses: Vec<f64>,
    plan: Plan,
}

impl Difference {
    pub fn new(plan: Plan) -> Self {
        Self {
            losses: Vec::new(),
            plan,
        }
    }
}

fn loss(y: i64, target: i64) -> f64 {
    (y.wrapping_sub(target) % 1_000_003) as f64
}

impl LossStage<i64> for Difference {
    type Target = i64;
    type Error = Failure;

    fn begin(&mut self, _step: u64) -> Result<(), Failure> {
        self.losses.clear();
        self.plan.pass(Place::Begin(Part::LossStage))
    }

    fn loss(&mut self, m: &MicroBatch, y: i64, target: i64) -> Result<Option<i64>, Failure> {
        self.plan.pass(Place::Loss {
            micro_batch: m.index,
        })?;
        self.losses
            .resize(self.losses.len().max(m.index + 1), f64::NAN);
        self.losses[m.index] = loss(y, target);
        Ok(m.train.then(|| y.wrapping_sub(target)))
    }

    fn losses(&mut self) -> Result<Vec<f64>, Self::Error> {
        Ok(std::mem::take(&mut self.losses))
    }
}

pub type ToyPipeline = Pipeline<Toy, Difference>;

pub fn build(schedule: Schedule, plan: &Plan) -> Result<ToyPipeline, PipelineError> {
    let (stage_plan, turn_plan) = (plan.clone(), plan.clone());
    let make_stage = move |stage| {
        stage_plan.pass(Place::Build(Part::Stage(stage)))?;
        Ok::<_, Failure>(Toy::new(stage, stage_plan.clone()))
    };
    let make_loss_stage = move || {
        turn_plan.pass(Place::Build(Part::LossStage))?;
        Ok::<_, Failure>(Difference::new(turn_plan))
    };
    Pipeline::build(schedule, make_stage, make_loss_stage)
}

fn input(step: u64, m: usize) -> i64 {
    (step as i64 + 1) * 1_000 + m as i64
}

fn target(m: usize) -> i64 {
    7 * m as i64
}

pub fn batch(step: u64, micro_batches: usize, train: bool) -> Vec<Item<i64, i64>> {
    batch_of(step, 0..micro_batches, train)
}

/// Some micro-batches of a batch, counted from the first of them.
fn batch_of(step: u64, micro_batches: Range<usize>, train: bool) -> Vec<Item<i64, i64>> {
    micro_batches
        .enumerate()
        .map(|(index, m)| Item {
            micro_batch: MicroBatch::new(index, m as u64..m as u64 + 1, step, train),
            input: input(step, m),
            target: target(m),
        })
        .collect()
}

/// Losses and gradients of a step without a pipeline: one micro-batch after the other.
pub fn sequential(step: u64, stages: usize, micro_batches: usize) -> (Vec<f64>, Vec<i64>) {
    sequential_of(step, stages, 0..micro_batches)
}

/// [`sequential`] of some of the micro-batches.
fn sequential_of(step: u64, stages: usize, micro_batches: Range<usize>) -> (Vec<f64>, Vec<i64>) {
    let mut losses = Vec::new();
    let mut gradients = vec![0; stages];
    for m in micro_batches {
        let mut x = input(step, m);
        let mut inputs = Vec::new();
        for stage in 0..stages {
            inputs.push(x);
            x = forward(factor(stage), x);
        }
        losses.push(loss(x, target(m)));
        let mut dy = x.wrapping_sub(target(m));
        for stage in (0..stages).rev() {
            gradients[stage] = add(gradients[stage], inputs[stage].wrapping_mul(dy));
            dy = dy.wrapping_mul(factor(stage));
        }
    }
    (losses, gradients)
}

/// Runs one step and compares it exactly with [`sequential`].
pub fn assert_transparent(pipeline: &mut ToyPipeline, step: u64) {
    let stages = pipeline.schedule().stages();
    let micro_batches = pipeline.schedule().micro_batches();
    let outcome = pipeline
        .step(batch(step, micro_batches, true))
        .expect("a step");
    let gradients = pipeline
        .gather(|_, toy| Ok::<_, Failure>(toy.gradient))
        .expect("gradients");
    assert_eq!(
        (outcome.losses, gradients),
        sequential(step, stages, micro_batches)
    );
}

/// Every place of a step at which a failure can occur.
pub fn places(schedule: &Schedule) -> Vec<Place> {
    let actions = schedule.lanes().iter().flatten().copied();
    let mut places: Vec<Place> = actions.map(Place::Action).collect();
    places.extend((0..schedule.micro_batches()).map(|micro_batch| Place::Loss { micro_batch }));
    for stage in (0..schedule.stages()).map(Part::Stage) {
        places.extend([Place::Begin(stage), Place::Finish(stage)]);
    }
    places.push(Place::Begin(Part::LossStage));
    places
}
