//! Root mean square normalization (Zhang and Sennrich, arXiv:1910.07467) over the innermost extent.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::check::check_same_shape;
use super::scratch::Scratch;
use crate::parallel::{for_each, for_each_on, rows_per_chunk, threads_over};
use crate::{Error, Result, Tensor};

/// Rows whose gradients of the gain are summed before their sum joins the total.
const BLOCK: usize = 32;

/// The factors of the elements of a normalized row.
#[derive(Clone, Copy, Debug)]
pub struct Gain<'a> {
    /// (d)
    pub values: &'a Tensor,
    /// Added to each of the values: 1 for those that are stored as their differences from 1, else 0.
    pub base: f32,
}

impl<'a> From<&'a Tensor> for Gain<'a> {
    fn from(values: &'a Tensor) -> Self {
        Self { values, base: 0.0 }
    }
}

/// y = x·r · gain for each row of d elements, where 1/r² is the mean of the row's squares plus `eps`;
/// and r of each row (rows), of single precision, for the gradient.
///
/// # Errors
/// [`Error::Shape`] unless the gain has d elements; errors of allocation.
pub fn rms_norm<'a>(x: &Tensor, gain: impl Into<Gain<'a>>, eps: f32) -> Result<(Tensor, Tensor)> {
    let (rows, width) = x.shape().matrix()?;
    let Gain { values: gain, base } = gain.into();
    check_gain("rms_norm", gain, width)?;
    let mut y = x.empty_like(x.shape().clone())?;
    if x.elements() == 0 {
        return Ok((y, Tensor::zeros(x.device(), [rows])?));
    }
    let mut inverse = Tensor::empty(x.device(), [rows])?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        cuda::forward(gpu, [x, gain], [base, eps], &mut y, &mut inverse)?;
        return Ok((y, inverse));
    }
    let gain = gain.f32s()?;
    let rows = rows_per_chunk(width);
    let out = y.f32s_mut()?.chunks_mut(rows * width);
    let out = out.zip(inverse.f32s_mut()?.chunks_mut(rows));
    let chunks = x.f32s()?.chunks(rows * width).zip(out);
    for_each(x.device(), chunks, |(x, (y, inverse))| {
        cpu::forward(x, (gain, base), eps, y, inverse);
    });
    Ok((y, inverse))
}

/// The gradients with respect to x and to the gain (d), the latter of single precision and summed over
/// all rows. `onto`, the gradient of a connection around the normalization, is added to that of x, with the bits of
/// [`add`](super::add).
///
/// With x̂ = x·r and g = dL/dy · gain, dL/dgain = Σ dL/dy · x̂ over the rows. r depends on every element of
/// a row: ∂x̂ᵢ/∂xⱼ = r·(δᵢⱼ − x̂ᵢx̂ⱼ/d), hence dL/dxⱼ = r·(gⱼ − x̂ⱼ · mean(g · x̂)).
///
/// # Errors
/// [`Error::Shape`] if the operands are not those of [`rms_norm`]; errors of allocation.
pub fn rms_norm_grad<'a>(
    x: &Tensor,
    inverse: &Tensor,
    gain: impl Into<Gain<'a>>,
    dy: &Tensor,
    onto: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "rms_norm_grad";
    let (rows, width) = x.shape().matrix()?;
    let Gain { values: gain, base } = gain.into();
    check_gain(OP, gain, width)?;
    check_same_shape(OP, x, dy)?;
    if let Some(onto) = onto {
        check_same_shape(OP, x, onto)?;
    }
    if inverse.shape().dims() != [rows] {
        let expected = format!("a factor for each of {rows} rows");
        return Err(Error::shape(OP, expected, inverse.shape()));
    }
    let mut dx = x.empty_like(x.shape().clone())?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu().filter(|_| x.elements() > 0) {
        let mut dgain = Tensor::empty(x.device(), [width])?;
        cuda::backward(gpu, [x, inverse, gain, dy], base, onto, &mut dx, &mut dgain)?;
        return Ok((dx, dgain));
    }
    let mut dgain = Tensor::zeros(x.device(), [width])?;
    if x.elements() == 0 {
        return Ok((dx, dgain));
    }
    let (inverse, gain) = (inverse.f32s()?, gain.f32s()?);
    let onto = onto.map(Tensor::f32s).transpose()?;
    let mut sums = Scratch::take(x.device(), rows.div_ceil(BLOCK) * width)?;
    let operands = x
        .f32s()?
        .chunks(BLOCK * width)
        .zip(dy.f32s()?.chunks(BLOCK * width))
        .zip(inverse.chunks(BLOCK));
    let out = dx.f32s_mut()?.chunks_mut(BLOCK * width);
    let out = out.zip(sums.chunks_mut(width));
    for_each_on(
        threads_over(x.device(), x.elements()),
        x.device(),
        operands.zip(out).enumerate(),
        |(block, (((x, dy), inverse), (dx, sums)))| {
            let onto = onto.map(|onto| &onto[block * BLOCK * width..][..dx.len()]);
            cpu::backward(x, inverse, (gain, base), dy, onto, dx, sums);
        },
    );
    let total = dgain.f32s_mut()?;
    for block in sums.chunks_exact(width) {
        total.iter_mut().zip(block).for_each(|(sum, x)| *sum += x);
    }
    Ok((dx, dgain))
}

