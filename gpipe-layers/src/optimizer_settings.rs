//! The settings of each optimizer, with PyTorch's defaults.

use crate::optimizer::{Decay, Optimizer, OptimizerKind};

/// The settings of stochastic gradient descent; the default is PyTorch's.
///
/// ```
/// use gpipe_layers::{Optimizer, Sgd};
///
/// let sgd: Optimizer = Sgd { momentum: 0.9, ..Sgd::default() }.into();
/// assert_eq!(sgd.state_names(), ["momentum_buffer"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Factor of the previous velocity; 0 keeps no velocity.
    pub momentum: f64,
    /// Whether a step goes on by the momentum once more (Nesterov); needs a momentum above 0.
    pub nesterov: bool,
    /// Coefficient of the weight decay.
    pub weight_decay: f64,
    /// The parameters that decay.
    pub decay: Decay,
}

impl Default for Sgd {
    fn default() -> Self {
        Self {
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            decay: Decay::All,
        }
    }
}

impl From<Sgd> for Optimizer {
    fn from(settings: Sgd) -> Self {
        let Sgd {
            momentum,
            nesterov,
            weight_decay,
            decay,
        } = settings;
        Self {
            kind: OptimizerKind::Sgd { momentum, nesterov },
            weight_decay,
            decay,
        }
    }
}

/// The settings of AdamW; the default is PyTorch's.
///
/// ```
/// use gpipe_layers::{AdamW, Decay, Optimizer};
///
/// let adamw: Optimizer = AdamW {
///     beta2: 0.95,
///     decay: Decay::Matrices,
///     ..AdamW::default()
/// }
/// .into();
/// assert_eq!(adamw.weight_decay, 0.01);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Coefficient of the weight decay.
    pub weight_decay: f64,
    /// The parameters that decay.
    pub decay: Decay,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
            decay: Decay::All,
        }
    }
}

impl From<AdamW> for Optimizer {
    fn from(settings: AdamW) -> Self {
        let AdamW {
            beta1,
            beta2,
            eps,
            weight_decay,
            decay,
        } = settings;
        Self {
            kind: OptimizerKind::AdamW { beta1, beta2, eps },
            weight_decay,
            decay,
        }
    }
}

/// The settings of RMSProp; the default is PyTorch's.
///
/// ```
/// use gpipe_layers::{Optimizer, RmsProp};
///
/// let rmsprop: Optimizer = RmsProp { momentum: 0.9, ..RmsProp::default() }.into();
/// assert_eq!(rmsprop.state_names(), ["square_avg", "momentum_buffer"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// Decay of the mean square.
    pub alpha: f64,
    /// Added to the root of the mean square.
    pub eps: f64,
    /// Factor of the previous velocity; 0 keeps no velocity.
    pub momentum: f64,
    /// Coefficient of the weight decay.
    pub weight_decay: f64,
    /// The parameters that decay.
    pub decay: Decay,
}

impl Default for RmsProp {
    fn default() -> Self {
        Self {
            alpha: 0.99,
            eps: 1e-8,
            momentum: 0.0,
            weight_decay: 0.0,
            decay: Decay::All,
        }
    }
}

impl From<RmsProp> for Optimizer {
    fn from(settings: RmsProp) -> Self {
        let RmsProp {
            alpha,
            eps,
            momentum,
            weight_decay,
            decay,
        } = settings;
        Self {
            kind: OptimizerKind::RmsProp {
                alpha,
                eps,
                momentum,
            },
            weight_decay,
            decay,
        }
    }
}
