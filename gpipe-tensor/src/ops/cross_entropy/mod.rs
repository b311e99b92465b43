//! The cross-entropy of logits with target indices.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

pub use cpu::IGNORE;

use super::check::check_divisor;
use super::chunks::own;
use super::deferred_scalar::DeferredScalar;
use crate::parallel::{for_each, rows_per_chunk};
use crate::{Error, Result, Tensor};

/// Σ −ln softmax(logits)\[target\] / divisor over the rows whose target is not [`IGNORE`], and the
/// gradient with respect to the logits (…, V), which is written over them if nothing else holds them.
///
/// A row's loss is ln Σⱼ e^xⱼ − x_t, so its gradient is (softmax(x)ⱼ − δⱼₜ)/divisor. The divisor is
/// the caller's: the number of targets of the whole batch makes the sum over its micro-batches their
/// mean. With a divisor of 0 both are 0. Losses are summed in double precision, row by row.
///
/// # Errors
/// [`Error::Index`] for a target that is neither below V nor [`IGNORE`]; [`Error::Shape`] unless
/// the targets have the shape of the logits without the innermost extent; [`Error::Argument`] for a
/// divisor that is negative or NaN; errors of allocation.
pub fn cross_entropy(logits: Tensor, targets: &Tensor, divisor: f64) -> Result<(f64, Tensor)> {
    let (loss, gradient) = deferred_cross_entropy(logits, targets, divisor)?;
    Ok((loss.read()?, gradient))
}

