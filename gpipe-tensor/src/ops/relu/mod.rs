//! The rectifier y = max(x, 0), and the leaky one.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use super::check::check_same_shape;
use super::chunks;
use crate::parallel::CHUNK;
use crate::{Error, Result, Tensor};

/// max(x, 0), element by element.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for indices; errors of allocation.
pub fn relu(x: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::forward(gpu, x);
    }
    chunks::map(x, CHUNK, |_, x, y| cpu::forward(x, y))
}

/// The gradient with respect to x from the *result* y and dL/dy: the slope is 1 where y > 0, else 0
/// (at x = 0 too), so that a layer keeps its output, which the next layer keeps as its input anyway.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same; errors of allocation.
pub fn relu_grad(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    check_same_shape("relu_grad", y, dy)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = y.gpu() {
        return cuda::backward(gpu, y, dy);
    }
    chunks::map_two(y, dy, CHUNK, |_, y, dy, dx| cpu::backward(y, dy, dx))
}

/// x where it is above 0, else `slope` · x.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) unless the slope is above 0 and finite; as [`relu`].
pub fn leaky_relu(x: &Tensor, slope: f32) -> Result<Tensor> {
    check_slope("leaky_relu", slope)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = x.gpu() {
        return cuda::leaky(gpu, x, slope);
    }
    chunks::map(x, CHUNK, |_, x, y| cpu::leaky(slope, x, y))
}

/// The gradient of [`leaky_relu`] with respect to x from the *result* y, which has the sign of x.
///
/// # Errors
/// As [`leaky_relu`] and [`relu_grad`].
pub fn leaky_relu_grad(y: &Tensor, dy: &Tensor, slope: f32) -> Result<Tensor> {
    const OP: &str = "leaky_relu_grad";
    check_slope(OP, slope)?;
    check_same_shape(OP, y, dy)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = y.gpu() {
        return cuda::leaky_grad(gpu, y, dy, slope);
    }
    chunks::map_two(y, dy, CHUNK, |_, y, dy, dx| {
        cpu::leaky_grad(slope, y, dy, dx)
    })
}

fn check_slope(op: &'static str, slope: f32) -> Result<()> {
    if slope > 0.0 && slope.is_finite() {
        return Ok(());
    }
    let message = format!("a slope of {slope} keeps no sign: use a finite number above 0");
    Err(Error::Argument { op, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits_for_any_threads, device, random};

    #[test]
    fn negative_elements_become_zero_and_pass_no_gradient() {
        let device = device();
        let x = [-1.5, 0.0, 2.5, -0.0, f32::INFINITY, f32::NEG_INFINITY];
        let x = Tensor::from_f32(&device, [2, 3], x).unwrap();
        let y = relu(&x).unwrap();
        assert_eq!(y.f32s().unwrap(), [0.0, 0.0, 2.5, 0.0, f32::INFINITY, 0.0]);
        let dy = Tensor::from_f32(&device, [2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let dx = relu_grad(&y, &dy).unwrap();
        assert_eq!(dx.f32s().unwrap(), [0.0, 0.0, 3.0, 0.0, 5.0, 0.0]);
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        let x = Tensor::from_f32(&device(), [1], [f32::NAN]).unwrap();
        assert!(relu(&x).unwrap().f32s().unwrap()[0].is_nan());
    }

    #[test]
    fn any_number_of_elements() {
        let device = device();
        for n in [0, 1, 15, 16, 17, 33, CHUNK + 1] {
            let x = random(&device, [n], 1);
            let y = relu(&x).unwrap();
            let dx = relu_grad(&y, &x).unwrap();
            let wanted: Vec<f32> = x.f32s().unwrap().iter().map(|x| x.max(0.0)).collect();
            assert_eq!(y.f32s().unwrap(), wanted);
            assert_eq!(dx.f32s().unwrap(), wanted);
        }
    }

    #[test]
    fn a_leaky_one_passes_a_share_of_negative_elements() {
        let device = device();
        for n in [1, 15, 33, CHUNK + 1] {
            let (x, dy) = (random(&device, [n], 1), random(&device, [n], 2));
            let y = leaky_relu(&x, 0.25).unwrap();
            let dx = leaky_relu_grad(&y, &dy, 0.25).unwrap();
            let (xs, dys) = (x.f32s().unwrap(), dy.f32s().unwrap());
            let share = |x: &f32| if *x > 0.0 { 1.0 } else { 0.25 };
            let wanted: Vec<f32> = xs.iter().map(|x| x * share(x)).collect();
            assert_eq!(y.f32s().unwrap(), wanted);
            let wanted = xs.iter().zip(dys).map(|(x, dy)| dy * share(x));
            assert_eq!(dx.f32s().unwrap(), wanted.collect::<Vec<_>>());
        }
        let x = random(&device, [2], 1);
        for slope in [0.0, -0.1, f32::NAN, f32::INFINITY] {
            assert!(leaky_relu(&x, slope).is_err());
            assert!(leaky_relu_grad(&x, &x, slope).is_err());
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let y = relu(&random(device, [100_001], 1)).unwrap();
            relu_grad(&y, &random(device, [100_001], 2)).unwrap()
        });
        assert_same_bits_for_any_threads(|device| {
            let y = leaky_relu(&random(device, [100_001], 1), 0.01).unwrap();
            leaky_relu_grad(&y, &random(device, [100_001], 2), 0.01).unwrap()
        });
    }

    #[test]
    fn other_shapes_are_refused() {
        let device = device();
        let (y, dy) = (random(&device, [2, 3], 1), random(&device, [3, 2], 2));
        assert!(relu_grad(&y, &dy).is_err());
        assert!(relu(&Tensor::from_u32(&device, [1], vec![1]).unwrap()).is_err());
    }
}
