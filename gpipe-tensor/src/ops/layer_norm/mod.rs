//! Layer normalization (Ba, Kiros and Hinton, arXiv:1607.06450) over the innermost extent.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::check::check_same_shape;
use super::scratch::Scratch;
use crate::parallel::{for_each, for_each_on, rows_per_chunk, threads_over};
use crate::{Error, Result, Tensor};

/// Rows whose parameter gradients are summed before their sum joins the total.
const BLOCK: usize = 32;

/// y = (x − μ)/σ · gain + bias for each row of d elements, where σ² is the mean squared distance from
/// the mean μ, plus `eps`; and the statistics (rows, 2), μ and 1/σ of each row, for the gradient.
///
/// # Errors
/// [`Error::Shape`] unless gain and bias have d elements each; errors of allocation.
pub fn layer_norm(x: &Tensor, gain: &Tensor, bias: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
    const OP: &str = "layer_norm";
    let (rows, width) = x.shape().matrix()?;
    check_param(OP, gain, width)?;
    check_param(OP, bias, width)?;
    let mut y = x.empty_like(x.shape().clone())?;
    let mut stats = match width {
        0 => Tensor::zeros(x.device(), [rows, 2])?,
        _ => Tensor::empty(x.device(), [rows, 2])?,
    };
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        if width > 0 {
            cuda::forward(gpu, [x, gain, bias], eps, &mut y, &mut stats)?;
        }
        return Ok((y, stats));
    }
    if width > 0 {
        let (gain, bias) = (gain.f32s()?, bias.f32s()?);
        let rows = rows_per_chunk(width);
        let out = y.f32s_mut()?.chunks_mut(rows * width);
        let out = out.zip(stats.f32s_mut()?.chunks_mut(rows * 2));
        let chunks = x.f32s()?.chunks(rows * width).zip(out);
        for_each(x.device(), chunks, |(x, (y, stats))| {
            cpu::forward(x, gain, bias, eps, y, stats);
        });
    }
    Ok((y, stats))
}

/// The gradients with respect to x, and with respect to gain and bias as one tensor (2, d), summed
/// over all rows. `onto`, the gradient of a connection around the normalization, is added to that of x, with the bits of
/// [`add`](super::add).
///
/// With x̂ = (x − μ)/σ and g = dL/dy · gain, dL/dgain = Σ dL/dy · x̂ and dL/dbias = Σ dL/dy over the
/// rows. μ and σ depend on every element of a row: ∂x̂ᵢ/∂xⱼ = (δᵢⱼ − 1/d − x̂ᵢx̂ⱼ/d)/σ, hence
/// dL/dxⱼ = (gⱼ − mean(g) − x̂ⱼ · mean(g · x̂))/σ.
///
/// # Errors
/// [`Error::Shape`] if the operands are not those of [`layer_norm`]; errors of allocation.
pub fn layer_norm_grad(
    x: &Tensor,
    stats: &Tensor,
    gain: &Tensor,
    dy: &Tensor,
    onto: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "layer_norm_grad";
    let (rows, width) = x.shape().matrix()?;
    check_param(OP, gain, width)?;
    check_same_shape(OP, x, dy)?;
    if let Some(onto) = onto {
        check_same_shape(OP, x, onto)?;
    }
    if stats.shape().dims() != [rows, 2] {
        return Err(Error::shape(
            OP,
            format!("statistics [{rows}, 2]"),
            stats.shape(),
        ));
    }
    let mut dx = x.empty_like(x.shape().clone())?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu().filter(|_| width > 0) {
        let mut dparams = Tensor::empty(x.device(), [2, width])?;
        cuda::backward(gpu, [x, stats, gain, dy], onto, &mut dx, &mut dparams)?;
        return Ok((dx, dparams));
    }
    let mut dparams = Tensor::zeros(x.device(), [2, width])?;
    if width > 0 {
        let (stats, gain) = (stats.f32s()?, gain.f32s()?);
        let onto = onto.map(Tensor::f32s).transpose()?;
        let blocks = rows.div_ceil(BLOCK);
        let mut sums = Scratch::take(x.device(), blocks * 2 * width)?;
        let operands = x
            .f32s()?
            .chunks(BLOCK * width)
            .zip(dy.f32s()?.chunks(BLOCK * width));
        let operands = operands.zip(stats.chunks(BLOCK * 2));
        let out = dx.f32s_mut()?.chunks_mut(BLOCK * width);
        let out = out.zip(sums.chunks_mut(2 * width));
        for_each_on(
            threads_over(x.device(), x.elements()),
            x.device(),
            operands.zip(out).enumerate(),
            |(block, (((x, dy), stats), (dx, sums)))| {
                let onto = onto.map(|onto| &onto[block * BLOCK * width..][..dx.len()]);
                cpu::backward(x, stats, gain, dy, onto, dx, sums);
            },
        );
        cpu::add_blocks(dparams.f32s_mut()?, &sums);
    }
    Ok((dx, dparams))
}

