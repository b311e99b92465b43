//! Losses, and their gradients with respect to the output of a model.

use gpipe_tensor::{Tensor, ops};

use crate::{Error, Result};

/// A loss. The caller passes the divisor, because the mean over a batch is a sum over its micro-batches
/// only if each is divided by the count of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// −ln softmax(y)\[target\], summed over the rows whose target is not [`ops::IGNORE`].
    CrossEntropy,
    /// The same with label smoothing ε, from 0 to below 1: the target has the probability 1 − ε, and every other
    /// class an equal part of the rest ([`ops::smoothed_cross_entropy`]).
    SmoothedCrossEntropy(f32),
    /// (y − target)², summed over all elements.
    SquaredError,
    /// −t·ln σ(y) − (1 − t)·ln(1 − σ(y)) of targets t from 0 to 1, summed over all elements: masks.
    BinaryCrossEntropy,
    /// The mean of (y − target)² over the classes, summed over the rows, where a row's target is 1 at its class and
    /// 0 elsewhere.
    OneHotSquaredError,
}

impl Loss {
    /// Number of terms of the loss of these targets, counted on the host. Summed over a batch, it is the
    /// divisor of a mean.
    ///
    /// # Errors
    /// If targets that are classes are not indices.
    pub fn terms(self, targets: &Tensor) -> Result<f64> {
        match self {
            Self::CrossEntropy | Self::SmoothedCrossEntropy(_) => {
                let targets = targets.u32s().map_err(Error::within(self.name()))?;
                Ok(targets.iter().filter(|&&t| t != ops::IGNORE).count() as f64)
            }
            Self::SquaredError | Self::BinaryCrossEntropy | Self::OneHotSquaredError => {
                Ok(targets.elements() as f64)
            }
        }
    }

    /// The loss and its gradient with respect to `y`, which reuses the buffer of `y` if nothing else holds
    /// it. For a divisor of zero, the loss is zero.
    ///
    /// # Errors
    /// If the shapes do not fit or a target is out of range.
    pub fn gradient(self, y: Tensor, targets: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
        let (loss, dy) = self.late_gradient(y, targets, divisor)?;
        Ok((loss.read().map_err(Error::within(self.name()))?, dy))
    }

    /// [`gradient`](Self::gradient) whose loss is read later, so that the host need not wait for a
    /// device.
    ///
    /// # Errors
    /// As `gradient`.
    pub fn late_gradient(
        self,
        y: Tensor,
        targets: &Tensor,
        divisor: f64,
    ) -> Result<(ops::DeferredScalar, Tensor)> {
        match self {
            Self::CrossEntropy => ops::deferred_cross_entropy(y, targets, divisor),
            Self::SmoothedCrossEntropy(smoothing) => {
                ops::smoothed_cross_entropy(y, targets, smoothing, divisor)
            }
            Self::SquaredError => ops::deferred_squared_error(y, targets, divisor),
            Self::BinaryCrossEntropy => ops::deferred_binary_cross_entropy(y, targets, divisor),
            Self::OneHotSquaredError => ops::deferred_one_hot_squared_error(y, targets, divisor),
        }
        .map_err(Error::within(self.name()))
    }

    /// The sum of the weights of the targets that count, on the host. Summed over a batch, it is the divisor of
    /// [`weighted_gradient`](Self::weighted_gradient).
    ///
    /// # Errors
    /// As [`terms`](Self::terms); [`Error::Config`] for a weight that is negative, infinite or not a number, for as
    /// many weights as there are not targets, and for a loss other than a cross-entropy.
    pub fn weight(self, targets: &Tensor, weights: &Tensor) -> Result<f64> {
        self.smoothing()?;
        if targets.shape() != weights.shape() {
            let (targets, weights) = (targets.shape(), weights.shape());
            return Err(Error::Config(format!(
                "label weights {weights} of targets {targets}: give one for each target"
            )));
        }
        let values = weights.to_f32s().map_err(Error::within(self.name()))?;
        let targets = targets.u32s().map_err(Error::within(self.name()))?;
        if let Some(wrong) = values.iter().find(|w| !w.is_finite() || **w < 0.0) {
            return Err(Error::Config(format!(
                "a label weight is {wrong}: use finite numbers from 0 up"
            )));
        }
        let all = targets.iter().zip(values.iter());
        let counted = all.filter(|(target, _)| **target != ops::IGNORE);
        Ok(counted.map(|(_, weight)| f64::from(*weight)).sum())
    }

