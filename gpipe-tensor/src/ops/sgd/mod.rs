//! Stochastic gradient descent.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod settings;
mod update;

pub use settings::Sgd;
pub use update::SgdUpdate;

use super::check::{check_same_shape, check_writable};
use crate::parallel::{CHUNK, for_each};
use crate::simd::vectorised;
use crate::{Error, Result};

/// One step of SGD as PyTorch computes it, with g = grad · `grad_scale` + decay · value:
/// velocity = momentum · velocity + g, then value -= lr · velocity; without a velocity
/// value -= lr · g; with Nesterov's momentum value -= lr · (g + momentum · velocity).
///
/// A velocity of zeros before the first step gives PyTorch's first step.
///
/// # Errors
/// [`Error::Shape`] if the tensors differ in shape; [`Error::Argument`] for a momentum without a
/// velocity; [`Error::Shared`] if something else holds a tensor that is updated.
pub fn sgd(update: SgdUpdate<'_>, settings: &Sgd) -> Result<()> {
    check(&update, settings)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = update.value.gpu().cloned() {
        return cuda::sgd(&gpu, update, settings);
    }
    let SgdUpdate {
        value,
        copy,
        grad,
        velocity,
        grad_scale,
    } = update;
    let device = value.device().clone();
    let o = *settings;
    let grads = grad.f32s()?.chunks(CHUNK);
    match velocity {
        None => {
            let chunks = value.f32s_mut()?.chunks_mut(CHUNK).zip(grads);
            for_each(&device, chunks, |(values, grads)| {
                vectorised!({
                    for (value, grad) in values.iter_mut().zip(grads) {
                        let grad = o.weight_decay.mul_add(*value, grad * grad_scale);
                        *value = (-o.lr).mul_add(grad, *value);
                    }
                });
            });
        }
        Some(velocity) => {
            let velocities = velocity.f32s_mut()?.chunks_mut(CHUNK);
            let chunks = value
                .f32s_mut()?
                .chunks_mut(CHUNK)
                .zip(velocities)
                .zip(grads);
            for_each(&device, chunks, |((values, velocities), grads)| {
                vectorised!({
                    let both = values.iter_mut().zip(velocities.iter_mut());
                    for ((value, velocity), grad) in both.zip(grads) {
                        let grad = o.weight_decay.mul_add(*value, grad * grad_scale);
                        *velocity = o.momentum.mul_add(*velocity, grad);
                        let step = match o.nesterov {
                            true => o.momentum.mul_add(*velocity, grad),
                            false => *velocity,
                        };
                        *value = (-o.lr).mul_add(step, *value);
                    }
                });
            });
        }
    }
    copy.map_or(Ok(()), |copy| copy.copy_from(value))
}

/// Refuses tensors of other shapes than the value's, a momentum without a velocity, and a copy that something else holds.
fn check(update: &SgdUpdate<'_>, settings: &Sgd) -> Result<()> {
    let others = [update.copy.as_deref(), update.velocity.as_deref()];
    for other in [update.grad]
        .into_iter()
        .chain(others.into_iter().flatten())
    {
        check_same_shape("sgd", update.value, other)?;
    }
    if settings.momentum != 0.0 && update.velocity.is_none() {
        return Err(Error::Argument {
            op: "sgd",
            message: "momentum needs a velocity: give a tensor of zeros to begin with".into(),
        });
    }
    check_writable("sgd", update.copy.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::testing::{assert_close, assert_same_bits_for_any_threads, device, f64s, random};

    const PLAIN: Sgd = Sgd {
        lr: 0.1,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    };

    #[test]
    fn steps_follow_pytorchs_formula() {
        let device = device();
        let n = CHUNK + 37;
        for o in [
            PLAIN,
            Sgd {
                weight_decay: 0.01,
                ..PLAIN
            },
            Sgd {
                momentum: 0.9,
                weight_decay: 0.01,
                ..PLAIN
            },
            Sgd {
                momentum: 0.9,
                nesterov: true,
                weight_decay: 0.01,
                ..PLAIN
            },
        ] {
            let mut value = random(&device, [n], 1);
            let mut velocity = (o.momentum != 0.0).then(|| Tensor::zeros(&device, [n]).unwrap());
            let [lr, momentum, decay] = [o.lr, o.momentum, o.weight_decay].map(f64::from);
            let mut wanted = f64s(&value);
            // PyTorch begins with the first gradient as the velocity.
            let mut buffer: Option<Vec<f64>> = None;
            for step in 0..3 {
                let grad = random(&device, [n], 10 + step);
                let update = SgdUpdate {
                    velocity: velocity.as_mut(),
                    grad_scale: 0.5,
                    ..SgdUpdate::new(&mut value, &grad)
                };
                sgd(update, &o).unwrap();
                let grads: Vec<f64> = f64s(&grad)
                    .iter()
                    .zip(&wanted)
                    .map(|(grad, value)| grad * 0.5 + decay * value)
                    .collect();
                let moved: Vec<f64> = match buffer.take() {
                    None => grads.clone(),
                    Some(old) => old
                        .iter()
                        .zip(&grads)
                        .map(|(v, g)| momentum * v + g)
                        .collect(),
                };
                for ((value, velocity), grad) in wanted.iter_mut().zip(&moved).zip(&grads) {
                    let step = match o.nesterov {
                        true => grad + momentum * velocity,
                        false => *velocity,
                    };
                    *value -= lr * step;
                }
                buffer = Some(moved);
            }
            assert_close(&value, &wanted, 1e-6);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let mut value = random(device, [50_001], 1);
            let mut velocity = random(device, [50_001], 2);
            let o = Sgd {
                momentum: 0.9,
                ..PLAIN
            };
            let grad = random(device, [50_001], 3);
            let update = SgdUpdate {
                velocity: Some(&mut velocity),
                ..SgdUpdate::new(&mut value, &grad)
            };
            sgd(update, &o).unwrap();
            value
        });
    }

    #[test]
    fn a_momentum_without_a_velocity_is_refused() {
        let device = device();
        let mut value = random(&device, [3], 1);
        let o = Sgd {
            momentum: 0.9,
            ..PLAIN
        };
        let grad = random(&device, [3], 2);
        let outcome = sgd(SgdUpdate::new(&mut value, &grad), &o);
        assert!(matches!(outcome, Err(Error::Argument { .. })));
        let other = random(&device, [4], 2);
        let outcome = sgd(SgdUpdate::new(&mut value, &other), &PLAIN);
        assert!(matches!(outcome, Err(Error::Shape { .. })));
    }
}
