//! Multiplication by a number; its gradient is the gradient times the same number.

use crate::parallel::{CHUNK, each};
use crate::{Result, Tensor};

/// a · by.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for indices; errors of allocation.
pub fn scale(a: &Tensor, by: f32) -> Result<Tensor> {
    let mut out = Tensor::empty(a.device(), a.shape().clone())?;
    let chunks = out
        .f32s_mut()?
        .chunks_mut(CHUNK)
        .zip(a.f32s()?.chunks(CHUNK));
    each(a.device(), chunks, |(out, a)| {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for (out, a) in out.iter_mut().zip(a) {
                    *out = a * by;
                }
            },
        );
    });
    Ok(out)
}

/// Multiplies every element of `a` by `by`.
///
/// # Errors
/// [`Error::Shared`](crate::Error::Shared) if something else holds `a`.
pub fn scale_assign(a: &mut Tensor, by: f32) -> Result<()> {
    let device = a.device().clone();
    each(&device, a.f32s_mut()?.chunks_mut(CHUNK), |a| {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || a.iter_mut().for_each(|a| *a *= by),
        );
    });
    Ok(())
}
