//! Products of matrices: the forward pass of a linear layer and both of its gradients.
//!
//! For y = x·w + b with x (r, i) and w (i, o): y is `Nn` of x and w; dL/dx = dL/dy · wᵀ is `Nt`;
//! dL/dw = xᵀ · dL/dy is `Tn`; dL/db is the sum over the rows of dL/dy
//! ([`sum_rows_accumulate`](super::sum_rows_accumulate)).

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod amx;
#[cfg(feature = "cuda")]
mod cuda;
pub(crate) mod gemm;
mod layout;
pub(crate) mod matrix;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod operands;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(in crate::ops) mod packed;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod squares;

use std::ops::Range;

use super::add::add_assign;
use crate::parallel::for_each;
use crate::{DeviceId, Error, Result, Shape, Tensor};
use matrix::{Begin, Gemm, MatrixMut};

pub use layout::Layout;

/// The product of two matrices, with `bias` (n) added to every row if there is one.
///
/// All extents of `a` but the innermost are its rows. For `Nn` (b is (k, n)) and `Nt` (b is (n, k))
/// the result has the shape of `a` with n as the innermost extent; for `Tn` the rows of both
/// operands are summed over, and the result is (m, n).
///
/// # Errors
/// [`Error::Shape`] if the operands or the bias do not fit; errors of allocation.
pub fn matmul(layout: Layout, a: &Tensor, b: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    product(layout, a, b, bias, None, |shape| shape)
}

/// [`matmul`] plus `onto`, of the shape and the type of the product: a residual connection. On the CPU it has the bits of
/// the product and [`add_assign`] in a row. On a GPU cuBLASLt rounds once, after product, `onto` and bias are added up in
/// single precision; where it is missing or has no algorithm, and for rows that do not begin at multiples of 16 bytes,
/// each sum begins with `onto` plus the bias, rounded to the type.
///
/// # Errors
/// As [`matmul`]; [`Error::Shape`] for another shape of `onto`.
pub fn matmul_onto(
    layout: Layout,
    a: &Tensor,
    b: &Tensor,
    bias: Option<&Tensor>,
    onto: &Tensor,
) -> Result<Tensor> {
    product(layout, a, b, bias, Some(onto), |shape| shape)
}

/// [`matmul`] without a bias, whose rows lie in memory as [`padded`] says on a GPU, and one behind the other on the CPU:
/// for a result of many odd columns, such as scores of all words, and its gradient, which tensor cores read with rows at
/// multiples of 16 bytes.
///
/// Products, the cross-entropy, copies and [`Tensor::rows`] take such rows as they are; other operations copy them
/// first.
///
/// # Errors
/// As [`matmul`].
pub fn matmul_padded(layout: Layout, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    product(layout, a, b, None, None, |shape| match a.device().id() {
        DeviceId::Cpu => shape,
        _ => padded(&shape),
    })
}

/// The shape with the room that a result of [`matmul_padded`] of this shape has between its rows on a GPU: they begin at
/// multiples of 64 elements, if it has several extents.
pub fn padded(shape: &Shape) -> Shape {
    shape.padded(64)
}

