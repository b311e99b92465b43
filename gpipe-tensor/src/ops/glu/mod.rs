//! Gated linear units (Shazeer, arXiv:2002.05202), without their projections.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod gate;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

pub use gate::Gate;

use super::check::check_same_shape;
use super::chunks;
use crate::parallel::{CHUNK, for_each};
use crate::{Result, Tensor};

/// f(gate) · up, element by element, with the function f.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same; errors of allocation.
pub fn glu(function: Gate, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    check_same_shape("glu", gate, up)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = gate.gpu() {
        return cuda::forward(gpu, function, gate, up);
    }
    chunks::map_two(gate, up, CHUNK, |_, gate, up, y| {
        cpu::forward(function, gate, up, y);
    })
}

/// Recomputes y = [`glu`] of both operands and overwrites all three: `gate` and `up` with the gradients
/// with respect to them, and `dy`, the gradient with respect to y, with y itself, which the gradient of the
/// following weight needs.
///
/// dL/dup = dL/dy · f(gate) and dL/dgate = dL/dy · up · f'(gate). Of SiLU with s = σ(x), f'(x) = s + x·s·(1 − s).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same;
/// [`Error::Shared`](crate::Error::Shared) if something else holds one of the tensors.
pub fn glu_with_grad(
    function: Gate,
    gate: &mut Tensor,
    up: &mut Tensor,
    dy: &mut Tensor,
) -> Result<()> {
    const OP: &str = "glu_with_grad";
    check_same_shape(OP, gate, up)?;
    check_same_shape(OP, gate, dy)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = gate.gpu().cloned() {
        return cuda::backward(&gpu, function, gate, up, dy);
    }
    let device = gate.device().clone();
    let chunks = gate
        .f32s_mut()?
        .chunks_mut(CHUNK)
        .zip(up.f32s_mut()?.chunks_mut(CHUNK))
        .zip(dy.f32s_mut()?.chunks_mut(CHUNK));
    for_each(&device, chunks, |((gate, up), dy)| {
        cpu::backward(function, gate, up, dy);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        assert_close, assert_same_bits_for_any_threads, bits, device, f64s, numeric_gradient,
        random,
    };

    const FUNCTIONS: [Gate; 2] = [Gate::Silu, Gate::GeluTanh];

    fn plain(function: Gate, gate: f64, up: f64) -> f64 {
        let exponent = match function {
            Gate::Silu => gate,
            Gate::GeluTanh => {
                (8.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3))
            }
        };
        gate / (1.0 + (-exponent).exp()) * up
    }

    /// Gates from −20 to 20, densely, and factors.
    fn sweep() -> [Tensor; 2] {
        let values: Vec<f32> = (-2_000..=2_000).map(|i| i as f32 * 1e-2).collect();
        let gate = Tensor::from_f32(&device(), [values.len()], values).unwrap();
        let up = random(&device(), [gate.elements()], 2);
        [gate, up]
    }

    #[test]
    fn values_equal_the_definition() {
        for function in FUNCTIONS {
            let [gate, up] = sweep();
            let pairs = f64s(&gate).into_iter().zip(f64s(&up));
            let wanted = pairs.map(|(gate, up)| plain(function, gate, up));
            let wanted: Vec<f64> = wanted.collect();
            assert_close(&glu(function, &gate, &up).unwrap(), &wanted, 3e-7);
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for function in FUNCTIONS {
            let [gate, up] = sweep();
            let dy = random(&device(), [gate.elements()], 3);
            let copy = |tensor: &Tensor| tensor.copy_to(tensor.device()).unwrap();
            let (mut dgate, mut dup, mut y) = (copy(&gate), copy(&up), copy(&dy));
            glu_with_grad(function, &mut dgate, &mut dup, &mut y).unwrap();
            assert_eq!(bits(&y), bits(&glu(function, &gate, &up).unwrap()));
            let slopes = f64s(&gate).into_iter().zip(f64s(&up)).zip(f64s(&dy));
            let wanted = slopes.map(|((gate, up), dy)| {
                let slopes = numeric_gradient(&[gate, up], |x| plain(function, x[0], x[1]));
                [slopes[0] * dy, slopes[1] * dy]
            });
            let (wanted_gate, wanted_up): (Vec<f64>, Vec<f64>) =
                wanted.map(|[gate, up]| (gate, up)).unzip();
            assert_close(&dgate, &wanted_gate, 1e-6);
            assert_close(&dup, &wanted_up, 1e-6);
        }
    }

    #[test]
    fn large_gates_are_passed_or_blocked_exactly() {
        for function in FUNCTIONS {
            let gate = [1e30, -1e30, 200.0, -200.0, f32::NAN];
            let mut gate = Tensor::from_f32(&device(), [5], gate).unwrap();
            let [mut up, mut dy] =
                [2.0, 1.0].map(|x| Tensor::from_f32(&device(), [5], [x; 5]).unwrap());
            let y = glu(function, &gate, &up).unwrap();
            assert_eq!(y.f32s().unwrap()[..4], [2e30, 0.0, 400.0, 0.0]);
            assert!(y.f32s().unwrap()[4].is_nan());
            glu_with_grad(function, &mut gate, &mut up, &mut dy).unwrap();
            assert_eq!(gate.f32s().unwrap()[..4], [2.0, 0.0, 2.0, 0.0]);
            assert!(gate.f32s().unwrap()[4].is_nan());
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        for function in FUNCTIONS {
            assert_same_bits_for_any_threads(|device| {
                let mut gate = random(device, [100_001], 1);
                let [mut up, mut dy] = [2, 3].map(|seed| random(device, [100_001], seed));
                glu_with_grad(function, &mut gate, &mut up, &mut dy).unwrap();
                gate
            });
        }
    }

    #[test]
    fn other_shapes_and_what_others_hold_are_refused() {
        let [mut a, mut b] = [1, 2].map(|seed| random(&device(), [2, 3], seed));
        let mut flat = random(&device(), [6], 3);
        assert!(glu(Gate::Silu, &a, &flat).is_err());
        assert!(glu_with_grad(Gate::Silu, &mut a, &mut b, &mut flat).is_err());
        let mut shared = a.clone();
        assert!(glu_with_grad(Gate::Silu, &mut shared, &mut b, &mut a).is_err());
    }
}