fn check_param(op: &'static str, param: &Tensor, width: usize) -> Result<()> {
    if param.elements() == width {
        return Ok(());
    }
    let expected = format!("a gain and a bias of {width} elements");
    Err(Error::shape(op, expected, param.shape()))
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

    fn plain(x: &[f64], gain: &[f64], bias: &[f64]) -> Vec<f64> {
        let width = gain.len() as f64;
        let row = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / width;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width;
            let deviation = (variance + f64::from(EPS)).sqrt();
            let params = gain.iter().zip(bias);
            let y = x
                .iter()
                .zip(params)
                .map(|(x, (gain, bias))| (x - mean) / deviation * gain + bias);
            y.collect::<Vec<_>>()
        };
        x.chunks(gain.len()).flat_map(row).collect()
    }

    fn params(device: &crate::Device, width: usize) -> [Tensor; 2] {
        [random(device, [width], 2), random(device, [width], 3)]
    }

    #[test]
    fn rows_equal_a_plain_loop() {
        let device = device();
        for shape in [
            [3, 2],
            [2, 15],
            [4, 16],
            [3, 17],
            [2, 33],
            [65, 100],
            [2, 1025],
        ] {
            let x = random(&device, shape, 1);
            let [gain, bias] = params(&device, shape[1]);
            let (y, stats) = layer_norm(&x, &gain, &bias, EPS).unwrap();
            assert_close(&y, &plain(&f64s(&x), &f64s(&gain), &f64s(&bias)), 2e-6);
            assert_eq!(stats.shape().dims(), [shape[0], 2]);
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        let device = device();
        for shape in [[1, 2], [2, 15], [3, 16], [33, 3], [65, 2], [2, 17], [1, 33]] {
            let width = shape[1];
            // Stretched, so that a row of two is not close to constant.
            let x = crate::ops::scale(&random(&device, shape, 1), 3.0).unwrap();
            let dy = random(&device, shape, 4);
            let [gain, bias] = params(&device, width);
            let (_, stats) = layer_norm(&x, &gain, &bias, EPS).unwrap();
            let (dx, dparams) = layer_norm_grad(&x, &stats, &gain, &dy, None).unwrap();
            assert_eq!(dparams.shape().dims(), [2, width]);
            let weights = f64s(&dy);
            let inner = |y: Vec<f64>| y.iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>();
            let [xs, gains, biases] = [&x, &gain, &bias].map(f64s);
            let wanted = numeric_gradient(&xs, |x| inner(plain(x, &gains, &biases)));
            assert_close(&dx, &wanted, 5e-6);
            let mut wanted = numeric_gradient(&gains, |gain| inner(plain(&xs, gain, &biases)));
            wanted.extend(numeric_gradient(&biases, |bias| {
                inner(plain(&xs, &gains, bias))
            }));
            assert_close(&dparams, &wanted, 5e-6);
        }
    }

    #[test]
    fn rows_far_from_zero_keep_their_digits() {
        let device = device();
        let x: Vec<f32> = (0..256).map(|i| 1000.0 + (i % 2) as f32).collect();
        let x = Tensor::from_f32(&device, [1, 256], x).unwrap();
        let gain = Tensor::from_f32(&device, [256], [1.0; 256]).unwrap();
        let bias = Tensor::zeros(&device, [256]).unwrap();
        let (y, _) = layer_norm(&x, &gain, &bias, 0.0).unwrap();
        let wanted: Vec<f64> = (0..256).map(|i| f64::from(i % 2) * 2.0 - 1.0).collect();
        assert_close(&y, &wanted, 1e-6);
    }

    #[test]
    fn a_row_of_one_element_is_its_bias() {
        let device = device();
        let x = random(&device, [3, 1], 1);
        let [gain, bias] = params(&device, 1);
        let (y, stats) = layer_norm(&x, &gain, &bias, EPS).unwrap();
        assert_eq!(y.f32s().unwrap(), bias.f32s().unwrap().repeat(3));
        let (dx, _) = layer_norm_grad(&x, &stats, &gain, &y, None).unwrap();
        assert_eq!(dx.f32s().unwrap(), [0.0; 3]);
    }

    #[test]
    fn no_elements_are_fine() {
        let device = device();
        for shape in [[0, 4], [4, 0]] {
            let x = random(&device, shape, 1);
            let [gain, bias] = params(&device, shape[1]);
            let (y, stats) = layer_norm(&x, &gain, &bias, EPS).unwrap();
            let (dx, dparams) = layer_norm_grad(&x, &stats, &gain, &y, None).unwrap();
            assert_eq!(dx.shape(), x.shape());
            assert!(dparams.f32s().unwrap().iter().all(|&x| x == 0.0));
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        let gradients = |device: &crate::Device| {
            let x = random(device, [10, 33, 100], 1);
            let [gain, bias] = params(device, 100);
            let (y, stats) = layer_norm(&x, &gain, &bias, EPS).unwrap();
            layer_norm_grad(&x, &stats, &gain, &y, None).unwrap()
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
                let [gain, bias] = params(&device, shape[1]);
                let (_, stats) = layer_norm(&x, &gain, &bias, EPS).unwrap();
                let (mut dx, dparams) = layer_norm_grad(&x, &stats, &gain, &dy, None).unwrap();
                let onto = layer_norm_grad(&x, &stats, &gain, &dy, Some(&other)).unwrap();
                add_assign(&mut dx, &other).unwrap();
                assert_eq!(bits(&onto.0), bits(&dx), "{shape:?}");
                assert_eq!(bits(&onto.1), bits(&dparams), "{shape:?}");
            }
        }
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let device = device();
        let x = random(&device, [2, 4], 1);
        let [gain, bias] = params(&device, 4);
        let [short, _] = params(&device, 3);
        let message = layer_norm(&x, &gain, &short, EPS).unwrap_err().to_string();
        assert_eq!(
            message,
            "layer_norm: a gain and a bias of 4 elements, got [3]"
        );
        let (y, stats) = layer_norm(&x, &gain, &bias, EPS).unwrap();
        assert!(layer_norm_grad(&x, &stats, &short, &y, None).is_err());
        assert!(layer_norm_grad(&x, &y, &gain, &y, None).is_err());
        assert!(layer_norm_grad(&x, &stats, &gain, &stats, None).is_err());
        assert!(layer_norm_grad(&x, &stats, &gain, &y, Some(&gain)).is_err());
    }
}
