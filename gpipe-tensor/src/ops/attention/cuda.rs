//! Attention on a GPU: launches.

use super::kernels::{Gradient, Sizes};
use super::launches;
use super::plan::Plan;
use crate::cuda::Gpu;
use crate::ops::dropout::kernels::Numbers;
use crate::{DType, Error, Result, Tensor};

fn sizes(plan: &Plan<'_>) -> Sizes {
    let numbers = |(mask, dropout): (_, &crate::ops::Dropout)| {
        Numbers::new(mask, dropout.key, dropout.samples.start)
    };
    Sizes {
        samples: plan.batch,
        len: plan.len,
        heads: plan.heads,
        groups: plan.groups,
        window: plan.window,
        size: plan.size,
        dropout: plan.dropout.map_or(Numbers::NONE, numbers),
    }
}

fn too_large(op: &'static str, plan: &Plan<'_>) -> Error {
    Error::Argument {
        op,
        message: format!(
            "heads of {} elements do not fit the shared memory of a GPU: use more heads",
            plan.size
        ),
    }
}

/// Fills `out` and `lse`.
pub(super) fn forward(
    gpu: &Gpu,
    plan: &Plan<'_>,
    qkv: &Tensor,
    out: &mut Tensor,
    lse: &mut Tensor,
) -> Result<()> {
    const OP: &str = "attention";
    let stored = qkv.dtype();
    let out = out.written(OP, gpu, stored)?;
    let lse = lse.written(OP, gpu, DType::F32)?;
    let qkv = qkv.operand(OP, gpu, stored)?;
    let launch = launches::forward(stored, gpu.tensor_cores(), qkv.at, out, lse, sizes(plan));
    // SAFETY: all live on this handle, and are as large as the plan says: it was made from the
    // operand's shape, the results from the plan.
    unsafe { gpu.launch(&launch.ok_or_else(|| too_large(OP, plan))?) }
}

/// Fills `dqkv`.
pub(super) fn backward(
    gpu: &Gpu,
    plan: &Plan<'_>,
    [qkv, out, lse, d_out]: [&Tensor; 4],
    dqkv: &mut Tensor,
) -> Result<()> {
    const OP: &str = "attention_grad";
    let means = gpu.alloc(4 * lse.elements())?;
    let stored = qkv.dtype();
    let dqkv = dqkv.written(OP, gpu, stored)?;
    let (qkv, out) = (qkv.operand(OP, gpu, stored)?, out.operand(OP, gpu, stored)?);
    let lse = lse.operand(OP, gpu, DType::F32)?;
    let d_out = d_out.operand(OP, gpu, stored)?;
    let at = Gradient {
        qkv: qkv.at,
        out: out.at,
        lse: lse.at,
        means: means.at(0),
        d_out: d_out.at,
        dqkv,
    };
    let launches = launches::backward(stored, gpu.tensor_cores(), at, sizes(plan));
    for launch in launches.ok_or_else(|| too_large(OP, plan))? {
        // SAFETY: as above; the shapes of all operands were compared with the plan's.
        unsafe { gpu.launch(&launch) }?;
    }
    Ok(())
}
