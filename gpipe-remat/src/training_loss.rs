//! The stage after the last layer: the loss, where the forward flow becomes a backward one, or the end
//! of a pipeline that only runs forward.

use std::collections::BTreeMap;

use gpipe_layers::Loss;
use gpipe_sched::{LossStage, MicroBatch};
use gpipe_tensor::ops::DeferredScalar;
use gpipe_tensor::{Device, Tensor, Tensors};

use crate::{Error, Result, extras};

/// The target of a micro-batch.
#[derive(Clone, Debug)]
pub struct Target {
    /// Class labels or token ids for cross-entropy, values for a squared error.
    pub values: Tensor,
    /// Divisor of losses and gradients: the number of targets in the whole batch, so that micro-batches
    /// of different sizes have the right weights. Zero gives loss 0.
    pub divisor: f64,
}

/// The loss as the stage after the last one: of the first tensor that the model returns. Those behind it are extras,
/// whose gradients are zero ([`keep_extras`](Self::keep_extras)). Its bytes are counted with the last stage.
#[derive(Debug)]
pub struct TrainingLoss {
    loss: Loss,
    device: Device,
    transit: Device,
    losses: Vec<Option<DeferredScalar>>,
    correct: u64,
    /// Targets by their class and the predicted one, if an evaluation counts them.
    predictions: Option<BTreeMap<[u32; 2], u64>>,
    /// Of each micro-batch of an evaluation, if they are asked for.
    extras: Option<Vec<Tensors>>,
}

impl TrainingLoss {
    /// A loss on the worker of the last stage, which counts on `device`; gradients on their way
    /// back count on `transit`.
    pub fn new(loss: Loss, device: Device, transit: Device) -> Self {
        Self {
            loss,
            device,
            transit,
            losses: Vec::new(),
            correct: 0,
            predictions: None,
            extras: None,
        }
    }

    /// Whether the next evaluations keep the tensors that the model returns behind its first, until
    /// [`take_extras`](Self::take_extras) takes them or the next step begins.
    pub fn keep_extras(&mut self, keep: bool) {
        self.extras = keep.then(Vec::new);
    }

    /// The extras of each micro-batch of the last evaluation.
    pub fn take_extras(&mut self) -> Vec<Tensors> {
        self.extras.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Number of correct classes (targets with the highest score) in the evaluation since `begin`.
    pub fn correct(&self) -> u64 {
        self.correct
    }

    /// Lets evaluations count [`predictions`](Self::predictions), for which scores are copied to the host.
    #[must_use]
    pub fn counting_predictions(mut self) -> Self {
        self.predictions = Some(BTreeMap::new());
        self
    }

    /// How many targets of a class were predicted to be of a class, in the evaluation since `begin`, as ((target, predicted), count)
    /// in the order of the classes; none without [`counting_predictions`](Self::counting_predictions).
    pub fn predictions(&self) -> Vec<((u32, u32), u64)> {
        let counts = self.predictions.iter().flatten();
        let counts = counts.map(|(&[target, predicted], &count)| ((target, predicted), count));
        counts.collect()
    }

    /// The loss function.
    pub fn loss_function(&self) -> Loss {
        self.loss
    }

    fn record(&mut self, m: usize, loss: DeferredScalar) {
        if self.losses.len() <= m {
            self.losses.resize_with(m + 1, || None);
        }
        self.losses[m] = Some(loss);
    }
}

impl LossStage<Tensors> for TrainingLoss {
    type Target = Target;
    type Error = Error;

    fn begin(&mut self, _step: u64) -> Result<()> {
        self.losses.clear();
        self.correct = 0;
        self.predictions.iter_mut().for_each(BTreeMap::clear);
        self.take_extras();
        Ok(())
    }

    fn loss(&mut self, m: &MicroBatch, y: Tensors, target: Target) -> Result<Option<Tensors>> {
        let (y, extras) = extras::receive(y, &self.device)?;
        if !m.train {
            if let Some(kept) = &mut self.extras {
                kept.push(extras);
            }
            self.correct += self.loss.correct(&y, &target.values)?;
            if let Some(counts) = &mut self.predictions {
                for pair in self.loss.predictions(&y, &target.values)? {
                    *counts.entry(pair).or_default() += 1;
                }
            }
            let loss = self.loss.of_evaluation();
            let loss = loss.value(&y, &target.values, target.divisor)?;
            self.record(m.index, DeferredScalar::from(loss));
            return Ok(None);
        }
        let (loss, dy) = self.loss.late_gradient(y, &target.values, target.divisor)?;
        self.record(m.index, loss);
        Ok(Some(extras::gradients(dy, extras, &self.transit)?))
    }

    fn losses(&mut self) -> Result<Vec<f64>> {
        let losses = std::mem::take(&mut self.losses).into_iter();
        let read = |loss: Option<DeferredScalar>| Ok(loss.map_or(Ok(0.0), |loss| loss.read())?);
        losses.map(read).collect()
    }
}

/// The end of a pipeline that only runs forward: collects the outputs until they are taken with
/// [`Pipeline::with_loss_stage`](gpipe_sched::Pipeline::with_loss_stage). Its bytes are counted with the last
/// stage.
#[derive(Debug)]
pub struct OutputStage {
    device: Device,
    outputs: Vec<Tensor>,
    extras: Vec<Tensors>,
}

impl OutputStage {
    /// An end on the worker of the last stage, which counts on `device`.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            outputs: Vec::new(),
            extras: Vec::new(),
        }
    }

    /// The outputs since the last [`Pipeline::forward`](gpipe_sched::Pipeline::forward) began, one
    /// for each micro-batch.
    pub fn take(&mut self) -> Vec<Tensor> {
        std::mem::take(&mut self.outputs)
    }

    /// The tensors that the model returned behind these outputs, for each micro-batch.
    pub fn take_extras(&mut self) -> Vec<Tensors> {
        std::mem::take(&mut self.extras)
    }
}

impl LossStage<Tensors> for OutputStage {
    type Target = ();
    type Error = Error;

    fn begin(&mut self, _step: u64) -> Result<()> {
        self.outputs.clear();
        self.extras.clear();
        Ok(())
    }

    fn loss(&mut self, m: &MicroBatch, y: Tensors, (): ()) -> Result<Option<Tensors>> {
        if m.train {
            return Err(Error::Assembly(
                "outputs have no gradient: run the pipeline forward only".into(),
            ));
        }
        let (output, extras) = extras::receive(y, &self.device)?;
        self.outputs.push(output);
        self.extras.push(extras);
        Ok(None)
    }

    fn losses(&mut self) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }
}
