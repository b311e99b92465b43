//! Optimizers: the update of a parameter from its gradient.

use gpipe_tensor::Tensor;
use gpipe_tensor::ops::{self, AdamWBatch};

use crate::choice::choose;
use crate::{Error, Kind, Param, Result};

/// An optimization algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptimizerKind {
    /// Stochastic gradient descent, as PyTorch's `SGD`: weight decay is added to the gradient.
    Sgd {
        /// Factor of the previous velocity; 0 keeps no velocity.
        momentum: f64,
        /// Whether a step goes on by the momentum once more (Nesterov).
        nesterov: bool,
    },
    /// RMSProp, as PyTorch's, not centred: weight decay is added to the gradient.
    RmsProp {
        /// Decay of the mean square.
        alpha: f64,
        /// Added to the root of the mean square.
        eps: f64,
        /// Factor of the previous velocity; 0 keeps no velocity.
        momentum: f64,
    },
    /// AdamW (arXiv:1711.05101), as PyTorch's: weight decay is decoupled.
    AdamW {
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added to the root of the second moment.
        eps: f64,
    },
}

/// Which parameters are subject to weight decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Matrices only: neither biases nor gains.
    Matrices,
    /// Every parameter.
    All,
}

const DECAYS: [(&str, Decay); 2] = [("matrices", Decay::Matrices), ("all", Decay::All)];

impl std::str::FromStr for Decay {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        choose("decay", text, &DECAYS)
    }
}

/// An algorithm and its weight decay.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// The algorithm.
    pub kind: OptimizerKind,
    /// Coefficient of the weight decay.
    pub weight_decay: f64,
    /// The parameters that decay.
    pub decay: Decay,
}

/// The numbers of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateSettings {
    /// The learning rate.
    pub lr: f64,
    /// The number of the training step, counted from 0. AdamW's bias corrections depend on it.
    pub step: u64,
    /// Factor of the gradient before the update; 1 unless gradients are clipped.
    pub grad_scale: f32,
}

