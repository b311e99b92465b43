//! Training with one call per step, for programs without a training loop of their own.

use std::fmt;
use std::ops::Range;

use gpipe_layers::Optimizer;
use gpipe_sched::{ItemOf, LossStage, Outcome, Pipeline};
use gpipe_tensor::{Tensor, Tensors};

use crate::{
    Assembled, Error, LayerStage, Result, StepStats, Target, TrainingLoss, WireCodec, batch_items,
    first_non_finite, group_items, items_of_replica, optimizer_step, step_with_retry,
};

/// A pipeline, its optimizer and the number of the next step.
///
/// ```
/// use gpipe_layers::layers::Function;
/// use gpipe_layers::{AdamW, Decay, Flow, Loss, Optimizer, models};
/// use gpipe_remat::{Assembly, Trainer};
/// use gpipe_tensor::{DeviceId, Host, Tensor};
///
/// // A classifier of points in the plane: inside or outside of a circle.
/// let layers = models::mlp(&models::MlpConfig {
///     inputs: 2, hidden: vec![16, 16], outputs: 2, activation: Function::Relu, dropout: 0.0,
/// })?;
/// let host = Host::new(2)?;
/// let optimizer = Optimizer::from(AdamW {
///     beta2: 0.99,
///     weight_decay: 0.0,
///     decay: Decay::Matrices,
///     ..AdamW::default()
/// });
/// let assembled = Assembly::builder(layers)
///     .batch(64, |samples| vec![Flow::f32([samples, 2])])
///     .optimizer(&optimizer)
///     .build(&host)?;
/// let mut trainer = Trainer::new(assembled, optimizer, |_| 1e-2).with_clip(1.0);
///
/// let cpu = host.device(DeviceId::Cpu)?;
/// let points: Vec<f32> = (0..128).map(|i| ((i * i * 7 + i * 13) % 41) as f32 / 20.0 - 1.0).collect();
/// let inside = points.chunks(2).map(|p| u32::from(p[0] * p[0] + p[1] * p[1] < 0.6)).collect();
/// let points = Tensor::from_f32(&cpu, [64, 2], points)?;
/// let inside = Tensor::from_u32(&cpu, [64], inside)?;
///
/// let first = trainer.step(&[points.clone()], &inside)?;
/// for _ in 1..40 {
///     trainer.step(&[points.clone()], &inside)?;
/// }
/// let last = trainer.step(&[points], &inside)?;
/// assert_eq!(last.stats.step, 40);
/// assert!(last.loss < 0.7 * first.loss, "{} {}", first.loss, last.loss);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Trainer<T: LossStage<Tensors> + 'static = TrainingLoss> {
    run: Assembled<T>,
    optimizer: Optimizer,
    learning_rate: Box<dyn Fn(u64) -> f64 + Send>,
    clip: f64,
    step: u64,
}

impl<T: LossStage<Tensors>> fmt::Debug for Trainer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer")
            .field("run", &self.run)
            .field("optimizer", &self.optimizer)
            .field("clip", &self.clip)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

/// The result of a training step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainStep {
    /// The loss of the batch: the sum of those of its micro-batches, in the order of their groups.
    pub loss: f64,
    /// The loss of each micro-batch and the timeline.
    pub outcome: Outcome,
    /// Norm, clipping and learning rate.
    pub stats: StepStats,
}

impl<T: LossStage<Tensors> + 'static> Trainer<T> {
    /// Trains `run`, which was assembled with the same optimizer. `learning_rate` gives the rate of
    /// a step, counted from 0; gradients are not clipped.
    pub fn new(
        run: Assembled<T>,
        optimizer: Optimizer,
        learning_rate: impl Fn(u64) -> f64 + Send + 'static,
    ) -> Self {
        Self {
            run,
            optimizer,
            learning_rate: Box::new(learning_rate),
            clip: 0.0,
            step: 0,
        }
    }

    /// The same with gradients whose norm is at most `clip` (0: not clipped).
    #[must_use]
    pub fn with_clip(self, clip: f64) -> Self {
        Self { clip, ..self }
    }

    /// The same starting at this step, counted from 0, to resume a run.
    #[must_use]
    pub fn with_first_step(self, step: u64) -> Self {
        Self { step, ..self }
    }

    /// The number of the next step, which is that of steps made.
    pub fn next_step(&self) -> u64 {
        self.step
    }

    /// The pipeline, between two steps.
    pub fn pipeline(&mut self) -> &mut Pipeline<LayerStage, T> {
        &mut self.run.pipeline
    }

    /// The pipeline and the handles that count its bytes.
    pub fn run(&mut self) -> &mut Assembled<T> {
        &mut self.run
    }

    /// Ends training: returns the pipeline and its handles.
    pub fn into_run(self) -> Assembled<T> {
        self.run
    }

    /// A training step on a batch that is cut into micro-batches already. `batch` makes it from the
    /// number of the step, which its items have; it is called again, with the same number, if a value of the step is not
    /// finite, to find the first such value, and by [`step_with_retry`].
    ///
    /// # Errors
    /// [`Error::NonFinite`] or [`Error::NonFiniteGradients`] if a loss or a gradient is not finite:
    /// no parameter was changed then, and the next step has the same number. Else as
    /// [`optimizer_step`], and if the batch cannot be made or is of
    /// another step, the step fails, or its number is [`u64::MAX`].
    pub fn step_on(
        &mut self,
        mut batch: impl FnMut(u64) -> Result<Vec<ItemOf<LayerStage, T>>>,
    ) -> Result<TrainStep> {
        let step = self.step;
        let Some(next) = step.checked_add(1) else {
            return Err(Error::Assembly(format!(
                "step {step} has no next one: begin with a lower step (`with_first_step`)"
            )));
        };
        let pipeline = &mut self.run.pipeline;
        let mut batch = || {
            let items = batch(step)?;
            // Random numbers of layers, such as dropout masks, are functions of it.
            match items.iter().find(|item| item.micro_batch.step != step) {
                Some(other) => Err(Error::Assembly(format!(
                    "an item of step {} in the batch of step {step}: make its items with the number that the closure gets",
                    other.micro_batch.step
                ))),
                None => Ok(items),
            }
        };
        let first = batch()?;
        let outcome = step_with_retry(pipeline, first, &mut batch)?;
        let loss = self.run.groups.sum(&outcome.losses);
        let stats = if loss.is_finite() {
            let lr = (self.learning_rate)(step);
            optimizer_step(pipeline, &self.optimizer, lr, step, self.clip)
        } else {
            Err(Error::NonFiniteGradients { norm: loss })
        };
        let stats = match stats {
            Err(error @ Error::NonFiniteGradients { .. }) => {
                let first = first_non_finite(pipeline, batch()?)?;
                return Err(first.map_or(error, Error::NonFinite));
            }
            stats => stats?,
        };
        self.step = next;
        Ok(TrainStep {
            loss,
            outcome,
            stats,
        })
    }
}

