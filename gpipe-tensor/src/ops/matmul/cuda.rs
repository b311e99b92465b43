//! Products of matrices on a GPU: launches.

use super::layout::Layout;
use super::matrix::Gemm;
use crate::cuda::{Gpu, Product};
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
    let begins = bias.is_some() || onto.is_some();
    let mut out = match (onto, bias) {
        (Some(onto), Some(bias)) => add::cuda::add(gpu, onto, bias)?,
        (Some(onto), None) => onto.copy_to(onto.device())?,
        _ => operands[0].empty_rows_like(gpu, shape)?,
    };
    if let (None, Some(bias)) = (onto, bias) {
        add::cuda::repeat(gpu, bias, &mut out)?;
    }
    run(gpu, gemm, layout, operands, &mut out, begins)?;
    Ok(out)
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
        m: gemm.m,
        n: gemm.n,
        k: gemm.k,
        a_transposed: layout == Layout::Tn,
        b_transposed: layout == Layout::Nt,
        accumulate,
        items,
        pads,
        stored,
        result,
    };
    // SAFETY: all live on this handle; `layout` fits the shapes of the operands, and the result holds
    // `items` products.
    unsafe { gpu.multiply(product, a.at, b.at, to) }
}
