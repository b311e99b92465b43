//! AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization" (2017).

#[cfg(feature = "cuda")]
mod cuda;
mod factors;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod update;

pub use factors::AdamW;
pub(crate) use factors::Factors;
pub use update::AdamWUpdate;

use std::fmt;

use super::check::{check_same_shape, check_writable};
use crate::parallel::{CHUNK, for_each};
use crate::{Error, Result};

/// One step of AdamW as PyTorch computes it, with g = grad · `grad_scale`:
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
/// [`Error::Shared`] if something else holds a tensor that is updated.
pub fn adamw(update: AdamWUpdate<'_>, settings: &AdamW) -> Result<()> {
    check(&update)?;
    let factors = Factors::new(settings, update.step, update.grad_scale);
    #[cfg(feature = "cuda")]
    if let Some(gpu) = update.value.gpu().cloned() {
        return cuda::adamw(&gpu, update, &factors);
    }
    let AdamWUpdate {
        value,
        copy,
        grad,
        first,
        second,
        ..
    } = update;
    let device = value.device().clone();
    let chunks = value
        .f32s_mut()?
        .chunks_mut(CHUNK)
        .zip(first.f32s_mut()?.chunks_mut(CHUNK))
        .zip(second.f32s_mut()?.chunks_mut(CHUNK))
        .zip(grad.f32s()?.chunks(CHUNK));
    for_each(&device, chunks, |(((values, firsts), seconds), grads)| {
        factors.update(values, firsts, seconds, grads);
    });
    copy.map_or(Ok(()), |copy| copy.copy_from(value))
}

/// Refuses tensors of other shapes than the value's, step 0, and a copy that something else holds.
fn check(update: &AdamWUpdate<'_>) -> Result<()> {
    let others = [update.grad, update.first, update.second];
    for other in others.into_iter().chain(update.copy.as_deref()) {
        check_same_shape("adamw", update.value, other)?;
    }
    if update.step == 0 {
        return Err(Error::Argument {
            op: "adamw",
            message: "steps count from 1".into(),
        });
    }
    check_writable("adamw", update.copy.as_deref())
}

/// Steps of many parameters: a GPU makes them in one launch for all that have the same settings and
/// type, with the bits of [`adamw`].
#[derive(Default)]
pub struct AdamWBatch {
    #[cfg(feature = "cuda")]
    waiting: cuda::Waiting,
}

impl fmt::Debug for AdamWBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdamWBatch").finish_non_exhaustive()
    }
}

impl AdamWBatch {
    /// [`adamw`]: at once on the CPU, on a GPU when [`run`](Self::run) is called. Until then the batch
    /// holds the tensors.
    ///
    /// # Errors
    /// As [`adamw`].
    pub fn add(&mut self, update: AdamWUpdate<'_>, settings: &AdamW) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let (Some(gpu), true) = (update.value.gpu().cloned(), update.grad.gpu().is_some()) {
            check(&update)?;
            let factors = Factors::new(settings, update.step, update.grad_scale);
            return self.waiting.add(&gpu, update, factors);
        }
        adamw(update, settings)
    }

    /// Makes the remaining steps.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no memory for the list of tensors.
    pub fn run(self) -> Result<()> {
        #[cfg(feature = "cuda")]
        self.waiting.run()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::testing::{
        assert_close, assert_same_bits_for_any_threads, bits, device, f64s, random,
    };

    const SETTINGS: AdamW = AdamW {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
    };

    /// A parameter's value and moments.
    struct State {
        value: Tensor,
        first: Tensor,
        second: Tensor,
    }

    impl State {
        fn step(&mut self, grad: &Tensor, step: u64, grad_scale: f32) -> Result<()> {
            let Self {
                value,
                first,
                second,
            } = self;
            let update = AdamWUpdate {
                value,
                copy: None,
                grad,
                first,
                second,
                step,
                grad_scale,
            };
            adamw(update, &SETTINGS)
        }
    }

    #[test]
    fn steps_follow_pytorchs_formula() {
        let device = device();
        let n = CHUNK + 37;
        let mut state = State {
            value: random(&device, [n], 1),
            first: Tensor::zeros(&device, [n]).unwrap(),
            second: Tensor::zeros(&device, [n]).unwrap(),
        };
        let AdamW {
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
        } = SETTINGS;
        let [lr, beta1, beta2, eps, decay] = [lr, beta1, beta2, eps, weight_decay].map(f64::from);
        let mut wanted = f64s(&state.value);
        let mut moments = vec![(0.0, 0.0); n];
        for step in 1..=4u32 {
            let grad = random(&device, [n], 10 + u64::from(step));
            state.step(&grad, u64::from(step), 0.5).unwrap();
            let correction = |beta: f64| 1.0 - beta.powi(step as i32);
            let grads = f64s(&grad);
            for ((value, (m, v)), grad) in wanted.iter_mut().zip(&mut moments).zip(grads) {
                let grad = grad * 0.5;
                *value *= 1.0 - lr * decay;
                *m = beta1 * *m + (1.0 - beta1) * grad;
                *v = beta2 * *v + (1.0 - beta2) * grad * grad;
                let divisor = v.sqrt() / correction(beta2).sqrt() + eps;
                *value -= lr / correction(beta1) * *m / divisor;
            }
        }
        assert_close(&state.value, &wanted, 1e-6);
    }

    #[test]
    fn an_element_updates_alike_wherever_it_lies() {
        let device = device();
        let update = |n: usize| {
            let all = |number: f32| Tensor::from_f32(&device, [n], vec![number; n]).unwrap();
            let mut state = State {
                value: all(0.7),
                first: all(0.1),
                second: all(0.2),
            };
            state.step(&all(0.3), 7, 0.9).unwrap();
            bits(&state.value)
        };
        let alone = update(1)[0];
        assert!(update(CHUNK + 61).iter().all(|&bits| bits == alone));
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let [value, grad, first] = [1, 2, 3].map(|seed| random(device, [50_001], seed));
            let second = Tensor::zeros(device, [50_001]).unwrap();
            let mut state = State {
                value,
                first,
                second,
            };
            state.step(&grad, 3, 1.0).unwrap();
            state.value
        });
    }

    #[test]
    fn shapes_and_step_are_checked() {
        let device = device();
        let [value, first, second] = [1, 2, 3].map(|seed| random(&device, [3], seed));
        let mut state = State {
            value,
            first,
            second,
        };
        let outcome = state.step(&random(&device, [4], 4), 1, 1.0);
        assert!(matches!(outcome, Err(Error::Shape { .. })));
        let outcome = state.step(&random(&device, [3], 4), 0, 1.0);
        assert!(matches!(outcome, Err(Error::Argument { .. })));
        // A copy that something else holds: nothing has changed.
        let before = bits(&state.value);
        let [grad, mut copy] = [4, 5].map(|seed| random(&device, [3], seed));
        let held = copy.clone();
        let update = AdamWUpdate {
            value: &mut state.value,
            copy: Some(&mut copy),
            grad: &grad,
            first: &mut state.first,
            second: &mut state.second,
            step: 1,
            grad_scale: 1.0,
        };
        assert!(matches!(
            adamw(update, &SETTINGS),
            Err(Error::Shared { .. })
        ));
        assert!(bits(&state.value) == before && held.is_same(&copy));
    }
}
