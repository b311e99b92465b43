//! Sums and other reductions, in an order that depends on shapes only.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use std::ops::Range;

use crate::ops::scratch::Scratch;
#[cfg(feature = "cuda")]
use crate::ops::sum::kernels::Reduction;
use crate::parallel::{CHUNK, for_each, for_each_on, threads_over};
use crate::{Error, Result, Tensor};

/// The most columns of a work item of a sum over rows, where it is one block of rows.
const WIDE: usize = 2048;

/// Adds to `out` the sum of `x` over its leading rows: the gradient of a repeated operand, such as a
/// bias (d) or a position table (T, d).
///
/// # Errors
/// [`Error::Shape`] unless the number of `out`'s elements divides that of `x`;
/// [`Error::Shared`] if something else holds `out`.
pub fn sum_rows_accumulate(x: &Tensor, out: &mut Tensor) -> Result<()> {
    let width = out.elements();
    if !x.elements().is_multiple_of(width) {
        let expected = format!("rows of {width} elements");
        return Err(Error::shape("sum_rows_accumulate", expected, x.shape()));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = out.gpu().cloned() {
        return cuda::add_rows(&gpu, x, out);
    }
    let (x, device) = (x.f32s()?, out.device().clone());
    if width == 0 {
        return Ok(());
    }
    let threads = threads_over(&device, x.len());
    // Blocks of whole rows lie one after the other in memory, which is read faster than parts of rows.
    let block = cpu::ROWS * width;
    let together = (CHUNK / block).max(1);
    let columns = match together {
        1 => width.min(WIDE),
        _ => width,
    };
    let mut sums = Scratch::take(&device, x.len().div_ceil(block) * width)?;
    let pieces = sums
        .chunks_mut(together * width)
        .zip(x.chunks(together * block))
        .flat_map(|(sums, x)| {
            let parts = sums.chunks_mut(together * columns).enumerate();
            parts.map(move |(part, sums)| (x, part * columns, sums))
        });
    for_each_on(threads, &device, pieces, |(x, first, sums)| {
        let columns = columns.min(width - first);
        cpu::sum_blocks(x, width, first, columns, sums);
    });
    let columns = out.f32s_mut()?.chunks_mut(cpu::COLUMNS).enumerate();
    for_each_on(threads, &device, columns, |(index, out)| {
        cpu::add_sums(&sums, width, index * cpu::COLUMNS, out);
    });
    Ok(())
}

/// [`sum_rows_accumulate`] to some of the elements of `out` (n): for a bias that several products share.
///
/// # Errors
/// As [`sum_rows_accumulate`], and [`Error::Index`] for elements that `out` lacks.
pub fn sum_rows_accumulate_in(x: &Tensor, out: &mut Tensor, elements: Range<usize>) -> Result<()> {
    out.within_rows(elements, |out| sum_rows_accumulate(x, out))
}

/// The sum of all elements.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn sum(x: &Tensor) -> Result<f64> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        let sums = cuda::Partials::of(gpu, Reduction::Sum, &[x])?.sums()?;
        return Ok(sums.into_iter().sum());
    }
    Ok(partials(x, cpu::sum)?.iter().sum())
}

/// The sum of the squares of all elements, for global norms.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn sum_of_squares(x: &Tensor) -> Result<f64> {
    Ok(sums_of_squares(&[x])?.into_iter().sum())
}

/// [`sum_of_squares`] of each tensor; where they are on one GPU, the host waits but once.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn sums_of_squares(tensors: &[&Tensor]) -> Result<Vec<f64>> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = tensors.first().and_then(|x| x.gpu()) {
        return cuda::Partials::of(gpu, Reduction::Squares, tensors)?.sums();
    }
    let of_one = |x: &&Tensor| Ok(partials(x, cpu::sum_of_squares)?.iter().sum());
    tensors.iter().map(of_one).collect()
}

/// The largest magnitude; 0 for a tensor without elements, NaN if any element is NaN.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn max_abs(x: &Tensor) -> Result<f32> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        let partials = cuda::Partials::of(gpu, Reduction::MaxAbs, &[x])?;
        return Ok(f32::from_bits(partials.largest()?));
    }
    let magnitudes = partials(x, cpu::max_magnitude)?;
    Ok(f32::from_bits(magnitudes.into_iter().max().unwrap_or(0)))
}

/// Whether every element is finite.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn all_finite(x: &Tensor) -> Result<bool> {
    Ok(max_abs(x)?.is_finite())
}

