//! RMSProp (Hinton, Srivastava and Swersky, lecture 6e of Neural Networks for Machine Learning, 2012).

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod settings;
mod update;

pub use settings::RmsProp;
pub use update::RmsPropUpdate;

use super::check::{check_same_shape, check_writable};
use crate::parallel::{CHUNK, for_each};
use crate::simd::vectorised;
use crate::{Error, Result};

/// One step of RMSProp as PyTorch computes it, not centred, with g = grad · `grad_scale` + decay · value:
/// square = α · square + (1 − α) · g² and s = g / (√square + eps), then value -= lr · s; with a
/// velocity, velocity = momentum · velocity + s, then value -= lr · velocity.
///
/// # Errors
/// [`Error::Shape`] if the tensors differ in shape; [`Error::Argument`] for a momentum without a
/// velocity; [`Error::Shared`] if something else holds a tensor that is updated.
pub fn rmsprop(update: RmsPropUpdate<'_>, settings: &RmsProp) -> Result<()> {
    check(&update, settings)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = update.value.gpu().cloned() {
        return cuda::rmsprop(&gpu, update, settings);
    }
    let RmsPropUpdate {
        value,
        copy,
        grad,
        square,
        velocity,
        grad_scale,
    } = update;
    let device = value.device().clone();
    let o = *settings;
    let values = value.f32s_mut()?.chunks_mut(CHUNK);
    let chunks = values
        .zip(square.f32s_mut()?.chunks_mut(CHUNK))
        .zip(grad.f32s()?.chunks(CHUNK));
    match velocity {
        None => for_each(&device, chunks, |((values, squares), grads)| {
            vectorised!({
                let both = values.iter_mut().zip(squares.iter_mut());
                for ((value, square), grad) in both.zip(grads) {
                    let step = step(&o, grad * grad_scale, *value, square);
                    *value = (-o.lr).mul_add(step, *value);
                }
            });
        }),
        Some(velocity) => {
            let chunks = chunks.zip(velocity.f32s_mut()?.chunks_mut(CHUNK));
            for_each(
                &device,
                chunks,
                |(((values, squares), grads), velocities)| {
                    vectorised!({
                        let both = values.iter_mut().zip(squares.iter_mut());
                        let all = both.zip(grads).zip(velocities.iter_mut());
                        for (((value, square), grad), velocity) in all {
                            let step = step(&o, grad * grad_scale, *value, square);
                            *velocity = o.momentum.mul_add(*velocity, step);
                            *value = (-o.lr).mul_add(*velocity, *value);
                        }
                    });
                },
            );
        }
    }
    copy.map_or(Ok(()), |copy| copy.copy_from(value))
}

/// Updates the mean square; returns the gradient over its root.
#[inline(always)]
fn step(o: &RmsProp, grad: f32, value: f32, square: &mut f32) -> f32 {
    let slope = o.weight_decay.mul_add(value, grad);
    *square = o.alpha.mul_add(*square, (1.0 - o.alpha) * slope * slope);
    slope / (square.sqrt() + o.eps)
}

/// Refuses tensors of other shapes than the value's, a momentum without a velocity, and a copy that something else holds.
fn check(update: &RmsPropUpdate<'_>, settings: &RmsProp) -> Result<()> {
    const OP: &str = "rmsprop";
    let others = [update.copy.as_deref(), update.velocity.as_deref()];
    let always = [update.grad, &*update.square];
    for other in always.into_iter().chain(others.into_iter().flatten()) {
        check_same_shape(OP, update.value, other)?;
    }
    if settings.momentum != 0.0 && update.velocity.is_none() {
        return Err(Error::Argument {
            op: OP,
            message: "momentum needs a velocity: give a tensor of zeros to begin with".into(),
        });
    }
    check_writable(OP, update.copy.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::testing::{assert_close, assert_same_bits_for_any_threads, device, f64s, random};

    const PLAIN: RmsProp = RmsProp {
        lr: 0.1,
        alpha: 0.9,
        eps: 1e-3,
        momentum: 0.0,
        weight_decay: 0.0,
    };

    #[test]
    fn steps_follow_pytorchs_formula() {
        let device = device();
        let n = CHUNK + 37;
        for (momentum, weight_decay) in [(0.0, 0.0), (0.0, 0.01), (0.9, 0.01)] {
            let o = RmsProp {
                momentum,
                weight_decay,
                ..PLAIN
            };
            let mut value = random(&device, [n], 1);
            let [mut square, mut velocity] = [0; 2].map(|_| Tensor::zeros(&device, [n]).unwrap());
            let mut wanted: Vec<[f64; 3]> = f64s(&value).iter().map(|x| [*x, 0.0, 0.0]).collect();
            let [lr, alpha, eps, momentum, decay] =
                [o.lr, o.alpha, o.eps, o.momentum, o.weight_decay].map(f64::from);
            for seed in 0..3 {
                let grad = random(&device, [n], 10 + seed);
                let update = RmsPropUpdate {
                    value: &mut value,
                    copy: None,
                    grad: &grad,
                    square: &mut square,
                    velocity: (o.momentum != 0.0).then_some(&mut velocity),
                    grad_scale: 0.5,
                };
                rmsprop(update, &o).unwrap();
                for ([value, square, velocity], grad) in wanted.iter_mut().zip(f64s(&grad)) {
                    let grad = grad * 0.5 + decay * *value;
                    *square = alpha * *square + (1.0 - alpha) * grad * grad;
                    *velocity = momentum * *velocity + grad / (square.sqrt() + eps);
                    *value -= lr * *velocity;
                }
            }
            let values: Vec<f64> = wanted.iter().map(|[value, ..]| *value).collect();
            assert_close(&value, &values, 2e-5);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let [mut value, grad, mut velocity] =
                [1, 2, 3].map(|seed| random(device, [50_001], seed));
            let mut square = Tensor::zeros(device, [50_001]).unwrap();
            let update = RmsPropUpdate {
                value: &mut value,
                copy: None,
                grad: &grad,
                square: &mut square,
                velocity: Some(&mut velocity),
                grad_scale: 1.0,
            };
            let o = RmsProp {
                momentum: 0.9,
                ..PLAIN
            };
            rmsprop(update, &o).unwrap();
            value
        });
    }

    #[test]
    fn a_momentum_without_a_velocity_is_refused() {
        let device = device();
        let [mut value, grad, mut square, mut other] =
            [3, 3, 3, 4].map(|n| random(&device, [n], 1));
        let o = RmsProp {
            momentum: 0.9,
            ..PLAIN
        };
        let mut run = |square: &mut Tensor, o: &RmsProp| {
            let update = RmsPropUpdate {
                value: &mut value,
                copy: None,
                grad: &grad,
                square,
                velocity: None,
                grad_scale: 1.0,
            };
            rmsprop(update, o)
        };
        assert!(matches!(run(&mut square, &o), Err(Error::Argument { .. })));
        assert!(matches!(run(&mut other, &PLAIN), Err(Error::Shape { .. })));
    }
}