fn product(
    layout: Layout,
    a: &Tensor,
    b: &Tensor,
    bias: Option<&Tensor>,
    onto: Option<&Tensor>,
    stored: impl FnOnce(Shape) -> Shape,
) -> Result<Tensor> {
    const OP: &str = "matmul";
    let gemm = plan(OP, layout, a, b)?;
    let shape = stored(match layout {
        Layout::Nn | Layout::Nt => a.shape().with_last(gemm.n),
        Layout::Tn => Shape::from([gemm.m, gemm.n]),
    });
    if let Some(bias) = bias.filter(|bias| bias.elements() != gemm.n) {
        let expected = format!("a bias of {} elements", gemm.n);
        return Err(Error::shape(OP, expected, bias.shape()));
    }
    if let Some(onto) = onto.filter(|onto| *onto.shape() != shape) {
        let expected = format!("what is added to of shape {shape}");
        return Err(Error::shape(OP, expected, onto.shape()));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = a.gpu() {
        return cuda::matmul(gpu, gemm, layout, [a, b], bias, onto, shape);
    }
    let begin = match bias {
        Some(bias) => Begin::Row(bias.f32s()?),
        None => Begin::Zero,
    };
    let mut out = Tensor::empty(a.device(), shape)?;
    run(gemm, layout, a, b, begin, &mut out)?;
    if let Some(onto) = onto {
        add_assign(&mut out, onto)?;
    }
    Ok(out)
}

/// Adds the product of two matrices to `out` (m, n): how weight gradients are summed.
///
/// # Errors
/// [`Error::Shape`] if the operands do not fit; [`Error::Shared`] if something else holds `out`.
pub fn matmul_accumulate(layout: Layout, a: &Tensor, b: &Tensor, out: &mut Tensor) -> Result<()> {
    const OP: &str = "matmul_accumulate";
    let gemm = plan(OP, layout, a, b)?;
    if out.shape().matrix()? != (gemm.m, gemm.n) {
        let expected = format!("a sum of shape [{}, {}]", gemm.m, gemm.n);
        return Err(Error::shape(OP, expected, out.shape()));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = out.gpu().cloned() {
        return cuda::run(&gpu, gemm, layout, [a, b], out, true);
    }
    run(gemm, layout, a, b, Begin::Sum, out)
}

/// [`matmul_accumulate`] to some of the rows of `out`: for a parameter that several products share.
///
/// # Errors
/// As [`matmul_accumulate`], and [`Error::Index`] for rows that `out` lacks.
pub fn matmul_accumulate_rows(
    layout: Layout,
    a: &Tensor,
    b: &Tensor,
    out: &mut Tensor,
    rows: Range<usize>,
) -> Result<()> {
    out.within_rows(rows, |out| matmul_accumulate(layout, a, b, out))
}

/// The products of two batches of matrices, item by item: (…, m, k) and (…, k, n) give (…, m, n)
/// for `Nn`; the layout speaks of the two innermost extents.
///
/// # Errors
/// [`Error::Shape`] if the operands do not fit; errors of allocation.
pub fn batched_matmul(layout: Layout, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "batched_matmul";
    let misfit = || {
        let expected = format!("two batches of matrices that fit for {layout:?}");
        Error::shape(OP, expected, format!("{} and {}", a.shape(), b.shape()))
    };
    let (a_batch, a_item) = split_item(a.shape()).ok_or_else(misfit)?;
    let (b_batch, b_item) = split_item(b.shape()).ok_or_else(misfit)?;
    let gemm = layout
        .product(a_item, b_item)
        .filter(|_| a_batch == b_batch)
        .ok_or_else(misfit)?;
    let shape = [a_batch, &[gemm.m, gemm.n]].concat();
    let mut out = a.empty_like(shape.as_slice())?;
    out.fill(0.0)?;
    if [a, b, &out].iter().any(|x| x.elements() == 0) {
        return Ok(out);
    }
    let sizes = [a_item.0 * a_item.1, b_item.0 * b_item.1, gemm.m * gemm.n];
    #[cfg(feature = "cuda")]
    if let Some(gpu) = a.gpu() {
        cuda::run(gpu, gemm, layout, [a, b], &mut out, false)?;
        return Ok(out);
    }
    let [a_items, b_items] = [a.f32s()?.chunks(sizes[0]), b.f32s()?.chunks(sizes[1])];
    let items = out
        .f32s_mut()?
        .chunks_mut(sizes[2])
        .zip(a_items.zip(b_items));
    let instructions = a.device().host().instruction_set();
    for_each(a.device(), items, |(out, (a, b))| {
        let (a, b) = layout.operands((a, a_item.1), (b, b_item.1));
        gemm.run(instructions, a, b, MatrixMut::new(out, gemm.n));
    });
    Ok(out)
}

/// The leading extents and the two innermost ones.
fn split_item(shape: &Shape) -> Option<(&[usize], (usize, usize))> {
    match shape.dims() {
        [batch @ .., rows, columns] => Some((batch, (*rows, *columns))),
        _ => None,
    }
}

fn plan(op: &'static str, layout: Layout, a: &Tensor, b: &Tensor) -> Result<Gemm> {
    layout
        .product(a.shape().matrix()?, b.shape().matrix()?)
        .ok_or_else(|| {
            let expected = format!("operands whose inner extents agree for {layout:?}");
            Error::shape(op, expected, format!("{} and {}", a.shape(), b.shape()))
        })
}

fn run(
    gemm: Gemm,
    layout: Layout,
    a: &Tensor,
    b: &Tensor,
    begin: Begin<'_>,
    out: &mut Tensor,
) -> Result<()> {
    let device = out.device().clone();
    let columns = (a.shape().last(), b.shape().last());
    let (a, b) = layout.operands((a.f32s()?, columns.0), (b.f32s()?, columns.1));
    gemm.run_on(
        &device,
        begin,
        a,
        b,
        MatrixMut::new(out.f32s_mut()?, gemm.n),
    )
}

#[cfg(test)]
mod tests;