/// The result of `reduce` for each chunk, in order.
fn partials<P: Default + Send>(x: &Tensor, reduce: fn(&[f32]) -> P) -> Result<Vec<P>> {
    let chunks = x.f32s()?.chunks(CHUNK);
    let mut partials: Vec<P> = (0..chunks.len()).map(|_| P::default()).collect();
    for_each(
        x.device(),
        partials.iter_mut().zip(chunks),
        |(partial, chunk)| {
            *partial = reduce(chunk);
        },
    );
    Ok(partials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        THREADS, assert_close, assert_same_bits_for_any_threads, device, device_with, f64s, random,
    };

    #[test]
    fn sums_over_rows_equal_a_plain_loop() {
        let device = device();
        for (x, out) in [
            (vec![1, 1], vec![1]),
            (vec![3, 5], vec![5]),
            (vec![100, 7], vec![7]),
            (vec![2, 50, 300], vec![300]),
            (vec![5, 4, 100], vec![4, 100]),
            (vec![33, 513], vec![513]),
            (vec![0, 4], vec![4]),
            (vec![4, 0], vec![0]),
        ] {
            let x = random(&device, x.as_slice(), 1);
            let mut out = random(&device, out.as_slice(), 2);
            let mut wanted = f64s(&out);
            let width = wanted.len();
            for (i, x) in f64s(&x).iter().enumerate() {
                wanted[i % width] += x;
            }
            sum_rows_accumulate(&x, &mut out).unwrap();
            assert_close(&out, &wanted, 5e-6);
        }
    }

    #[test]
    fn sums_over_rows_add_32_rows_in_single_precision_and_these_in_double() {
        let device = device_with(3);
        for (rows, width) in [(1, 5), (70, 5000), (10_001, 3), (97, 256), (64, 2048)] {
            let x = random(&device, [rows, width], 1);
            let mut out = random(&device, [width], 2);
            let mut wanted = out.f32s().unwrap().to_vec();
            for (column, wanted) in wanted.iter_mut().enumerate() {
                let all = x.f32s().unwrap().iter().skip(column).step_by(width);
                let all: Vec<f32> = all.copied().collect();
                let mut total = 0.0f64;
                for block in all.chunks(32) {
                    let (quads, rest) = block.as_chunks::<4>();
                    let quads = quads.iter().map(|[a, b, c, d]| (a + b) + (c + d));
                    let sum = quads
                        .chain(rest.iter().copied())
                        .fold(0.0, |sum, x| sum + x);
                    total += f64::from(sum);
                }
                *wanted += total as f32;
            }
            sum_rows_accumulate(&x, &mut out).unwrap();
            assert_eq!(out.f32s().unwrap(), wanted);
        }
    }

    #[test]
    fn a_long_sum_over_rows_keeps_its_digits() {
        let device = device();
        let x = Tensor::from_f32(&device, [1 << 20, 1], vec![0.1; 1 << 20]).unwrap();
        let mut out = Tensor::zeros(&device, [1]).unwrap();
        sum_rows_accumulate(&x, &mut out).unwrap();
        // One chain of additions would be off by 1 %.
        assert_close(&out, &[f64::from(0.1f32) * f64::from(1 << 20)], 1e-6);
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let mut out = random(device, [1000], 1);
            sum_rows_accumulate(&random(device, [333, 1000], 2), &mut out).unwrap();
            out
        });
        let both = |threads| {
            let x = random(&device_with(threads), [100_003], 3);
            [sum(&x).unwrap(), sum_of_squares(&x).unwrap()].map(f64::to_bits)
        };
        for threads in THREADS {
            assert_eq!(both(threads), both(1));
        }
    }

    #[test]
    fn whole_sums_equal_a_plain_loop() {
        for n in [0, 1, 15, 16, 17, CHUNK - 1, 3 * CHUNK + 5] {
            let x = random(&device(), [n], 4);
            let (plain, squares) = f64s(&x)
                .iter()
                .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
            assert!((sum(&x).unwrap() - plain).abs() < 1e-8);
            assert!((sum_of_squares(&x).unwrap() - squares).abs() < 1e-8);
        }
    }

    #[test]
    fn one_bad_element_anywhere_is_seen() {
        let device = device();
        assert_eq!(max_abs(&random(&device, [0], 0)).unwrap(), 0.0);
        let mut x = random(&device, [2 * CHUNK + 3], 5);
        assert!(all_finite(&x).unwrap());
        for place in [0, CHUNK - 1, 2 * CHUNK + 2] {
            let floats = x.f32s_mut().unwrap();
            let before = std::mem::replace(&mut floats[place], -7.5);
            assert_eq!(max_abs(&x).unwrap(), 7.5);
            for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
                x.f32s_mut().unwrap()[place] = bad;
                assert!(!all_finite(&x).unwrap());
                assert_eq!(max_abs(&x).unwrap().is_nan(), bad.is_nan());
            }
            x.f32s_mut().unwrap()[place] = before;
        }
    }

    #[test]
    fn a_sum_over_rows_needs_whole_rows() {
        let device = device();
        let mut out = random(&device, [4], 1);
        let outcome = sum_rows_accumulate(&random(&device, [2, 3], 2), &mut out);
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "sum_rows_accumulate: rows of 4 elements, got [2, 3]"
        );
        let mut none = random(&device, [0], 1);
        assert!(sum_rows_accumulate(&random(&device, [2], 2), &mut none).is_err());
    }
}
