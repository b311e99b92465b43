//! Attention by segments on a GPU: launches.

use super::kernels::{self, Gradient, Operands, Sizes};
use super::plan::{Plan, SegmentAttention};
use crate::cuda::Gpu;
use crate::ops::dropout::kernels::Numbers;
use crate::{DType, Error, Result, Tensor};

fn sizes(plan: &Plan<'_>) -> Sizes {
    Sizes {
        samples: plan.batch,
        queries: plan.queries,
        keys: plan.keys,
        heads: plan.heads,
        size: plan.size,
        causal: plan.causal,
        dropout: plan.dropout.map_or(Numbers::NONE, |(mask, dropout)| {
            Numbers::new(mask, dropout.key, dropout.samples.start)
        }),
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
    [q, kv]: [&Tensor; 2],
    settings: &SegmentAttention<'_>,
    [out, lse]: [&mut Tensor; 2],
) -> Result<()> {
    const OP: &str = "segment_attention";
    let stored = q.dtype();
    let results = [
        out.written(OP, gpu, stored)?,
        lse.written(OP, gpu, DType::F32)?,
    ];
    let (q, kv) = (q.operand(OP, gpu, stored)?, kv.operand(OP, gpu, stored)?);
    let of_queries = settings.query_segments.operand(OP, gpu, DType::U32)?;
    let of_keys = settings.key_segments.operand(OP, gpu, DType::U32)?;
    let from = Operands {
        q: q.at,
        kv: kv.at,
        of_queries: of_queries.at,
        of_keys: of_keys.at,
    };
    let launch = kernels::forward(stored, from, results, sizes(plan));
    // SAFETY: all live on this handle, and are as large as the plan says: it was made from the operands'
    // shapes, the results from the plan.
    unsafe { gpu.launch(&launch.ok_or_else(|| too_large(OP, plan))?) }
}

/// Fills the gradients of queries, and of keys and values.
pub(super) fn backward(
    gpu: &Gpu,
    plan: &Plan<'_>,
    [q, kv, out, lse, d_out]: [&Tensor; 5],
    settings: &SegmentAttention<'_>,
    [dq, dkv]: [&mut Tensor; 2],
) -> Result<()> {
    const OP: &str = "segment_attention_grad";
    let stored = q.dtype();
    let (dq, dkv) = (dq.written(OP, gpu, stored)?, dkv.written(OP, gpu, stored)?);
    let (q, kv) = (q.operand(OP, gpu, stored)?, kv.operand(OP, gpu, stored)?);
    let of_queries = settings.query_segments.operand(OP, gpu, DType::U32)?;
    let of_keys = settings.key_segments.operand(OP, gpu, DType::U32)?;
    let lse = lse.operand(OP, gpu, DType::F32)?;
    let (out, d_out) = (
        out.operand(OP, gpu, stored)?,
        d_out.operand(OP, gpu, stored)?,
    );
    let from = Operands {
        q: q.at,
        kv: kv.at,
        of_queries: of_queries.at,
        of_keys: of_keys.at,
    };
    let at = Gradient {
        out: out.at,
        lse: lse.at,
        d_out: d_out.at,
        dq,
        dkv,
    };
    let launches = kernels::backward(stored, from, at, sizes(plan));
    for launch in launches.ok_or_else(|| too_large(OP, plan))? {
        // SAFETY: as above; the shapes of all operands were compared with the plan's.
        unsafe { gpu.launch(&launch) }?;
    }
    Ok(())
}
