//! The softmax over the innermost extent, of whole rows and of the lower triangle of squares.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::check::check_same_shape;
use super::chunks;
use crate::parallel::rows_per_chunk;
use crate::{Error, Result, Tensor};
use cpu::Reach;

/// e^x / Σ e^x over each row, computed from x − max x, so that nothing overflows.
///
/// # Errors
/// [`Error::DType`] for indices; errors of allocation.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::forward(gpu, x, false);
    }
    forward(x, |_| Reach::Row)
}

/// The gradient with respect to x from the result y and dL/dy.
///
/// Since ∂yᵢ/∂xⱼ = yᵢ(δᵢⱼ − yⱼ), dL/dxⱼ = yⱼ(dL/dyⱼ − Σᵢ yᵢ·dL/dyᵢ).
///
/// # Errors
/// [`Error::Shape`] unless the shapes are the same; errors of allocation.
pub fn softmax_grad(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    const OP: &str = "softmax_grad";
    check_same_shape(OP, y, dy)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = y.gpu() {
        return cuda::backward(OP, gpu, y, dy, false);
    }
    backward(y, dy, |_| Reach::Row)
}

/// The softmax of scores (…, T, T) where row i sees the columns 0..=i only; 0 beyond.
///
/// # Errors
/// [`Error::Shape`] unless the two innermost extents are equal; errors of allocation.
pub fn causal_softmax(scores: &Tensor) -> Result<Tensor> {
    check_square("causal_softmax", scores)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = scores.gpu() {
        return cuda::forward(gpu, scores, true);
    }
    forward(scores, Reach::Triangle)
}

/// The gradient with respect to the scores from the result y and dL/dy: that of [`softmax_grad`] in
/// the triangle, 0 beyond, where nothing was read.
///
/// # Errors
/// [`Error::Shape`] unless the shapes are the same and the two innermost extents equal; errors of
/// allocation.
pub fn causal_softmax_grad(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    const OP: &str = "causal_softmax_grad";
    check_square(OP, y)?;
    check_same_shape(OP, y, dy)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = y.gpu() {
        return cuda::backward(OP, gpu, y, dy, true);
    }
    backward(y, dy, Reach::Triangle)
}

/// `reach` is asked with a chunk's first row.
fn forward(x: &Tensor, reach: fn(usize) -> Reach) -> Result<Tensor> {
    let (width, rows) = cut(x);
    chunks::map(x, rows * width, |index, x, y| {
        cpu::forward(reach(index * rows), width, x, y);
    })
}

fn backward(y: &Tensor, dy: &Tensor, reach: fn(usize) -> Reach) -> Result<Tensor> {
    let (width, rows) = cut(y);
    chunks::map_two(y, dy, rows * width, |index, y, dy, dx| {
        cpu::backward(reach(index * rows), width, y, dy, dx);
    })
}

/// The width of a row and the rows of a chunk; rows without elements make no chunks.
fn cut(x: &Tensor) -> (usize, usize) {
    let width = x.shape().last().max(1);
    (width, rows_per_chunk(width))
}

