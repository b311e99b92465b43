//! Sums of tensors: residual connections, position tables. The gradient of a sum is the gradient
//! itself, summed over the rows where an operand was repeated.

#[cfg(feature = "cuda")]
pub(in crate::ops) mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;

use crate::parallel::{CHUNK, for_each_on, rows_per_chunk, threads_over};
use crate::simd::vectorised;
use crate::{Error, Result, Tensor};

/// a + b, where the shape of `b` is that of `a` or its innermost extents; then it is repeated.
///
/// # Errors
/// [`Error::Shape`] if `b` does not fit; errors of allocation.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    check("add", a, b)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = a.gpu() {
        return cuda::add(gpu, a, b);
    }
    let mut out = Tensor::empty(a.device(), a.shape().clone())?;
    let (a_floats, b) = (a.f32s()?, b.f32s()?);
    let chunks = chunks_of_both(out.f32s_mut()?, b);
    let threads = threads_over(a.device(), a.elements());
    for_each_on(threads, a.device(), chunks, |(start, out, b)| {
        let a = &a_floats[start..start + out.len()];
        vectorised!({
            for (out, a) in out.chunks_mut(b.len()).zip(a.chunks(b.len())) {
                for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                    *out = a + b;
                }
            }
        });
    });
    Ok(out)
}

/// Adds `b` to `a` in place; shapes as for [`add`].
///
/// # Errors
/// [`Error::Shape`] if `b` does not fit; [`Error::Shared`] if something else holds `a`.
pub fn add_assign(a: &mut Tensor, b: &Tensor) -> Result<()> {
    check("add_assign", a, b)?;
    #[cfg(feature = "cuda")]
    if let Some(gpu) = a.gpu().cloned() {
        return cuda::add_assign(&gpu, a, b);
    }
    let device = a.device().clone();
    let threads = threads_over(&device, a.elements());
    let chunks = chunks_of_both(a.f32s_mut()?, b.f32s()?);
    for_each_on(threads, &device, chunks, |(_, a, b)| {
        vectorised!({
            for a in a.chunks_mut(b.len()) {
                for (a, b) in a.iter_mut().zip(b) {
                    *a += b;
                }
            }
        });
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

/// Chunks of `a` and what of `b` they meet, from their first element on and again for as many rows as they hold: where
/// the chunk begins, the chunk, the run. Rows of `b` are never empty, since those of `a` would be so too.
fn chunks_of_both<'a>(
    a: &'a mut [f32],
    b: &'a [f32],
) -> impl Iterator<Item = (usize, &'a mut [f32], &'a [f32])> + Send {
    let width = b.len().max(1);
    // Elements of some whole rows, which are a chunk together, or of one that is cut into several.
    let some_rows = rows_per_chunk(width) * width;
    let most = if width > CHUNK { CHUNK } else { some_rows };
    a.chunks_mut(some_rows).enumerate().flat_map(move |(i, a)| {
        let parts = a.chunks_mut(most).zip(b.chunks(CHUNK)).enumerate();
        parts.map(move |(part, (a, b))| (i * some_rows + part * CHUNK, a, b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits_for_any_threads, bits, device, random};

    #[test]
    fn both_forms_add_element_by_element_and_repeat_the_second_operand() {
        let device = device();
        for (a, b) in [
            (vec![2, 3, 5], vec![2, 3, 5]),
            (vec![2, 3, 5], vec![3, 5]),
            (vec![2, 3, 5], vec![5]),
            (vec![2, 3, 5], vec![]),
            (vec![3, CHUNK + 1], vec![CHUNK + 1]),
            (vec![3, CHUNK], vec![CHUNK]),
            (vec![3, CHUNK / 2 + 1], vec![CHUNK / 2 + 1]),
            (vec![2 * CHUNK, 3], vec![3]),
            (vec![CHUNK + 7, 1], vec![1]),
            (vec![0, 4], vec![4]),
            (vec![4, 0], vec![0]),
        ] {
            let mut a = random(&device, a.as_slice(), 1);
            let b = random(&device, b.as_slice(), 2);
            let (x, y) = (a.f32s().unwrap(), b.f32s().unwrap());
            let wanted: Vec<u32> = x
                .iter()
                .zip(y.iter().cycle())
                .map(|(x, y)| (x + y).to_bits())
                .collect();
            assert_eq!(bits(&add(&a, &b).unwrap()), wanted);
            add_assign(&mut a, &b).unwrap();
            assert_eq!(bits(&a), wanted);
        }
    }

    #[test]
    fn threads_do_not_change_the_bits() {
        assert_same_bits_for_any_threads(|device| {
            let mut sum = random(device, [7, 20_000], 1);
            add_assign(&mut sum, &random(device, [20_000], 2)).unwrap();
            add(&sum, &sum).unwrap()
        });
    }

    #[test]
    fn shapes_that_do_not_end_alike_are_refused() {
        let device = device();
        let mut a = random(&device, [2, 3], 1);
        let b = random(&device, [2], 2);
        let message = add(&a, &b).unwrap_err().to_string();
        assert_eq!(
            message,
            "add: a second operand that ends the shape [2, 3], got [2]"
        );
        assert!(matches!(add_assign(&mut a, &b), Err(Error::Shape { .. })));
    }

    #[test]
    fn what_others_hold_is_not_changed() {
        let mut a = random(&device(), [2, 3], 1);
        let same = a.clone();
        let before = bits(&same);
        assert!(matches!(
            add_assign(&mut a, &same),
            Err(Error::Shared { .. })
        ));
        assert_eq!(bits(&same), before);
    }
}
