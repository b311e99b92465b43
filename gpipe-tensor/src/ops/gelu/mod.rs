//! The Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415).

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod form;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

pub(super) use cpu::both_of_tanh_form;
pub use form::Gelu;

use super::check::check_same_shape;
use super::chunks;
use crate::parallel::{CHUNK, for_each};
use crate::{Result, Tensor};

/// GELU, element by element.
///
/// The tanh form is computed as x·σ(2u), which equals ½x(1 + tanh u) and does not cancel for
/// negative x; the erf form uses Φ with its relative accuracy for the same reason.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for indices; errors of allocation.
pub fn gelu(x: &Tensor, form: Gelu) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::forward(gpu, x, form);
    }
    chunks::map(x, CHUNK, |_, x, y| cpu::forward(form, x, y))
}

/// The gradient with respect to x from x and dL/dy.
///
/// With φ = Φ' the density of the normal distribution, d(x·Φ(x))/dx = Φ(x) + x·φ(x). For the tanh
/// form with s = σ(2u), d(x·s)/dx = s + x·s(1 − s)·2u', where 2u' = 2√(2/π)(1 + 3·0.044715·x²).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same; errors of allocation.
pub fn gelu_grad(x: &Tensor, dy: &Tensor, form: Gelu) -> Result<Tensor> {
    check_same_shape("gelu_grad", x, dy)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::backward(gpu, x, dy, form);
    }
    chunks::map_two(x, dy, CHUNK, |_, x, dy, dx| cpu::backward(form, x, dy, dx))
}

/// Recomputes GELU of x, for a backward pass that did not keep it, and overwrites `dy` with the gradient
/// with respect to x: the same bits as [`gelu`] and [`gelu_grad`], at little more than the cost of one of
/// them.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same;
/// [`Error::Shared`](crate::Error::Shared) if something else holds `dy`; errors of allocation.
pub fn gelu_with_grad(x: &Tensor, dy: &mut Tensor, form: Gelu) -> Result<Tensor> {
    check_same_shape("gelu_with_grad", x, dy)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::with_grad(gpu, x, dy, form);
    }
    let mut y = Tensor::empty(x.device(), x.shape().clone())?;
    let outputs = y
        .f32s_mut()?
        .chunks_mut(CHUNK)
        .zip(dy.f32s_mut()?.chunks_mut(CHUNK));
    let chunks = x.f32s()?.chunks(CHUNK).zip(outputs);
    for_each(x.device(), chunks, |(x, (y, dy))| {
        cpu::both(form, x, y, dy);
    });
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_close, assert_same_bits_for_any_threads, bits, device, f64s, numeric_gradient,
        random,
    };

    const FORMS: [Gelu; 2] = [Gelu::Tanh, Gelu::Erf];

    fn plain(x: f64, form: Gelu) -> f64 {
        let argument = match form {
            Gelu::Tanh => (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3)),
            Gelu::Erf => return 0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2),
        };
        // ½(1 + tanh u) without cancellation.
        x / (1.0 + (-2.0 * argument).exp())
    }

    /// From −20 to 20, densely.
    fn sweep() -> Tensor {
        let values: Vec<f32> = (-20_000..=20_000).map(|i| i as f32 * 1e-3).collect();
        Tensor::from_f32(&device(), [values.len()], values).unwrap()
    }

    #[test]
    fn both_forms_equal_a_plain_loop() {
        for form in FORMS {
            let x = sweep();
            let wanted: Vec<f64> = f64s(&x).iter().map(|&x| plain(x, form)).collect();
            assert_close(&gelu(&x, form).unwrap(), &wanted, 2e-7);
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for form in FORMS {
            let x = sweep();
            let dy = random(&device(), [x.elements()], 3);
            let slopes = f64s(&x)
                .into_iter()
                .zip(f64s(&dy))
                .map(|(x, dy)| numeric_gradient(&[x], |x| plain(x[0], form))[0] * dy);
            let wanted: Vec<f64> = slopes.collect();
            assert_close(&gelu_grad(&x, &dy, form).unwrap(), &wanted, 1e-6);
        }
    }

    #[test]
    fn large_inputs_are_passed_or_blocked_exactly() {
        let x = [1e30, -1e30, f32::MAX, f32::MIN, 17.0, -17.0];
        let x = Tensor::from_f32(&device(), [6], x).unwrap();
        let ones = Tensor::from_f32(&device(), [6], [1.0; 6]).unwrap();
        for form in FORMS {
            let y = gelu(&x, form).unwrap();
            assert_eq!(y.f32s().unwrap(), [1e30, 0.0, f32::MAX, 0.0, 17.0, 0.0]);
            let dx = gelu_grad(&x, &ones, form).unwrap();
            assert_eq!(dx.f32s().unwrap(), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        let x = Tensor::from_f32(&device(), [1], [f32::NAN]).unwrap();
        for form in FORMS {
            assert!(gelu(&x, form).unwrap().f32s().unwrap()[0].is_nan());
            assert!(gelu_grad(&x, &x, form).unwrap().f32s().unwrap()[0].is_nan());
        }
    }

    #[test]
    fn the_place_in_the_tensor_does_not_matter() {
        let device = device();
        for form in FORMS {
            let long = random(&device, [CHUNK + 33], 1);
            let whole = gelu(&long, form).unwrap();
            for n in [1, 15, 16, 17, 33] {
                let run = CHUNK + 33 - n..CHUNK + 33;
                let part = gelu(&long.rows(run.clone()).unwrap(), form).unwrap();
                assert_eq!(part.f32s().unwrap(), &whole.f32s().unwrap()[run]);
            }
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        for form in FORMS {
            assert_same_bits_for_any_threads(|device| {
                let x = random(device, [100_001], 1);
                gelu_grad(&x, &gelu(&x, form).unwrap(), form).unwrap()
            });
        }
    }

    #[test]
    fn both_at_once_are_the_two_one_by_one() {
        let x = sweep();
        let dy = random(&device(), [x.elements()], 3);
        for form in FORMS {
            let mut over = dy.copy_to(&device()).unwrap();
            let y = gelu_with_grad(&x, &mut over, form).unwrap();
            assert_eq!(bits(&y), bits(&gelu(&x, form).unwrap()));
            assert_eq!(bits(&over), bits(&gelu_grad(&x, &dy, form).unwrap()));
        }
    }

    #[test]
    fn other_shapes_and_what_others_hold_are_refused() {
        let (x, mut dy) = (random(&device(), [2, 3], 1), random(&device(), [6], 2));
        assert!(gelu_grad(&x, &dy, Gelu::Erf).is_err());
        assert!(gelu_with_grad(&x, &mut dy, Gelu::Erf).is_err());
        let mut shared = x.clone();
        assert!(gelu_with_grad(&x, &mut shared, Gelu::Erf).is_err());
    }
}