fn check_gain(op: &'static str, gain: &Tensor, width: usize) -> Result<()> {
    if gain.elements() == width {
        return Ok(());
    }
    let expected = format!("a gain of {width} elements");
    Err(Error::shape(op, expected, gain.shape()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::add_assign;
    use crate::testing::{
        assert_close, assert_same_bits_for_any_threads, bits, device, device_with, f64s,
        numeric_gradient, random,
    };

    const EPS: f32 = 1e-5;

    fn plain(x: &[f64], gain: &[f64]) -> Vec<f64> {
        let row = |x: &[f64]| {
            let squares = x.iter().map(|x| x * x).sum::<f64>() / gain.len() as f64;
            let deviation = (squares + f64::from(EPS)).sqrt();
            let y = x.iter().zip(gain).map(|(x, gain)| x / deviation * gain);
            y.collect::<Vec<_>>()
        };
        x.chunks(gain.len()).flat_map(row).collect()
    }

    #[test]
    fn rows_equal_a_plain_loop() {
        let device = device();
        for shape in [[3, 1], [3, 2], [4, 16], [2, 33], [65, 100], [2, 1025]] {
            let (x, gain) = (random(&device, shape, 1), random(&device, [shape[1]], 2));
            let (y, inverse) = rms_norm(&x, &gain, EPS).unwrap();
            assert_close(&y, &plain(&f64s(&x), &f64s(&gain)), 2e-6);
            assert_eq!(inverse.shape().dims(), [shape[0]]);
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        let device = device();
        for shape in [[1, 2], [2, 15], [3, 16], [33, 3], [65, 2], [1, 33]] {
            let (x, dy) = (random(&device, shape, 1), random(&device, shape, 4));
            let gain = random(&device, [shape[1]], 2);
            let (_, inverse) = rms_norm(&x, &gain, EPS).unwrap();
            let (dx, dgain) = rms_norm_grad(&x, &inverse, &gain, &dy, None).unwrap();
            let (xs, gains, weights) = (f64s(&x), f64s(&gain), f64s(&dy));
            let inner = |y: Vec<f64>| y.iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>();
            let wanted = numeric_gradient(&xs, |x| inner(plain(x, &gains)));
            assert_close(&dx, &wanted, 1e-5);
            let wanted = numeric_gradient(&gains, |gain| inner(plain(&xs, gain)));
            assert_close(&dgain, &wanted, 5e-6);
        }
    }

    #[test]
    fn a_base_is_added_to_the_gain() {
        let device = device();
        let [x, dy] = [1, 4].map(|seed| random(&device, [5, 33], seed));
        let stored = random(&device, [33], 2);
        let whole: Vec<f32> = stored
            .f32s()
            .unwrap()
            .iter()
            .map(|gain| gain + 1.0)
            .collect();
        let whole = Tensor::from_f32(&device, [33], whole).unwrap();
        let gain = Gain {
            values: &stored,
            base: 1.0,
        };
        let (y, inverse) = rms_norm(&x, gain, EPS).unwrap();
        assert_eq!(bits(&y), bits(&rms_norm(&x, &whole, EPS).unwrap().0));
        let got = rms_norm_grad(&x, &inverse, gain, &dy, None).unwrap();
        let wanted = rms_norm_grad(&x, &inverse, &whole, &dy, None).unwrap();
        assert_eq!(bits(&got.0), bits(&wanted.0));
        assert_eq!(bits(&got.1), bits(&wanted.1));
    }

    #[test]
    fn no_elements_are_fine() {
        let device = device();
        for shape in [[0, 4], [4, 0]] {
            let (x, gain) = (random(&device, shape, 1), random(&device, [shape[1]], 2));
            let (y, inverse) = rms_norm(&x, &gain, EPS).unwrap();
            let (dx, dgain) = rms_norm_grad(&x, &inverse, &gain, &y, None).unwrap();
            assert_eq!(dx.shape(), x.shape());
            assert!(dgain.f32s().unwrap().iter().all(|&x| x == 0.0));
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        let gradients = |device: &crate::Device| {
            let (x, gain) = (random(device, [10, 33, 100], 1), random(device, [100], 2));
            let (y, inverse) = rms_norm(&x, &gain, EPS).unwrap();
            rms_norm_grad(&x, &inverse, &gain, &y, None).unwrap()
        };
        assert_same_bits_for_any_threads(|device| gradients(device).0);
        assert_same_bits_for_any_threads(|device| gradients(device).1);
    }

    #[test]
    fn a_gradient_onto_another_has_the_bits_of_their_sum() {
        for threads in [1, 3] {
            let device = device_with(threads);
            for shape in [[1, 2], [33, 3], [65, 2], [40, 1025], [0, 4]] {
                let [x, dy, other] = [1, 4, 5].map(|seed| random(&device, shape, seed));
                let gain = random(&device, [shape[1]], 2);
                let (_, inverse) = rms_norm(&x, &gain, EPS).unwrap();
                let (mut dx, dgain) = rms_norm_grad(&x, &inverse, &gain, &dy, None).unwrap();
                let onto = rms_norm_grad(&x, &inverse, &gain, &dy, Some(&other)).unwrap();
                add_assign(&mut dx, &other).unwrap();
                assert_eq!(bits(&onto.0), bits(&dx), "{shape:?}");
                assert_eq!(bits(&onto.1), bits(&dgain), "{shape:?}");
            }
        }
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let device = device();
        let (x, gain) = (random(&device, [2, 4], 1), random(&device, [4], 2));
        let short = random(&device, [3], 2);
        let message = rms_norm(&x, &short, EPS).unwrap_err().to_string();
        assert_eq!(message, "rms_norm: a gain of 4 elements, got [3]");
        let (y, inverse) = rms_norm(&x, &gain, EPS).unwrap();
        assert!(rms_norm_grad(&x, &inverse, &short, &y, None).is_err());
        assert!(rms_norm_grad(&x, &y, &gain, &y, None).is_err());
        assert!(rms_norm_grad(&x, &inverse, &gain, &inverse, None).is_err());
        assert!(rms_norm_grad(&x, &inverse, &gain, &y, Some(&gain)).is_err());
    }
}