    /// [`gradient`](Self::gradient) of Σ w·l / `divisor`, where each target's loss l has a weight w, in single
    /// precision and of the shape of the targets (Lingvo's `label_weights`). Targets of weight 0 are
    /// ignored. The divisor is the [`weight`](Self::weight) of the whole batch.
    ///
    /// # Errors
    /// As `gradient`; [`Error::Config`] for a loss other than a cross-entropy.
    pub fn weighted_gradient(
        self,
        y: Tensor,
        targets: &Tensor,
        weights: &Tensor,
        divisor: f64,
    ) -> Result<(f64, Tensor)> {
        let smoothing = self.smoothing()?;
        let within = || Error::within(self.name());
        let (loss, dy) = ops::weighted_cross_entropy(y, targets, weights, smoothing, divisor)
            .map_err(within())?;
        Ok((loss.read().map_err(within())?, dy))
    }

    /// The label smoothing of a cross-entropy.
    fn smoothing(self) -> Result<f32> {
        match self {
            Self::CrossEntropy => Ok(0.0),
            Self::SmoothedCrossEntropy(smoothing) => Ok(smoothing),
            _ => Err(Error::Config(format!(
                "label weights with a {}: use a cross-entropy",
                self.name()
            ))),
        }
    }

    /// The loss alone: for evaluation. Same bits as [`gradient`](Self::gradient).
    ///
    /// # Errors
    /// As `gradient`.
    pub fn value(self, y: &Tensor, targets: &Tensor, divisor: f64) -> Result<f64> {
        match self {
            Self::CrossEntropy => ops::cross_entropy_loss(y, targets, divisor),
            Self::SmoothedCrossEntropy(smoothing) => {
                ops::smoothed_cross_entropy_loss(y, targets, smoothing, divisor)
            }
            Self::SquaredError | Self::BinaryCrossEntropy | Self::OneHotSquaredError => {
                return Ok(self.gradient(y.clone(), targets, divisor)?.0);
            }
        }
        .map_err(Error::within(self.name()))
    }

    /// Number of rows with the highest score at the target, or of elements on the side of their mask; 0 for a loss
    /// without classes.
    ///
    /// # Errors
    /// As `gradient`.
    pub fn correct(self, y: &Tensor, targets: &Tensor) -> Result<u64> {
        match self {
            Self::CrossEntropy | Self::SmoothedCrossEntropy(_) | Self::OneHotSquaredError => {
                ops::correct(y, targets)
            }
            Self::BinaryCrossEntropy => ops::binary_correct(y, targets),
            Self::SquaredError => Ok(0),
        }
        .map_err(Error::within(self.name()))
    }

    /// The class of each target that counts, and the one that has the highest score: the first of equal ones. Of the elements of
    /// masks 1 is in the mask and 0 is not. None for a loss without classes.
    ///
    /// # Errors
    /// As [`correct`](Self::correct).
    pub fn predictions(self, y: &Tensor, targets: &Tensor) -> Result<Vec<[u32; 2]>> {
        let within = || Error::within(self.name());
        if self == Self::SquaredError {
            return Ok(Vec::new());
        }
        // Refuses what does not fit together.
        self.correct(y, targets)?;
        let scores = y.to_f32s().map_err(within())?;
        if self == Self::BinaryCrossEntropy {
            let values = targets.to_f32s().map_err(within())?;
            let sides = values.iter().zip(&scores);
            let sides = sides.map(|(target, score)| [*target > 0.5, *score > 0.0].map(u32::from));
            return Ok(sides.collect());
        }
        let targets = targets.u32s().map_err(within())?;
        let width = scores.len() / targets.len().max(1);
        let rows = targets.iter().zip(scores.chunks(width.max(1)));
        let rows = rows.filter(|(target, _)| **target != ops::IGNORE);
        Ok(rows
            .map(|(target, row)| [*target, first_highest(row)])
            .collect())
    }

    /// The loss that an evaluation tells: label smoothing is for training.
    #[must_use]
    pub fn of_evaluation(self) -> Self {
        match self {
            Self::SmoothedCrossEntropy(_) => Self::CrossEntropy,
            other => other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::CrossEntropy | Self::SmoothedCrossEntropy(_) => "cross-entropy",
            Self::SquaredError => "squared error",
            Self::BinaryCrossEntropy => "binary cross-entropy",
            Self::OneHotSquaredError => "squared error of classes",
        }
    }
}

