//! The cross-entropy of logits of single elements with targets from 0 to 1: masks.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::check::{check_divisor, check_same_shape};
use super::chunks::own;
use super::deferred_scalar::DeferredScalar;
use crate::parallel::{CHUNK, for_each};
use crate::{Result, Tensor};

/// −Σ (t·ln σ(y) + (1 − t)·ln(1 − σ(y))) / divisor of logits y and targets t from 0 to 1, and its gradient with
/// respect to y, (σ(y) − t)/divisor, which is written over `y` if nothing else holds it. With a divisor of 0 both
/// are 0.
///
/// An element's loss is max(y, 0) − t·y + ln(1 + e^−|y|), which no logit makes overflow; with a sum as reduction
/// it is PyTorch's `binary_cross_entropy_with_logits`. Targets are of single precision, on any device.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same;
/// [`Error::Argument`](crate::Error::Argument) for a divisor that is negative or not finite; errors
/// of allocation.
pub fn binary_cross_entropy(y: Tensor, target: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
    let (loss, dy) = deferred_binary_cross_entropy(y, target, divisor)?;
    Ok((loss.read()?, dy))
}

/// [`binary_cross_entropy`] whose loss is read later.
///
/// # Errors
/// As [`binary_cross_entropy`].
pub fn deferred_binary_cross_entropy(
    y: Tensor,
    target: &Tensor,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    const OP: &str = "binary_cross_entropy";
    check_same_shape(OP, &y, target)?;
    check_divisor(OP, divisor)?;
    let mut dy = own(y)?;
    if divisor == 0.0 {
        dy.fill(0.0)?;
        return Ok((DeferredScalar::from(0.0), dy));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = dy.gpu().cloned() {
        let loss = cuda::binary_cross_entropy(&gpu, &mut dy, target, divisor)?;
        return Ok((loss, dy));
    }
    let factor = (1.0 / divisor) as f32;
    let (device, target) = (dy.device().clone(), target.f32s()?);
    let mut sums = vec![0.0; target.len().div_ceil(CHUNK)];
    let chunks = dy.f32s_mut()?.chunks_mut(CHUNK).zip(target.chunks(CHUNK));
    for_each(&device, chunks.zip(&mut sums), |((dy, target), sum)| {
        *sum = cpu::binary_cross_entropy(dy, target, factor);
    });
    let loss = sums.iter().sum::<f64>() / divisor;
    Ok((DeferredScalar::from(loss), dy))
}

/// Number of elements on whose side the logit is: above 0 where the target is above 1/2, else not. Counted on the
/// host.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same; errors of the device.
pub fn binary_correct(y: &Tensor, target: &Tensor) -> Result<u64> {
    check_same_shape("binary_correct", y, target)?;
    let (y, target) = (y.to_f32s()?, target.to_f32s()?);
    let agrees = |&(&y, &target): &(&f32, &f32)| (y > 0.0) == (target > 0.5);
    Ok(y.iter().zip(&target).filter(agrees).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        THREADS, assert_close, assert_same_bits_for_any_threads, device, device_with, f64s,
        numeric_gradient, random, random_values,
    };

    /// Targets from 0 to 1, with 0 and 1 among them.
    fn targets(device: &crate::Device, n: usize) -> Tensor {
        let target = |(i, x): (usize, f32)| match i % 3 {
            0 => 0.0,
            1 => 1.0,
            _ => x.abs().fract(),
        };
        let values: Vec<f32> = random_values(n, 2)
            .into_iter()
            .enumerate()
            .map(target)
            .collect();
        Tensor::from_f32(device, [n], values).unwrap()
    }

    #[test]
    fn loss_and_gradient_equal_a_plain_loop_and_finite_differences() {
        let device = device();
        for n in [1, 15, 16, 17, 33, 1025] {
            let (y, target) = (random(&device, [n], 1), targets(&device, n));
            let wanted = f64s(&target);
            let plain = |y: &[f64]| {
                let losses = y.iter().zip(&wanted).map(|(y, t)| {
                    let upper = 1.0 / (1.0 + (-y).exp());
                    -(t * upper.ln() + (1.0 - t) * (1.0 - upper).ln())
                });
                losses.sum::<f64>() / 7.0
            };
            let ys = f64s(&y);
            let (loss, dy) = binary_cross_entropy(y, &target, 7.0).unwrap();
            assert!((loss - plain(&ys)).abs() <= 1e-6 * plain(&ys));
            assert_close(&dy, &numeric_gradient(&ys, plain), 1e-6);
        }
    }

    /// Logits at which e^y or ln σ(y) leaves single precision.
    #[test]
    fn large_logits_overflow_nowhere() {
        let device = device();
        let y = [0.0, 200.0, -200.0, 200.0, -200.0, 3e38];
        let target = [0.5, 1.0, 0.0, 0.0, 1.0, 1.0];
        let losses = [std::f64::consts::LN_2, 0.0, 0.0, 200.0, 200.0, 0.0];
        let slopes = [0.0, 0.0, 0.0, 1.0, -1.0, 0.0];
        for i in 0..y.len() {
            let of = |value| Tensor::from_f32(&device, [1], [value]).unwrap();
            let (loss, dy) = binary_cross_entropy(of(y[i]), &of(target[i]), 1.0).unwrap();
            assert!((loss - losses[i]).abs() < 1e-7, "{} {loss}", y[i]);
            assert_eq!(dy.f32s().unwrap(), [slopes[i]], "{}", y[i]);
        }
        let not = Tensor::from_f32(&device, [1], [f32::NAN]).unwrap();
        assert!(
            binary_cross_entropy(not.clone(), &not, 1.0)
                .unwrap()
                .0
                .is_nan()
        );
        let (loss, dy) = binary_cross_entropy(not.clone(), &not, 0.0).unwrap();
        assert_eq!((loss, dy.f32s().unwrap()), (0.0, [0.0].as_slice()));
    }

    #[test]
    fn elements_on_the_side_of_their_target_are_correct() {
        let of = |values: [f32; 4]| Tensor::from_f32(&device(), [2, 2], values).unwrap();
        let y = of([3.0, -3.0, 0.1, 0.0]);
        assert_eq!(binary_correct(&y, &of([1.0, 0.0, 0.0, 0.0])).unwrap(), 3);
        assert_eq!(binary_correct(&y, &of([0.4, 1.0, 0.6, 1.0])).unwrap(), 1);
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        let run = |device: &crate::Device| {
            let y = random(device, [100_001], 1);
            binary_cross_entropy(y, &targets(device, 100_001), 3.0).unwrap()
        };
        assert_same_bits_for_any_threads(|device| run(device).1);
        for threads in THREADS {
            assert_eq!(
                run(&device_with(threads)).0.to_bits(),
                run(&device()).0.to_bits()
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let device = device();
        let y = random(&device, [2, 3], 1);
        let other = random(&device, [3, 2], 1);
        assert!(binary_cross_entropy(y.clone(), &other, 1.0).is_err());
        assert!(binary_correct(&y, &other).is_err());
        let labels = Tensor::from_u32(&device, [2, 3], vec![0; 6]).unwrap();
        assert!(binary_cross_entropy(y.clone(), &labels, 1.0).is_err());
        for divisor in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(binary_cross_entropy(y.clone(), &y, divisor).is_err());
        }
    }
}
