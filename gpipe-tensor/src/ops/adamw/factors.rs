//! The settings of AdamW, and the factors of one step.

use crate::simd::vectorised;

/// The settings of [`adamw`](super::adamw()), named as PyTorch names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub lr: f32,
    /// The decay rate of the mean gradient.
    pub beta1: f32,
    /// The decay rate of the mean squared gradient.
    pub beta2: f32,
    /// Added to the divisor.
    pub eps: f32,
    /// The decoupled weight decay: each step subtracts lr · decay · value.
    pub weight_decay: f32,
}

/// The factors of one step, computed once in double precision.
#[derive(PartialEq)]
pub(crate) struct Factors {
    pub grad_scale: f32,
    pub keep: f32,
    pub first_share: f32,
    pub beta2: f32,
    pub second_share: f32,
    pub step_size: f32,
    pub root_correction: f32,
    pub eps: f32,
}

impl Factors {
    pub(crate) fn new(o: &AdamW, step: u64, grad_scale: f32) -> Self {
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

    pub(super) fn update(
        &self,
        values: &mut [f32],
        firsts: &mut [f32],
        seconds: &mut [f32],
        grads: &[f32],
    ) {
        vectorised!({
            let states = firsts.iter_mut().zip(seconds.iter_mut());
            for ((value, grad), (first, second)) in values.iter_mut().zip(grads).zip(states) {
                let grad = grad * self.grad_scale;
                *first = self.first_share.mul_add(grad - *first, *first);
                *second = self.beta2.mul_add(*second, self.second_share * grad * grad);
                let divisor = second.sqrt().mul_add(self.root_correction, self.eps);
                *value = (-self.step_size).mul_add(*first / divisor, self.keep * *value);
            }
        });
    }
}
