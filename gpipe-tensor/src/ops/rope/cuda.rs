//! The rotary position embedding on a GPU: launches.

use super::kernels::{self, Sizes};
use super::plan::Plan;
use crate::cuda::Gpu;
use crate::{Result, Tensor};

fn sizes(plan: &Plan) -> Sizes {
    Sizes {
        samples: plan.batch,
        len: plan.len,
        heads: plan.widths[0] / plan.size,
        groups: plan.widths[1] / plan.size,
        size: plan.size,
        angles: plan.angles,
        first: plan.first,
    }
}

/// Fills `qkv`.
pub(super) fn forward(
    gpu: &Gpu,
    plan: &Plan,
    [q, k, v]: [&Tensor; 3],
    qkv: &mut Tensor,
) -> Result<()> {
    const OP: &str = "rope";
    let stored = q.dtype();
    let qkv = qkv.written(OP, gpu, stored)?;
    let (q, k, v) = (
        q.operand(OP, gpu, stored)?,
        k.operand(OP, gpu, stored)?,
        v.operand(OP, gpu, stored)?,
    );
    let launch = kernels::forward(stored, [q.at, k.at, v.at], qkv, sizes(plan));
    // SAFETY: all live on this handle, and their shapes were compared with the plan's.
    unsafe { gpu.launch(&launch) }
}

/// Fills the gradients of queries, keys and values.
pub(super) fn backward(
    gpu: &Gpu,
    plan: &Plan,
    dqkv: &Tensor,
    [dq, dk, dv]: [&mut Tensor; 3],
) -> Result<()> {
    const OP: &str = "rope_grad";
    let stored = dqkv.dtype();
    let parts = [
        dq.written(OP, gpu, stored)?,
        dk.written(OP, gpu, stored)?,
        dv.written(OP, gpu, stored)?,
    ];
    let dqkv = dqkv.operand(OP, gpu, stored)?;
    let launch = kernels::backward(stored, dqkv.at, parts, sizes(plan));
    // SAFETY: all live on this handle; the plan was made from the operand's shape, the results from
    // the plan.
    unsafe { gpu.launch(&launch) }
}
