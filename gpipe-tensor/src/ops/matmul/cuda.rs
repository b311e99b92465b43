//! Products of matrices on a GPU: launches.

use super::layout::Layout;
use super::matrix::Gemm;
use crate::cuda::{Added, Gpu, Product};
use crate::ops::add;
use crate::{DType, Result, Shape, Tensor};

/// The product, with `bias` added to every row and `onto` to the whole if there are any.
pub(super) fn matmul(
    gpu: &Gpu,
    gemm: Gemm,
    layout: Layout,
    operands: [&Tensor; 2],
    bias: Option<&Tensor>,
    onto: Option<&Tensor>,
    shape: Shape,
) -> Result<Tensor> {
    let mut out = operands[0].empty_rows_like(gpu, shape)?;
    if bias.is_none() && onto.is_none() {
        run(gpu, gemm, layout, operands, &mut out, false)?;
        return Ok(out);
    }
    if run_with(gpu, gemm, layout, operands, [bias, onto], &mut out)? {
        return Ok(out);
    }
    match (onto, bias) {
        (Some(onto), Some(bias)) => {
            drop(out);
            out = add::cuda::add(gpu, onto, bias)?;
        }
        (Some(onto), None) => {
            drop(out);
            out = onto.copy_to(onto.device())?;
        }
        (None, Some(bias)) => add::cuda::repeat(gpu, bias, &mut out)?,
        (None, None) => {}
    }
    run(gpu, gemm, layout, operands, &mut out, true)?;
    Ok(out)
}

/// Writes one product plus a bias, what it goes onto, or both in one launch; false, and nothing is written, where the
/// library does not.
fn run_with(
    gpu: &Gpu,
    gemm: Gemm,
    layout: Layout,
    [a, b]: [&Tensor; 2],
    [bias, onto]: [Option<&Tensor>; 2],
    out: &mut Tensor,
) -> Result<bool> {
    const OP: &str = "matmul";
    let stored = a.dtype();
    let pads = [a, b, &*out].map(|tensor| tensor.shape().pad());
    let to = out.written_rows(OP, gpu, stored)?;
    let (a, b) = (
        a.operand_rows(OP, gpu, stored)?,
        b.operand_rows(OP, gpu, stored)?,
    );
    let [bias, onto] = [bias, onto].map(|added| {
        added
            .map(|added| added.operand(OP, gpu, stored))
            .transpose()
    });
    let (bias, onto) = (bias?, onto?);
    let product = describe(gemm, layout, pads, [stored; 2]);
    let added = Added {
        bias: bias.as_ref().map(|bias| bias.at),
        onto: onto.as_ref().map(|onto| onto.at),
    };
    // SAFETY: all live on this handle; `layout` fits the shapes of the operands, the bias has an element for each
    // column, and what is added to has the shape of the result.
    unsafe { gpu.multiply_with(product, [a.at, b.at], added, to) }
}

/// One product with rows so far apart, of factors and a result of these types.
fn describe(gemm: Gemm, layout: Layout, pads: [usize; 3], [stored, result]: [DType; 2]) -> Product {
    Product {
        m: gemm.m,
        n: gemm.n,
        k: gemm.k,
        a_transposed: layout == Layout::Tn,
        b_transposed: layout == Layout::Nt,
        accumulate: false,
        items: 1,
        pads,
        stored,
        result,
    }
}

/// Writes consecutive products to `out`, or adds them; the size of `out` determines their number.
pub(super) fn run(
    gpu: &Gpu,
    gemm: Gemm,
    layout: Layout,
    [a, b]: [&Tensor; 2],
    out: &mut Tensor,
    accumulate: bool,
) -> Result<()> {
    const OP: &str = "matmul";
    let items = out.elements().checked_div(gemm.m * gemm.n).unwrap_or(0);
    if gemm.k == 0 {
        return match accumulate {
            true => Ok(()),
            false => out.fill(0.0),
        };
    }
    let stored = a.dtype();
    // The result has single precision or the type of the operands.
    let result = match out.dtype() {
        DType::F32 => DType::F32,
        _ => stored,
    };
    let to = out.written_rows(OP, gpu, result)?;
    let pads = [a, b, &*out].map(|tensor| tensor.shape().pad());
    let (a, b) = (
        a.operand_rows(OP, gpu, stored)?,
        b.operand_rows(OP, gpu, stored)?,
    );
    let product = Product {
        accumulate,
        items,
        ..describe(gemm, layout, pads, [stored, result])
    };
    // SAFETY: all live on this handle; `layout` fits the shapes of the operands, and the result holds
    // `items` products.
    unsafe { gpu.multiply(product, a.at, b.at, to) }
}