/// The place of the first of the highest scores.
fn first_highest(scores: &[f32]) -> u32 {
    let mut highest = 0;
    for (place, score) in scores.iter().enumerate() {
        if *score > scores[highest] {
            highest = place;
        }
    }
    highest as u32
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{Device, DeviceId, Host};

    use super::*;

    fn device() -> Device {
        Host::new(1).unwrap().device(DeviceId::Cpu).unwrap()
    }

    #[test]
    fn terms_are_targets_that_count() {
        let targets = Tensor::from_u32(&device(), [2, 2], vec![1, ops::IGNORE, 0, 2]).unwrap();
        assert_eq!(Loss::CrossEntropy.terms(&targets).unwrap(), 3.0);
        let values = Tensor::zeros(&device(), [2, 5]).unwrap();
        assert_eq!(Loss::SquaredError.terms(&values).unwrap(), 10.0);
        assert!(Loss::CrossEntropy.terms(&values).is_err());
    }

    #[test]
    fn predictions_are_of_targets_that_count() {
        let device = device();
        let scores = [1.0, 3.0, 3.0, 9.0, 0.0, 0.0, -2.0, -3.0, -1.0];
        let scores = Tensor::from_f32(&device, [3, 3], scores).unwrap();
        let targets = Tensor::from_u32(&device, [3], vec![2, ops::IGNORE, 2]).unwrap();
        for loss in [Loss::CrossEntropy, Loss::SmoothedCrossEntropy(0.1)] {
            let found = loss.predictions(&scores, &targets).unwrap();
            assert_eq!(found, [[2, 1], [2, 2]]);
            assert_eq!(loss.correct(&scores, &targets).unwrap(), 1);
        }
        let of = |values: [f32; 4]| Tensor::from_f32(&device, [2, 2], values).unwrap();
        let (scores, mask) = (of([0.5, -0.5, 0.0, 2.0]), of([1.0, 1.0, 0.0, 0.0]));
        let found = Loss::BinaryCrossEntropy.predictions(&scores, &mask);
        assert_eq!(found.unwrap(), [[1, 1], [1, 0], [0, 0], [0, 1]]);
        let none = Loss::SquaredError.predictions(&scores, &mask).unwrap();
        assert!(none.is_empty());
        let fault = Loss::CrossEntropy.predictions(&scores, &targets);
        assert!(fault.is_err());
    }

    #[test]
    fn weights_are_summed_over_targets_that_count() {
        let device = device();
        let targets = Tensor::from_u32(&device, [4], vec![1, ops::IGNORE, 0, 2]).unwrap();
        let of = |weights: [f32; 4]| Tensor::from_f32(&device, [4], weights).unwrap();
        let loss = Loss::SmoothedCrossEntropy(0.1);
        let weight = loss.weight(&targets, &of([0.5, 9.0, 0.0, 0.25]));
        assert_eq!(weight.unwrap(), 0.75);
        for wrong in [-0.5, f32::NAN, f32::INFINITY] {
            let error = loss.weight(&targets, &of([1.0, wrong, 1.0, 1.0]));
            let line = error.unwrap_err().to_string();
            assert!(line.contains("use finite numbers from 0 up"), "{line}");
        }
        let fewer = Tensor::from_f32(&device, [3], [1.0; 3]).unwrap();
        assert!(loss.weight(&targets, &fewer).is_err());
        let y = Tensor::zeros(&device, [4, 3]).unwrap();
        let ones = of([1.0; 4]);
        let error = Loss::SquaredError.weighted_gradient(y, &targets, &ones, 1.0);
        let line = error.unwrap_err().to_string();
        assert_eq!(
            line,
            "label weights with a squared error: use a cross-entropy"
        );
    }

    #[test]
    fn the_value_alone_has_the_same_bits() {
        let device = device();
        let y = Tensor::from_f32(&device, [2, 3], [0.5, -1.25, 3.0, 0.1, 0.2, -0.7]).unwrap();
        let labels = Tensor::from_u32(&device, [2], vec![2, 0]).unwrap();
        let values = Tensor::from_f32(&device, [2, 3], [1.0, 0.0, 2.5, 0.3, 0.2, 0.1]).unwrap();
        let masks = Tensor::from_f32(&device, [2, 3], [1.0, 0.0, 0.5, 0.0, 1.0, 1.0]).unwrap();
        for (loss, targets) in [
            (Loss::CrossEntropy, labels.clone()),
            (Loss::SquaredError, values),
            (Loss::BinaryCrossEntropy, masks),
            (Loss::OneHotSquaredError, labels),
        ] {
            let value = loss.value(&y, &targets, 3.0).unwrap();
            let (with_gradient, _) = loss.gradient(y.clone(), &targets, 3.0).unwrap();
            assert_eq!(value.to_bits(), with_gradient.to_bits());
            assert_eq!(loss.gradient(y.clone(), &targets, 0.0).unwrap().0, 0.0);
        }
    }

    #[test]
    fn the_highest_score_at_the_target_is_correct() {
        let y = Tensor::from_f32(&device(), [2, 2], [1.0, 2.0, 3.0, 0.0]).unwrap();
        let labels = Tensor::from_u32(&device(), [2], vec![1, 1]).unwrap();
        assert_eq!(Loss::CrossEntropy.correct(&y, &labels).unwrap(), 1);
        assert_eq!(Loss::OneHotSquaredError.correct(&y, &labels).unwrap(), 1);
        assert_eq!(Loss::SquaredError.correct(&y, &y).unwrap(), 0);
        let masks = Tensor::from_f32(&device(), [2, 2], [0.0, 1.0, 1.0, 0.0]).unwrap();
        assert_eq!(Loss::BinaryCrossEntropy.correct(&y, &masks).unwrap(), 3);
    }
}