impl Optimizer {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Error::Config`] that names the first invalid number.
    pub fn check(&self) -> Result<()> {
        match self.kind {
            OptimizerKind::Sgd { momentum, nesterov } => {
                below_one("momentum", momentum)?;
                if nesterov && momentum == 0.0 {
                    return Err(Error::Config(
                        "nesterov is on and momentum is 0: use a momentum above 0".into(),
                    ));
                }
            }
            OptimizerKind::RmsProp {
                alpha,
                eps,
                momentum,
            } => {
                below_one("alpha", alpha)?;
                below_one("momentum", momentum)?;
                not_negative("eps", eps)?;
            }
            OptimizerKind::AdamW { beta1, beta2, eps } => {
                below_one("beta1", beta1)?;
                below_one("beta2", beta2)?;
                not_negative("eps", eps)?;
            }
        }
        not_negative("weight decay", self.weight_decay)
    }

    /// Bytes of the optimizer state of a parameter, its master included: 0 for a tied place, whose owner is
    /// updated, and for a frozen parameter.
    pub fn state_bytes(&self, param: &Param) -> u64 {
        let tensors = self.states(param).len() + usize::from(param.has_master());
        param
            .elements()
            .saturating_mul(size_of::<f32>() as u64)
            .saturating_mul(tensors as u64)
    }

    /// Allocates the optimizer state of a parameter, as zeros, on the device of its value.
    ///
    /// # Errors
    /// If a number is invalid, the parameter was not made, or the memory does not suffice.
    pub fn make_state(&self, param: &mut Param) -> Result<()> {
        self.check()?;
        let states = self.states(param);
        let device = param.value()?.device().clone();
        let zeros = |_| Tensor::zeros(&device, param.shape.clone());
        let state = states
            .iter()
            .map(zeros)
            .collect::<std::result::Result<_, _>>();
        param.state = state.map_err(Error::within(&param.name))?;
        param.state_names = states;
        Ok(())
    }

    /// Whether a parameter has a state of the form that [`make_state`](Self::make_state) gives it: of the same names.
    pub fn has_state(&self, param: &Param) -> bool {
        let states = self.states(param);
        param.state_names == states
            && param.state.len() == states.len()
            && param.master.is_some() == param.has_master()
    }

    /// Updates a parameter from its gradient. A statistic and a frozen parameter do not change.
    ///
    /// # Errors
    /// If the parameter or its state was not made.
    pub fn update(&self, param: &mut Param, settings: UpdateSettings) -> Result<()> {
        let mut updates = AdamWBatch::default();
        self.update_with(&mut updates, param, settings)?;
        updates.run().map_err(Error::within(&param.name))
    }

    /// Updates one parameter of many. AdamW's updates are collected in `updates` and computed when that
    /// is run: on a GPU in one launch.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_with(
        &self,
        updates: &mut AdamWBatch,
        param: &mut Param,
        settings: UpdateSettings,
    ) -> Result<()> {
        let UpdateSettings {
            lr,
            step,
            grad_scale,
        } = settings;
        if param.frozen || param.kind == Kind::Statistic {
            return Ok(());
        }
        if param.tied || !self.has_state(param) {
            return Err(not_ready(&param.name));
        }
        let Param {
            name,
            value: Some(value),
            master,
            grad: Some(grad),
            state,
            kind,
            ..
        } = param
        else {
            return Err(not_ready(&param.name));
        };
        let (value, copy) = match master {
            Some(master) => (master, Some(value)),
            None => (value, None),
        };
        let decays = *kind == Kind::Matrix || self.decay == Decay::All;
        let weight_decay = if decays {
            self.weight_decay as f32
        } else {
            0.0
        };
        let lr = lr as f32;
        match (&self.kind, state.as_mut_slice()) {
            (&OptimizerKind::AdamW { beta1, beta2, eps }, [first, second]) => {
                let settings = ops::AdamW {
                    lr,
                    beta1: beta1 as f32,
                    beta2: beta2 as f32,
                    eps: eps as f32,
                    weight_decay,
                };
                let update = ops::AdamWUpdate {
                    value,
                    copy,
                    grad,
                    first,
                    second,
                    // The bias corrections count updates from 1.
                    step: step.saturating_add(1),
                    grad_scale,
                };
                updates.add(update, &settings)
            }
            (&OptimizerKind::Sgd { momentum, nesterov }, state) => {
                let settings = ops::Sgd {
                    lr,
                    momentum: momentum as f32,
                    nesterov,
                    weight_decay,
                };
                let update = ops::SgdUpdate {
                    value,
                    copy,
                    grad,
                    velocity: state.first_mut(),
                    grad_scale,
                };
                ops::sgd(update, &settings)
            }
            (
                &OptimizerKind::RmsProp {
                    alpha,
                    eps,
                    momentum,
                },
                [square, velocity @ ..],
            ) => {
                let settings = ops::RmsProp {
                    lr,
                    alpha: alpha as f32,
                    eps: eps as f32,
                    momentum: momentum as f32,
                    weight_decay,
                };
                let update = ops::RmsPropUpdate {
                    value,
                    copy,
                    grad,
                    square,
                    velocity: velocity.first_mut(),
                    grad_scale,
                };
                ops::rmsprop(update, &settings)
            }
            (OptimizerKind::AdamW { .. } | OptimizerKind::RmsProp { .. }, _) => {
                return Err(not_ready(name));
            }
        }
        .map_err(Error::within(name))
    }

    /// The names of the optimizer's state tensors, in order, as in PyTorch.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self.kind {
            OptimizerKind::Sgd { momentum: 0.0, .. } => &[],
            OptimizerKind::Sgd { .. } => &["momentum_buffer"],
            OptimizerKind::RmsProp { momentum: 0.0, .. } => &["square_avg"],
            OptimizerKind::RmsProp { .. } => &["square_avg", "momentum_buffer"],
            OptimizerKind::AdamW { .. } => &["exp_avg", "exp_avg_sq"],
        }
    }

    /// The names of the state tensors of a parameter.
    fn states(&self, param: &Param) -> &'static [&'static str] {
        if param.tied || param.frozen || param.kind == Kind::Statistic {
            return &[];
        }
        self.state_names()
    }
}

fn not_ready(name: &str) -> Error {
    Error::State {
        layer: name.to_owned(),
        message: "an update needs a value, a gradient and the optimizer's state: call `make` and \
                  `make_state` first, and update owners only"
            .into(),
    }
}

fn below_one(what: &str, value: f64) -> Result<()> {
    if (0.0..1.0).contains(&value) {
        // Updates have single precision, where a decay of 1 divides by 1 − 1.
        return match (value as f32) < 1.0 {
            true => Ok(()),
            false => Err(Error::Config(format!(
                "{what} is {value}, which single precision rounds to 1: use a number up to 0.9999999"
            ))),
        };
    }
    Err(Error::Config(format!(
        "{what} is {value}: use a number from 0 to below 1"
    )))
}

fn not_negative(what: &str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        // Updates have single precision: an infinite eps would learn nothing, and an infinite decay make NaN.
        return match (value as f32).is_finite() {
            true => Ok(()),
            false => Err(Error::Config(format!(
                "{what} is {value:e}, which single precision has not: use a number up to 1e38"
            ))),
        };
    }
    Err(Error::Config(format!(
        "{what} is {value}: use a finite number from 0 up"
    )))
}

/// The factor of the gradients that limits their global norm to `max` (0: no limit), as PyTorch's
/// `clip_grad_norm_`: max / (norm + 1e-6), if that is below 1. NaN for a norm that is NaN, as there:
/// `gpipe_remat::optimizer_step` refuses such gradients before. Neither number is negative: the factor would turn gradients
/// around.
pub fn clip_factor(norm: f64, max: f64) -> f32 {
    if max == 0.0 {
        return 1.0;
    }
    let factor = max / (norm + 1e-6);
    // `f64::min` takes NaN for the greater.
    if factor > 1.0 { 1.0 } else { factor as f32 }
}

#[cfg(test)]
mod tests;
