//! AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization" (2017).

use crate::parallel::{CHUNK, each};
use crate::{Error, Result, Tensor};

/// The settings of [`adamw`], named as PyTorch names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub lr: f32,
    /// How much of the mean gradient stays from step to step.
    pub beta1: f32,
    /// How much of the mean squared gradient stays from step to step.
    pub beta2: f32,
    /// Added to the divisor.
    pub eps: f32,
    /// The share of the value, times the learning rate, that each step takes away.
    pub weight_decay: f32,
}

/// Step `step` (from 1) of AdamW as PyTorch computes it, with g = grad · `grad_scale`:
///
/// ```text
/// value  -= lr · decay · value
/// first  += (1 - beta1) · (g - first)
/// second  = beta2 · second + (1 - beta2) · g²
/// value  -= lr / (1 - beta1^step) · first / (√second / √(1 - beta2^step) + eps)
/// ```
///
/// # Errors
/// [`Error::Shape`] if the tensors differ in shape; [`Error::Argument`] for step 0;
/// [`Error::Shared`] if something else holds what is to be changed.
pub fn adamw(
    value: &mut Tensor,
    grad: &Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    step: u64,
    grad_scale: f32,
    o: &AdamW,
) -> Result<()> {
    for other in [grad, first, second] {
        super::check_same_shape("adamw", value, other)?;
    }
    if step == 0 {
        return Err(Error::Argument {
            op: "adamw",
            message: "steps count from 1".into(),
        });
    }
    let device = value.device().clone();
    let factors = Factors::new(o, step, grad_scale);
    let chunks = value
        .f32s_mut()?
        .chunks_mut(CHUNK)
        .zip(first.f32s_mut()?.chunks_mut(CHUNK))
        .zip(second.f32s_mut()?.chunks_mut(CHUNK))
        .zip(grad.f32s()?.chunks(CHUNK));
    each(&device, chunks, |(((values, firsts), seconds), grads)| {
        factors.update(values, firsts, seconds, grads);
    });
    Ok(())
}

/// What a step multiplies with, worked out once in double precision.
struct Factors {
    grad_scale: f32,
    keep: f32,
    first_share: f32,
    beta2: f32,
    second_share: f32,
    step_size: f32,
    root_correction: f32,
    eps: f32,
}

impl Factors {
    fn new(o: &AdamW, step: u64, grad_scale: f32) -> Self {
        let [lr, beta1, beta2, decay] = [o.lr, o.beta1, o.beta2, o.weight_decay].map(f64::from);
        let correction = |beta: f64| 1.0 - beta.powf(step as f64);
        Self {
            grad_scale,
            keep: (1.0 - lr * decay) as f32,
            first_share: (1.0 - beta1) as f32,
            beta2: o.beta2,
            second_share: (1.0 - beta2) as f32,
            step_size: (lr / correction(beta1)) as f32,
            root_correction: (1.0 / correction(beta2).sqrt()) as f32,
            eps: o.eps,
        }
    }

    fn update(&self, values: &mut [f32], firsts: &mut [f32], seconds: &mut [f32], grads: &[f32]) {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                let states = firsts.iter_mut().zip(seconds);
                for ((value, grad), (first, second)) in values.iter_mut().zip(grads).zip(states) {
                    let grad = grad * self.grad_scale;
                    *first = self.first_share.mul_add(grad - *first, *first);
                    *second = self.beta2.mul_add(*second, self.second_share * grad * grad);
                    let divisor = second.sqrt().mul_add(self.root_correction, self.eps);
                    *value = (-self.step_size).mul_add(*first / divisor, self.keep * *value);
                }
            },
        );
    }
}