/// [`cross_entropy`] whose loss is read later.
///
/// # Errors
/// As [`cross_entropy`].
pub fn deferred_cross_entropy(
    logits: Tensor,
    targets: &Tensor,
    divisor: f64,
) -> Result<(DeferredScalar, Tensor)> {
    const OP: &str = "cross_entropy";
    let width = check(OP, &logits, targets)?;
    check_divisor(OP, divisor)?;
    let mut gradient = own(logits)?;
    if divisor == 0.0 || gradient.elements() == 0 {
        gradient.fill(0.0)?;
        return Ok((DeferredScalar::from(0.0), gradient));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = gradient.gpu().cloned() {
        let loss = cuda::gradient(&gpu, &mut gradient, width, targets, divisor)?;
        return Ok((loss, gradient));
    }
    let (device, targets) = (gradient.device().clone(), targets.u32s()?);
    let mut losses = vec![0.0; targets.len()];
    let rows = rows_per_chunk(width);
    let chunks = gradient.f32s_mut()?.chunks_mut(rows * width);
    let chunks = chunks
        .zip(targets.chunks(rows))
        .zip(losses.chunks_mut(rows));
    for_each(&device, chunks, |((logits, targets), losses)| {
        cpu::gradient(logits, width, targets, divisor, losses);
    });
    let loss = losses.iter().sum::<f64>() / divisor;
    Ok((DeferredScalar::from(loss), gradient))
}

/// The loss of [`cross_entropy`] alone, with the same bits: for evaluation.
///
/// # Errors
/// As [`cross_entropy`].
pub fn cross_entropy_loss(logits: &Tensor, targets: &Tensor, divisor: f64) -> Result<f64> {
    const OP: &str = "cross_entropy_loss";
    let width = check(OP, logits, targets)?;
    check_divisor(OP, divisor)?;
    if divisor == 0.0 || logits.elements() == 0 {
        return Ok(0.0);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = logits.gpu() {
        return cuda::losses(gpu, logits, width, targets, divisor)?.read();
    }
    let targets = targets.u32s()?;
    let mut losses = vec![0.0; targets.len()];
    let rows = rows_per_chunk(width);
    let chunks = logits
        .f32s()?
        .chunks(rows * width)
        .zip(targets.chunks(rows));
    for_each(
        logits.device(),
        chunks.zip(losses.chunks_mut(rows)),
        |((logits, targets), losses)| {
            cpu::losses(logits, width, targets, losses);
        },
    );
    Ok(losses.iter().sum::<f64>() / divisor)
}

/// Number of rows whose largest logit (the first of equal ones) is that of the target; rows whose
/// target is [`IGNORE`] do not count.
///
/// # Errors
/// [`Error::Index`] and [`Error::Shape`] as [`cross_entropy`].
pub fn correct(logits: &Tensor, targets: &Tensor) -> Result<u64> {
    let width = check("correct", logits, targets)?;
    if logits.elements() == 0 {
        return Ok(0);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = logits.gpu() {
        return cuda::correct(gpu, logits, width, targets);
    }
    let rows = rows_per_chunk(width);
    let chunks = logits
        .f32s()?
        .chunks(rows * width)
        .zip(targets.u32s()?.chunks(rows));
    let mut counts = vec![0; targets.elements().div_ceil(rows)];
    for_each(
        logits.device(),
        chunks.zip(&mut counts),
        |((logits, targets), count)| {
            *count = cpu::correct(logits, width, targets);
        },
    );
    Ok(counts.iter().sum())
}

/// The number of classes; at least 1, so that rows can be cut (without classes there is no valid
/// target, and nothing to compute).
fn check(op: &'static str, logits: &Tensor, targets: &Tensor) -> Result<usize> {
    match logits.shape().dims() {
        [rows @ .., classes] if rows == targets.shape().dims() => {
            let bad = |&&target: &&u32| target != IGNORE && target as usize >= *classes;
            match targets.u32s()?.iter().find(bad) {
                Some(&target) => Err(Error::Index {
                    op,
                    index: u64::from(target),
                    len: *classes as u64,
                }),
                None => Ok((*classes).max(1)),
            }
        }
        _ => {
            let expected = format!(
                "targets of the shape of the logits {} without the last extent",
                logits.shape()
            );
            Err(Error::shape(op, expected, targets.shape()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        THREADS, assert_close, assert_same_bits_for_any_threads, bits, device, device_with, f64s,
        numeric_gradient, random,
    };

    /// One target a row, every fourth ignored.
    fn targets(device: &crate::Device, shape: &[usize], classes: usize) -> Tensor {
        let target = |i: usize| {
            if i % 4 == 3 {
                IGNORE
            } else {
                (i * 31 % classes) as u32
            }
        };
        let all = (0..shape.iter().product()).map(target);
        Tensor::from_u32(device, shape, all.collect()).unwrap()
    }

    fn plain(logits: &[f64], targets: &[u32], divisor: f64) -> f64 {
        let classes = logits.len() / targets.len();
        let rows = logits.chunks(classes).zip(targets);
        let losses = rows
            .filter(|(_, target)| **target != IGNORE)
            .map(|(row, &target)| {
                let largest = row.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
                largest + sum.ln() - row[target as usize]
            });
        losses.sum::<f64>() / divisor
    }

    #[test]
    fn loss_and_gradient_equal_a_plain_loop_and_finite_differences() {
        let device = device();
        for (rows, classes) in [
            (vec![], 5),
            (vec![5], 1),
            (vec![2, 3], 2),
            (vec![5], 15),
            (vec![4], 16),
            (vec![3], 17),
            (vec![5], 33),
            (vec![2], 130),
        ] {
            let shape = [rows.as_slice(), &[classes]].concat();
            let logits = random(&device, shape.as_slice(), 1);
            let targets = targets(&device, &rows, classes);
            let (xs, ids) = (f64s(&logits), targets.u32s().unwrap());
            let wanted = plain(&xs, ids, 3.0);
            let alone = cross_entropy_loss(&logits, &targets, 3.0).unwrap();
            let (loss, gradient) = cross_entropy(logits, &targets, 3.0).unwrap();
            assert!(
                (loss - wanted).abs() <= 2e-7 * wanted.max(1.0),
                "{loss}, {wanted}"
            );
            assert_eq!(loss.to_bits(), alone.to_bits());
            let wanted = numeric_gradient(&xs, |x| plain(x, ids, 3.0));
            assert_close(&gradient, &wanted, 1e-7);
        }
    }

    #[test]
    fn many_classes_lose_no_digits() {
        let device = device();
        let logits = random(&device, [3, 50_257], 1);
        let targets = targets(&device, &[3], 50_257);
        let wanted = plain(&f64s(&logits), targets.u32s().unwrap(), 3.0);
        let loss = cross_entropy_loss(&logits, &targets, 3.0).unwrap();
        assert!((loss - wanted).abs() < 2e-7 * wanted);
        let (again, _) = cross_entropy(logits, &targets, 3.0).unwrap();
        assert_eq!(again.to_bits(), loss.to_bits());
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let logits = Tensor::from_f32(&device(), [2, 2], [3e38, -3e38, 1e4, 1e4]).unwrap();
        let targets = Tensor::from_u32(&device(), [2], vec![0, 1]).unwrap();
        let (loss, gradient) = cross_entropy(logits, &targets, 1.0).unwrap();
        assert!((loss - std::f64::consts::LN_2).abs() < 1e-12);
        assert_eq!(gradient.f32s().unwrap(), [0.0, 0.0, 0.5, -0.5]);
    }

    #[test]
    fn ignored_rows_are_not_even_read() {
        let logits = Tensor::from_f32(&device(), [2, 2], [f32::NAN, 1.0, 0.0, 0.0]).unwrap();
        let targets = Tensor::from_u32(&device(), [2], vec![IGNORE, 0]).unwrap();
        assert_eq!(correct(&logits, &targets).unwrap(), 1);
        let (loss, gradient) = cross_entropy(logits, &targets, 1.0).unwrap();
        assert_eq!(loss, std::f64::consts::LN_2);
        assert_eq!(gradient.f32s().unwrap(), [0.0, 0.0, -0.5, 0.5]);
    }

    #[test]
    fn a_batch_without_targets_has_no_loss_and_no_gradient() {
        let device = device();
        let targets = Tensor::from_u32(&device, [2], vec![IGNORE; 2]).unwrap();
        for divisor in [0.0, 1.0] {
            let logits = random(&device, [2, 3], 1);
            let alone = cross_entropy_loss(&logits, &targets, divisor).unwrap();
            let (loss, gradient) = cross_entropy(logits, &targets, divisor).unwrap();
            assert_eq!((loss, alone), (0.0, 0.0));
            assert_eq!(bits(&gradient), [0; 6]);
        }
    }

    #[test]
    fn logits_are_overwritten_only_if_nothing_else_holds_them() {
        let device = device();
        let logits = random(&device, [2, 3], 1);
        let (kept, before) = (logits.clone(), bits(&logits));
        let targets = targets(&device, &[2], 3);
        let (_, gradient) = cross_entropy(logits, &targets, 1.0).unwrap();
        assert_eq!(bits(&kept), before);
        let place = gradient.f32s().unwrap().as_ptr();
        let (_, again) = cross_entropy(gradient, &targets, 1.0).unwrap();
        assert_eq!(again.f32s().unwrap().as_ptr(), place);
    }

    #[test]
    fn correct_rows_are_counted() {
        let device = device();
        let logits = [
            0.0, 2.0, 1.0, 5.0, 5.0, 5.0, -1.0, -3.0, -2.0, 0.0, 0.0, 9.0,
        ];
        let logits = Tensor::from_f32(&device, [4, 3], logits).unwrap();
        for (targets, wanted) in [
            (vec![1, 0, 0, 2], 4),
            (vec![1, 1, 0, IGNORE], 2),
            (vec![0, 2, 1, 1], 0),
        ] {
            let targets = Tensor::from_u32(&device, [4], targets).unwrap();
            assert_eq!(correct(&logits, &targets).unwrap(), wanted);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        let run = |device: &crate::Device| {
            let logits = random(device, [700, 100], 1);
            cross_entropy(logits, &targets(device, &[700], 100), 525.0).unwrap()
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
        let logits = || random(&device, [2, 3], 1);
        let targets = |all| Tensor::from_u32(&device, [2], all).unwrap();
        let message = cross_entropy(logits(), &targets(vec![0, 3]), 1.0).unwrap_err();
        assert_eq!(
            message.to_string(),
            "cross_entropy: index 3 is outside of 0..3"
        );
        assert!(correct(&logits(), &targets(vec![0, 3])).is_err());
        for divisor in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(cross_entropy_loss(&logits(), &targets(vec![0, 0]), divisor).is_err());
        }
        let longer = Tensor::from_u32(&device, [3], vec![0; 3]).unwrap();
        assert!(matches!(
            cross_entropy(logits(), &longer, 1.0),
            Err(Error::Shape { .. })
        ));
        let none = random(&device, [2, 0], 1);
        assert!(cross_entropy(none.clone(), &targets(vec![0, 0]), 1.0).is_err());
        assert_eq!(
            cross_entropy(none, &targets(vec![IGNORE; 2]), 1.0)
                .unwrap()
                .0,
            0.0
        );
    }
}
