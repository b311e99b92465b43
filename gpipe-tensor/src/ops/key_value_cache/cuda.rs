//! The key-value cache on a GPU: launches.

use super::kernels::{self, HeadSizes, Place};
use crate::cuda::Gpu;
use crate::{DType, Error, Result, Tensor};

/// Stores `width` columns of the new positions in `cache`.
pub(super) fn store(
    gpu: &Gpu,
    x: &Tensor,
    past: &Tensor,
    cache: &mut Tensor,
    place: Place,
    width: usize,
) -> Result<()> {
    const OP: &str = "cache_store";
    let stored = cache.dtype();
    let to = cache.written(OP, gpu, stored)?;
    let x = x.operand(OP, gpu, stored)?;
    let past = past.operand(OP, gpu, DType::U32)?;
    // SAFETY: all live on this handle; the caller has checked that the columns lie in the operand and
    // the new positions in the cache, by the host's copy of `past`.
    unsafe { gpu.launch(&kernels::store(stored, [x.at, past.at, to], place, width)) }
}

/// Fills `out` with the results of the new positions.
pub(super) fn attend(
    gpu: &Gpu,
    x: &Tensor,
    past: &Tensor,
    [keys, values]: [&Tensor; 2],
    out: &mut Tensor,
    place: Place,
    heads: HeadSizes,
) -> Result<()> {
    const OP: &str = "cached_attention";
    let stored = x.dtype();
    let to = out.written(OP, gpu, stored)?;
    let x = x.operand(OP, gpu, stored)?;
    let past = past.operand(OP, gpu, DType::U32)?;
    let keys = keys.operand(OP, gpu, stored)?;
    let values = values.operand(OP, gpu, stored)?;
    let pointers = [x.at, past.at, keys.at, values.at, to];
    let launch =
        kernels::attend(stored, pointers, place, heads).ok_or_else(|| Error::Argument {
            op: OP,
            message: format!(
                "heads of {} elements do not fit the shared memory of a GPU: use more heads",
                heads.size
            ),
        })?;
    // SAFETY: as above; the result has a row for each head of each new position.
    unsafe { gpu.launch(&launch) }
}