impl Trainer<TrainingLoss> {
    /// A training step. The first extent of every input and of the targets counts samples, which are
    /// cut into as many micro-batches as the schedule has, or the schedules of all replicas together. The loss is the
    /// mean over the targets. Over ranks, every rank calls it with the same inputs and targets.
    ///
    /// # Errors
    /// If there are fewer samples than micro-batches or more than in the batch that the pipeline was
    /// [described with](crate::AssemblyBuilder::batch), or inputs and targets differ in their number;
    /// else as [`step_on`](Self::step_on).
    pub fn step(&mut self, inputs: &[Tensor], targets: &Tensor) -> Result<TrainStep> {
        let samples = targets.shape().rows();
        if let Some(most) = self.run.samples.filter(|&most| samples > most) {
            return Err(Error::Assembly(format!(
                "{samples} samples for a pipeline described with {most}: use {most} or fewer, or describe more with \
                 `batch`"
            )));
        }
        let divisor = self.divisor(inputs, targets)?;
        let (groups, before) = (self.run.groups, self.run.before);
        let parts = self.micro_batches();
        self.step_on(|step| {
            let items = match before {
                0 => batch_items(inputs, parts, step, true, target(targets, divisor)),
                _ => group_items(inputs, parts, groups, step, target(targets, divisor)),
            };
            Ok(items_of_replica(items?, groups))
        })
    }

    /// The loss without training: the mean over the targets. Inputs and targets
    /// are as those of [`step`](Self::step); there may be any number of samples. Of several replicas each computes its share
    /// of the micro-batches, and all return the bits of one.
    ///
    /// # Errors
    /// If there are no samples, inputs and targets differ in their number, or a stage fails.
    pub fn evaluate(&mut self, inputs: &[Tensor], targets: &Tensor) -> Result<f64> {
        let parts = self.micro_batches().min(targets.shape().rows());
        let divisor = self.divisor(inputs, targets)?;
        let mut batch = batch_items(inputs, parts, self.step, false, target(targets, divisor))?;
        let pipeline = &mut self.run.pipeline;
        let (replica, replicas) = (pipeline.replica(), pipeline.replicas());
        batch.truncate((replica + 1) * parts / replicas);
        batch.drain(..replica * parts / replicas);
        for (index, item) in batch.iter_mut().enumerate() {
            item.micro_batch.index = index;
        }
        let own = match batch.is_empty() {
            // Fewer samples than replicas.
            true => pipeline.forward_of_others().map(|()| Vec::new())?,
            false => pipeline.forward(batch)?.losses,
        };
        if replicas == 1 {
            return Ok(own.iter().sum());
        }
        let codec = WireCodec::of(pipeline);
        let told = move |stage, _: &mut LayerStage| {
            Ok::<_, Error>(match stage {
                0 => own.clone(),
                _ => Vec::new(),
            })
        };
        let of_replicas: Vec<Vec<Vec<f64>>> = pipeline.gather_replicas(&codec, told)?;
        // In the order of the micro-batches, as one replica adds them.
        Ok(of_replicas.iter().flatten().flatten().sum())
    }

    /// Those of a step, of all replicas together.
    fn micro_batches(&self) -> usize {
        match self.run.groups.replicas() {
            1 => self.run.pipeline.schedule().micro_batches(),
            _ => self.run.groups.of_step(),
        }
    }

    /// The number of targets, if they are for as many samples as there are inputs.
    fn divisor(&mut self, inputs: &[Tensor], targets: &Tensor) -> Result<f64> {
        let samples = targets.shape().rows();
        if let Some(input) = inputs.iter().find(|input| input.shape().rows() != samples) {
            return Err(Error::Assembly(format!(
                "an input of {} samples but targets for {samples}: give as many of each",
                input.shape().rows()
            )));
        }
        let (pipeline, targets) = (&mut self.run.pipeline, targets.clone());
        let codec = WireCodec::of(pipeline);
        // Over ranks, one of them has the loss.
        let terms: u64 = pipeline.with_loss_stage_across(&codec, move |end| {
            Ok::<_, Error>(end.loss_function().terms(&targets)?.to_bits())
        })?;
        Ok(f64::from_bits(terms))
    }
}

/// The micro-batches' targets.
fn target(targets: &Tensor, divisor: f64) -> impl FnMut(Range<usize>) -> Result<Target> {
    move |rows| {
        Ok(Target {
            values: targets.rows(rows)?,
            divisor,
        })
    }
}
