//! Sums and other reductions, in an order that depends on shapes only.

mod cpu;

use crate::parallel::{CHUNK, each};
use crate::{Error, Result, Tensor};

/// Adds to `out` the sum of `x` over its leading rows: the gradient of whatever was repeated, a
/// bias (d) or a position table (T, d).
///
/// # Errors
/// [`Error::Shape`] unless the number of `out`'s elements divides that of `x`;
/// [`Error::Shared`] if something else holds `out`.
pub fn sum_rows_accumulate(x: &Tensor, out: &mut Tensor) -> Result<()> {
    let width = out.elements();
    if !x.elements().is_multiple_of(width.max(1)) {
        let expected = format!("rows of {width} elements");
        return Err(Error::shape("sum_rows_accumulate", expected, x.shape()));
    }
    let (x, device) = (x.f32s()?, out.device().clone());
    let columns = out.f32s_mut()?.chunks_mut(cpu::COLUMNS).enumerate();
    each(&device, columns, |(index, out)| {
        cpu::add_rows(x, width, index * cpu::COLUMNS, out);
    });
    Ok(())
}

/// The sum of all elements.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn sum(x: &Tensor) -> Result<f64> {
    Ok(partials(x, cpu::sum)?.iter().sum())
}

/// The sum of the squares of all elements: what a global norm is made of.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn sum_of_squares(x: &Tensor) -> Result<f64> {
    Ok(partials(x, cpu::sum_of_squares)?.iter().sum())
}

/// The largest magnitude, 0 for a tensor without elements; not a number if any element is none.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn max_abs(x: &Tensor) -> Result<f32> {
    let magnitudes = partials(x, cpu::max_magnitude)?;
    Ok(f32::from_bits(magnitudes.into_iter().max().unwrap_or(0)))
}

/// Whether every element is a finite number.
///
/// # Errors
/// [`Error::DType`] for indices.
pub fn all_finite(x: &Tensor) -> Result<bool> {
    Ok(max_abs(x)?.is_finite())
}

/// What `reduce` makes of each chunk, in order.
fn partials<P: Default + Send>(x: &Tensor, reduce: fn(&[f32]) -> P) -> Result<Vec<P>> {
    let chunks = x.f32s()?.chunks(CHUNK);
    let mut partials: Vec<P> = (0..chunks.len()).map(|_| P::default()).collect();
    each(
        x.device(),
        partials.iter_mut().zip(chunks),
        |(partial, chunk)| {
            *partial = reduce(chunk);
        },
    );
    Ok(partials)
}