fn check_square(op: &'static str, x: &Tensor) -> Result<()> {
    match x.shape().dims() {
        [.., rows, columns] if rows == columns => Ok(()),
        _ => Err(Error::shape(op, "scores (…, T, T)", x.shape())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_close, assert_same_bits_for_any_threads, device, f64s, numeric_gradient, random,
    };

    type Forward = fn(&Tensor) -> Result<Tensor>;
    type Backward = fn(&Tensor, &Tensor) -> Result<Tensor>;

    /// The softmax of the first `reach` elements of a row.
    fn plain_row(x: &[f64], reach: usize) -> Vec<f64> {
        let largest = x[..reach].iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = x[..reach].iter().map(|x| (x - largest).exp()).sum();
        let mut y = vec![0.0; x.len()];
        for (y, x) in y.iter_mut().zip(&x[..reach]) {
            *y = (x - largest).exp() / sum;
        }
        y
    }

    fn plain(x: &[f64], width: usize, causal: bool) -> Vec<f64> {
        let rows = x.chunks(width).enumerate();
        rows.flat_map(|(i, x)| plain_row(x, if causal { i % width + 1 } else { width }))
            .collect()
    }

    fn check(shape: &[usize], forward: Forward, backward: Backward, causal: bool) {
        let device = device();
        let width = shape[shape.len() - 1];
        let (x, dy) = (random(&device, shape, 1), random(&device, shape, 2));
        let y = forward(&x).unwrap();
        assert_close(&y, &plain(&f64s(&x), width, causal), 3e-7);
        let weights = f64s(&dy);
        let wanted = numeric_gradient(&f64s(&x), |x| {
            let y = plain(x, width, causal);
            y.iter().zip(&weights).map(|(y, w)| y * w).sum()
        });
        assert_close(&backward(&y, &dy).unwrap(), &wanted, 1e-6);
    }

    #[test]
    fn rows_equal_a_plain_loop_and_finite_differences() {
        for shape in [[1, 1], [3, 2], [2, 15], [4, 16], [3, 17], [2, 33], [1, 200]] {
            check(&shape, softmax, softmax_grad, false);
        }
    }

    #[test]
    fn triangles_equal_a_plain_loop_and_finite_differences() {
        for shape in [[1, 1, 1], [2, 3, 3], [1, 16, 16], [1, 17, 17]] {
            check(&shape, causal_softmax, causal_softmax_grad, true);
        }
    }

    #[test]
    fn triangles_go_on_across_chunks() {
        let x = random(&device(), [3, 150, 150], 1);
        let y = causal_softmax(&x).unwrap();
        assert_close(&y, &plain(&f64s(&x), 150, true), 3e-7);
    }

    #[test]
    fn what_is_above_the_diagonal_is_neither_read_nor_left() {
        let device = device();
        let mut x = random(&device, [5, 5], 1);
        let clean = causal_softmax(&x).unwrap();
        for i in 0..5 {
            x.f32s_mut().unwrap()[i * 5 + i + 1..(i + 1) * 5].fill(f32::NAN);
        }
        let y = causal_softmax(&x).unwrap();
        assert_eq!(y.f32s().unwrap(), clean.f32s().unwrap());
        let dx = causal_softmax_grad(&y, &x).unwrap();
        assert!(dx.f32s().unwrap().iter().all(|x| x.is_finite()));
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let device = device();
        let x = Tensor::from_f32(&device, [2, 3], [1e4, 1e4, -1e4, f32::MAX, 0.0, f32::MIN]);
        let y = softmax(&x.unwrap()).unwrap();
        assert_eq!(y.f32s().unwrap(), [0.5, 0.5, 0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn what_is_not_a_number_fills_its_row_only() {
        let x = Tensor::from_f32(&device(), [2, 2], [f32::NAN, 0.0, 1.0, 1.0]).unwrap();
        let y = softmax(&x).unwrap();
        let y = y.f32s().unwrap();
        assert!(y[0].is_nan() && y[1].is_nan());
        assert_eq!(y[2..], [0.5, 0.5]);
    }

    #[test]
    fn no_elements_are_fine() {
        for shape in [[0, 4], [4, 0]] {
            assert_eq!(softmax(&random(&device(), shape, 1)).unwrap().elements(), 0);
        }
        assert_eq!(
            causal_softmax(&random(&device(), [2, 0, 0], 1))
                .unwrap()
                .elements(),
            0
        );
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let y = softmax(&random(device, [333, 333], 1)).unwrap();
            let dx = softmax_grad(&y, &random(device, [333, 333], 2)).unwrap();
            let y = causal_softmax(&dx).unwrap();
            causal_softmax_grad(&y, &dx).unwrap()
        });
    }

    #[test]
    fn scores_must_be_square() {
        let x = random(&device(), [2, 3], 1);
        let message = causal_softmax(&x).unwrap_err().to_string();
        assert_eq!(message, "causal_softmax: scores (…, T, T), got [2, 3]");
        assert!(causal_softmax_grad(&x, &x).is_err());
        assert!(softmax_grad(&x, &random(&device(), [3, 2], 1)).is_err());
    }
}
