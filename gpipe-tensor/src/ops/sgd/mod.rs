//! Stochastic gradient descent.

use crate::parallel::{CHUNK, each};
use crate::{Error, Result, Tensor};

/// The settings of [`sgd`], named as PyTorch names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The learning rate.
    pub lr: f32,
    /// How much of the velocity stays from step to step; 0 for none.
    pub momentum: f32,
    /// The factor of the L2 penalty, added to the gradient.
    pub weight_decay: f32,
}

/// One step of SGD as PyTorch computes it, with g = grad · `grad_scale` + decay · value:
/// velocity = momentum · velocity + g, then value -= lr · velocity; without a velocity
/// value -= lr · g.
///
/// A velocity of zeros before the first step gives PyTorch's first step.
///
/// # Errors
/// [`Error::Shape`] if the tensors differ in shape; [`Error::Argument`] for a momentum without a
/// velocity; [`Error::Shared`] if something else holds what is to be changed.
pub fn sgd(
    value: &mut Tensor,
    grad: &Tensor,
    velocity: Option<&mut Tensor>,
    grad_scale: f32,
    o: &Sgd,
) -> Result<()> {
    super::check_same_shape("sgd", value, grad)?;
    let device = value.device().clone();
    let o = *o;
    let grads = grad.f32s()?.chunks(CHUNK);
    match velocity {
        None if o.momentum != 0.0 => Err(Error::Argument {
            op: "sgd",
            message: "momentum needs a velocity: give a tensor of zeros to begin with".into(),
        }),
        None => {
            let chunks = value.f32s_mut()?.chunks_mut(CHUNK).zip(grads);
            each(&device, chunks, |(values, grads)| {
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        for (value, grad) in values.iter_mut().zip(grads) {
                            let grad = o.weight_decay.mul_add(*value, grad * grad_scale);
                            *value = (-o.lr).mul_add(grad, *value);
                        }
                    },
                );
            });
            Ok(())
        }
        Some(velocity) => {
            super::check_same_shape("sgd", value, velocity)?;
            let velocities = velocity.f32s_mut()?.chunks_mut(CHUNK);
            let chunks = value
                .f32s_mut()?
                .chunks_mut(CHUNK)
                .zip(velocities)
                .zip(grads);
            each(&device, chunks, |((values, velocities), grads)| {
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        let both = values.iter_mut().zip(velocities);
                        for ((value, velocity), grad) in both.zip(grads) {
                            let grad = o.weight_decay.mul_add(*value, grad * grad_scale);
                            *velocity = o.momentum.mul_add(*velocity, grad);
                            *value = (-o.lr).mul_add(*velocity, *value);
                        }
                    },
                );
            });
            Ok(())
        }
    }
}
