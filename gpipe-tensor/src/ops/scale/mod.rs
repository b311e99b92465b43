//! Multiplication by a number; its gradient is the gradient times the same number. Zeros for many tensors.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
mod zeros;

use crate::parallel::{CHUNK, for_each};
use crate::simd::vectorised;
use crate::{Result, Tensor};

pub use zeros::Zeros;

/// a · by.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for indices; errors of allocation.
pub fn scale(a: &Tensor, by: f32) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = a.gpu() {
        return cuda::scale(gpu, a, by);
    }
    let mut out = Tensor::empty(a.device(), a.shape().clone())?;
    let chunks = out
        .f32s_mut()?
        .chunks_mut(CHUNK)
        .zip(a.f32s()?.chunks(CHUNK));
    for_each(a.device(), chunks, |(out, a)| {
        vectorised!({
            for (out, a) in out.iter_mut().zip(a) {
                *out = a * by;
            }
        });
    });
    Ok(out)
}

/// Multiplies every element of `a` by `by`.
///
/// # Errors
/// [`Error::Shared`](crate::Error::Shared) if something else holds `a`.
pub fn scale_assign(a: &mut Tensor, by: f32) -> Result<()> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = a.gpu().cloned() {
        return cuda::scale_assign(&gpu, a, by);
    }
    let device = a.device().clone();
    for_each(&device, a.f32s_mut()?.chunks_mut(CHUNK), |a| {
        vectorised!(a.iter_mut().for_each(|a| *a *= by));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits_for_any_threads, bits, device, random};

    #[test]
    fn both_forms_multiply_every_element() {
        for n in [0, 1, 5, 17, CHUNK + 3] {
            let mut a = random(&device(), [n], 1);
            let floats = a.f32s().unwrap();
            let wanted: Vec<u32> = floats.iter().map(|a| (a * -0.3).to_bits()).collect();
            assert_eq!(bits(&scale(&a, -0.3).unwrap()), wanted);
            scale_assign(&mut a, -0.3).unwrap();
            assert_eq!(bits(&a), wanted);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let mut a = scale(&random(device, [100_001], 1), 1.7).unwrap();
            scale_assign(&mut a, 0.1).unwrap();
            a
        });
    }
}
