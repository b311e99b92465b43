//! The squared error of predictions.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::check::{check_divisor, check_same_shape};
use super::chunks::own;
use super::deferred_scalar::DeferredScalar;

use crate::ops::cross_entropy::{IGNORE, check_labels};
use crate::parallel::{CHUNK, for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// Σ (y − target)² / divisor, and its gradient with respect to y, 2(y − target)/divisor, which is
/// written over `y` if nothing else holds it. With a divisor of 0 both are 0.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same;
/// [`Error::Argument`](crate::Error::Argument) for a divisor that is negative or not finite; errors
/// of allocation.
pub fn squared_error(y: Tensor, target: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
    let (loss, dy) = deferred_squared_error(y, target, divisor)?;
    Ok((loss.read()?, dy))
}

/// [`squared_error`] whose loss is read later.
///
/// # Errors
/// As [`squared_error`].
pub fn deferred_squared_error(
    y: Tensor,
    target: &Tensor,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    const OP: &str = "squared_error";
    check_same_shape(OP, &y, target)?;
    check_divisor(OP, divisor)?;
    let mut dy = own(y)?;
    if divisor == 0.0 {
        dy.fill(0.0)?;
        return Ok((DeferredScalar::from(0.0), dy));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = dy.gpu().cloned() {
        let loss = cuda::squared_error(&gpu, &mut dy, target, divisor)?;
        return Ok((loss, dy));
    }
    let slope = (2.0 / divisor) as f32;
    let (device, target) = (dy.device().clone(), target.f32s()?);
    let mut sums = vec![0.0; target.len().div_ceil(CHUNK)];
    let chunks = dy.f32s_mut()?.chunks_mut(CHUNK).zip(target.chunks(CHUNK));
    for_each(&device, chunks.zip(&mut sums), |((dy, target), sum)| {
        *sum = cpu::squared_error(dy, target, slope);
    });
    let loss = sums.iter().sum::<f64>() / divisor;
    Ok((DeferredScalar::from(loss), dy))
}

/// The mean of (y − target)² over the classes, summed over the rows and divided by the divisor, where a row's target
/// is 1 at its label and 0 elsewhere, and its gradient with respect to y (…, classes), which is written over `y` if
/// nothing else holds it. With a divisor of 0 both are 0.
///
/// # Errors
/// [`Error::Index`](crate::Error::Index) for a label that is no class, [`Error::Shape`](crate::Error::Shape) unless the
/// labels have the shape of y without the innermost extent;
/// [`Error::Argument`](crate::Error::Argument) for a divisor that is negative or not finite; errors of allocation.
pub fn one_hot_squared_error(y: Tensor, labels: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
    let (loss, dy) = deferred_one_hot_squared_error(y, labels, divisor)?;
    Ok((loss.read()?, dy))
}

/// [`one_hot_squared_error`] whose loss is read later.
///
/// # Errors
/// As [`one_hot_squared_error`].
pub fn deferred_one_hot_squared_error(
    y: Tensor,
    labels: &Tensor,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    const OP: &str = "one_hot_squared_error";
    let width = check_labels(OP, &y, labels)?;
    if let Some(&label) = labels.u32s()?.iter().find(|&&label| label == IGNORE) {
        let (index, len) = (label.into(), width as u64);
        return Err(Error::Index { op: OP, index, len });
    }
    check_divisor(OP, divisor)?;
    let mut dy = own(y)?;
    if divisor == 0.0 || dy.elements() == 0 {
        dy.fill(0.0)?;
        return Ok((DeferredScalar::from(0.0), dy));
    }
    let terms = divisor * width as f64;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = dy.gpu().cloned() {
        let loss = cuda::one_hot(&gpu, &mut dy, labels, width, terms)?;
        return Ok((loss, dy));
    }
    let slope = (2.0 / terms) as f32;
    let (device, labels) = (dy.device().clone(), labels.u32s()?);
    let rows = rows_per_chunk(width);
    let mut sums = vec![0.0; labels.len().div_ceil(rows)];
    let chunks = dy.f32s_mut()?.chunks_mut(rows * width);
    let chunks = chunks.zip(labels.chunks(rows));
    for_each(&device, chunks.zip(&mut sums), |((dy, labels), sum)| {
        *sum = cpu::one_hot(dy, width, labels, slope);
    });
    let loss = sums.iter().sum::<f64>() / terms;
    Ok((DeferredScalar::from(loss), dy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        THREADS, assert_close, assert_same_bits_for_any_threads, device, device_with, f64s,
        numeric_gradient, random,
    };

    #[test]
    fn loss_and_gradient_equal_a_plain_loop_and_finite_differences() {
        let device = device();
        for n in [1, 15, 16, 17, 33, 1025] {
            let (y, target) = (random(&device, [n], 1), random(&device, [n], 2));
            let targets = f64s(&target);
            let plain = |y: &[f64]| {
                let squares = y.iter().zip(&targets).map(|(y, t)| (y - t) * (y - t));
                squares.sum::<f64>() / 7.0
            };
            let ys = f64s(&y);
            let (loss, dy) = squared_error(y, &target, 7.0).unwrap();
            assert!((loss - plain(&ys)).abs() <= 1e-6 * plain(&ys));
            assert_close(&dy, &numeric_gradient(&ys, plain), 1e-6);
        }
    }

    #[test]
    fn predictions_are_overwritten_only_if_nothing_else_holds_them() {
        let device = device();
        let (y, target) = (random(&device, [5], 1), random(&device, [5], 2));
        let kept = y.clone();
        let before = f64s(&kept);
        let (_, dy) = squared_error(y, &target, 1.0).unwrap();
        assert_eq!(f64s(&kept), before);
        let place = dy.f32s().unwrap().as_ptr();
        let (_, again) = squared_error(dy, &target, 1.0).unwrap();
        assert_eq!(again.f32s().unwrap().as_ptr(), place);
    }

    #[test]
    fn nothing_to_count_is_zero() {
        let device = device();
        let y = Tensor::from_f32(&device, [2], [f32::NAN, 1.0]).unwrap();
        let (loss, dy) = squared_error(y, &random(&device, [2], 1), 0.0).unwrap();
        assert_eq!((loss, dy.f32s().unwrap()), (0.0, [0.0; 2].as_slice()));
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        let run = |device: &crate::Device| {
            let (y, target) = (random(device, [100_001], 1), random(device, [100_001], 2));
            squared_error(y, &target, 3.0).unwrap()
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
    fn labels_are_targets_of_one_at_their_class() {
        let device = device();
        for (rows, classes) in [(1, 1), (5, 3), (300, 33), (2, 1500)] {
            let y = random(&device, [rows, classes], 1);
            let labels: Vec<u32> = (0..rows).map(|row| (row * 7 % classes) as u32).collect();
            let mut target = vec![0.0; rows * classes];
            for (row, &label) in labels.iter().enumerate() {
                target[row * classes + label as usize] = 1.0;
            }
            let target = Tensor::from_f32(&device, [rows, classes], target).unwrap();
            let labels = Tensor::from_u32(&device, [rows], labels).unwrap();
            let (loss, dy) = one_hot_squared_error(y.clone(), &labels, rows as f64).unwrap();
            let (wanted, of_target) = squared_error(y, &target, (rows * classes) as f64).unwrap();
            assert!((loss - wanted).abs() <= 1e-6 * wanted, "{loss} {wanted}");
            assert_eq!(dy.f32s().unwrap(), of_target.f32s().unwrap());
        }
        let y = random(&device, [2, 3], 1);
        for bad in [3, IGNORE] {
            let labels = Tensor::from_u32(&device, [2], vec![0, bad]).unwrap();
            assert!(one_hot_squared_error(y.clone(), &labels, 1.0).is_err());
        }
        let labels = Tensor::from_u32(&device, [3], vec![0; 3]).unwrap();
        assert!(one_hot_squared_error(y, &labels, 1.0).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let device = device();
        let y = random(&device, [2, 3], 1);
        assert!(squared_error(y.clone(), &random(&device, [3, 2], 1), 1.0).is_err());
        for divisor in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(squared_error(y.clone(), &y, divisor).is_err());
        }
    }
}
