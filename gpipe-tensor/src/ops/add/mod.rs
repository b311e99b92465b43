//! Sums of tensors: residual connections, position tables. The gradient of a sum is the gradient
//! itself, summed over the rows where an operand was repeated.

use crate::parallel::{CHUNK, each};
use crate::{Error, Result, Tensor};

/// a + b, where the shape of `b` is that of `a` or its innermost extents; then it is repeated.
///
/// # Errors
/// [`Error::Shape`] if `b` does not fit; errors of allocation.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    check("add", a, b)?;
    let mut out = Tensor::empty(a.device(), a.shape().clone())?;
    let (a_floats, b) = (a.f32s()?, b.f32s()?);
    let chunks = chunks_of_both(out.f32s_mut()?, b);
    each(a.device(), chunks, |(start, out, b)| {
        let a = &a_floats[start..start + out.len()];
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                    *out = a + b;
                }
            },
        );
    });
    Ok(out)
}

/// Adds `b` to `a` in place; shapes as for [`add`].
///
/// # Errors
/// [`Error::Shape`] if `b` does not fit; [`Error::Shared`] if something else holds `a`.
pub fn add_assign(a: &mut Tensor, b: &Tensor) -> Result<()> {
    check("add_assign", a, b)?;
    let device = a.device().clone();
    let chunks = chunks_of_both(a.f32s_mut()?, b.f32s()?);
    each(&device, chunks, |(_, a, b)| {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for (a, b) in a.iter_mut().zip(b) {
                    *a += b;
                }
            },
        );
    });
    Ok(())
}

fn check(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.shape().dims().ends_with(b.shape().dims()) {
        return Ok(());
    }
    let expected = format!("a second operand that ends the shape {}", a.shape());
    Err(Error::shape(op, expected, b.shape()))
}

/// Chunks of `a` that each meet one run of `b`, which is repeated: where the chunk begins, the
/// chunk, the run.
fn chunks_of_both<'a>(
    a: &'a mut [f32],
    b: &'a [f32],
) -> impl Iterator<Item = (usize, &'a mut [f32], &'a [f32])> + Send {
    let width = b.len().max(1);
    a.chunks_mut(width).enumerate().flat_map(move |(row, a)| {
        let parts = a.chunks_mut(CHUNK).zip(b.chunks(CHUNK)).enumerate();
        parts.map(move |(part, (a, b))| (row * width + part * CHUNK, a, b))
    })
}
