//! Attention of many heads between positions of the same segment, without ever holding all scores.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod on_tiles;
mod plan;
#[cfg(test)]
mod tests;

use ndarray::Axis;

use super::attention::view;
use super::scratch::Spare;
use crate::parallel::{for_each_on, threads_for};
use crate::{Error, Result, Tensor};
pub use plan::SegmentAttention;
use plan::{Operand, Plan};

/// softmax(Q·Kᵀ/√s)·V within each head, over the keys that each query sees.
///
/// `q` (B, T, d) holds the queries and `kv` (B, S, 2d) keys and values in this order, the heads side by side with
/// s = d/heads elements each. The results are (B, T, d), and the logarithm of each row's Σ e^score (B, heads, T),
/// +∞ for a query without keys.
///
/// # Errors
/// [`Error::Shape`] if the operands do not fit each other, T ≠ S with `causal`, or the heads do not divide d;
/// errors of [`Dropout`](crate::ops::Dropout) and of allocation.
pub fn segment_attention(
    q: &Tensor,
    kv: &Tensor,
    settings: &SegmentAttention<'_>,
) -> Result<(Tensor, Tensor)> {
    let plan = Plan::new("segment_attention", q, kv, settings)?;
    forward(plan, [q, kv], settings)
}

fn forward(
    plan: Plan<'_>,
    [q, kv]: [&Tensor; 2],
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables))] settings: &SegmentAttention<'_>,
) -> Result<(Tensor, Tensor)> {
    let mut out = q.empty_like(q.shape().clone())?;
    let mut lse = Tensor::empty(q.device(), [plan.batch, plan.heads, plan.queries])?;
    if out.elements() == 0 || kv.elements() == 0 {
        out.fill(0.0)?;
        lse.fill(f32::INFINITY)?;
        return Ok((out, lse));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = q.gpu() {
        cuda::forward(gpu, &plan, [q, kv], settings, [&mut out, &mut lse])?;
        return Ok((out, lse));
    }
    let (q, kv) = (Operand::of(q)?, Operand::of(kv)?);
    let scratch = Spare::new(q.tensor.device(), plan.items(), plan.forward_scratch())?;
    let mut view = view([plan.batch, plan.queries, plan.width], out.f32s_mut()?)?;
    let items = view.exact_chunks_mut([1, plan.queries, plan.size]);
    let items = items
        .into_iter()
        .zip(lse.f32s_mut()?.chunks_mut(plan.queries));
    let threads = threads_for(q.tensor.device(), plan.multiplications());
    for_each_on(
        threads,
        q.tensor.device(),
        items.enumerate(),
        |(item, (out, lse))| {
            let out = out.index_axis_move(Axis(0), 0);
            let next = (item + 1 < plan.items()).then(|| plan.head(&q, &kv, item + 1));
            scratch.lend(|scratch| plan.head(&q, &kv, item).forward(next, out, lse, scratch));
        },
    );
    Ok((out, lse))
}

/// The gradients with respect to `q` and `kv` from the operands and results of [`segment_attention`] and dL/do.
/// The formulas are those of [`attention_grad`](super::attention_grad).
///
/// # Errors
/// As [`segment_attention`], and [`Error::Shape`] if the results are not those of it.
pub fn segment_attention_grad(
    [q, kv]: [&Tensor; 2],
    out: &Tensor,
    lse: &Tensor,
    d_out: &Tensor,
    settings: &SegmentAttention<'_>,
) -> Result<(Tensor, Tensor)> {
    let plan = Plan::new(GRAD, q, kv, settings)?;
    backward(plan, [q, kv], [out, lse, d_out], settings)
}

const GRAD: &str = "segment_attention_grad";

fn backward(
    plan: Plan<'_>,
    [q, kv]: [&Tensor; 2],
    [out, lse, d_out]: [&Tensor; 3],
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables))] settings: &SegmentAttention<'_>,
) -> Result<(Tensor, Tensor)> {
    for got in [out.shape(), d_out.shape()] {
        if got != q.shape() {
            let expected = format!("results of shape {}", q.shape());
            return Err(Error::shape(GRAD, expected, got));
        }
    }
    let sums = [plan.batch, plan.heads, plan.queries].into();
    if *lse.shape() != sums {
        return Err(Error::shape(
            GRAD,
            format!("sums of shape {sums}"),
            lse.shape(),
        ));
    }
    let mut dq = q.empty_like(q.shape().clone())?;
    let mut dkv = kv.empty_like(kv.shape().clone())?;
    if dq.elements() == 0 || dkv.elements() == 0 {
        dq.fill(0.0)?;
        dkv.fill(0.0)?;
        return Ok((dq, dkv));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = q.gpu() {
        let operands = [q, kv, out, lse, d_out];
        cuda::backward(gpu, &plan, operands, settings, [&mut dq, &mut dkv])?;
        return Ok((dq, dkv));
    }
    let device = q.device();
    let (q, kv) = (Operand::of(q)?, Operand::of(kv)?);
    let (lse, out, d_out) = (lse.f32s()?, out.f32s()?, d_out.f32s()?);
    let scratch = Spare::new(device, plan.items(), plan.backward_scratch())?;
    let mut queries = view([plan.batch, plan.queries, plan.width], dq.f32s_mut()?)?;
    let both = view([plan.batch, plan.keys, 2 * plan.width], dkv.f32s_mut()?)?;
    let (mut keys, mut values) = both.split_at(Axis(2), plan.width);
    let queries = queries.exact_chunks_mut([1, plan.queries, plan.size]);
    let [keys, values] =
        [&mut keys, &mut values].map(|part| part.exact_chunks_mut([1, plan.keys, plan.size]));
    let parts = queries.into_iter().zip(keys.into_iter().zip(values));
    for_each_on(
        threads_for(device, plan.multiplications()),
        device,
        parts.zip(lse.chunks(plan.queries)).enumerate(),
        |(item, ((dq, (dk, dv)), lse))| {
            let of_item = |item: usize| {
                let sample = plan.queries * plan.width;
                let sample = item / plan.heads * sample..(item / plan.heads + 1) * sample;
                (
                    plan.head(&q, &kv, item),
                    [&out[sample.clone()], &d_out[sample]],
                )
            };
            let (head, [out, d_out]) = of_item(item);
            let next = (item + 1 < plan.items()).then(|| of_item(item + 1));
            let parts = [dq, dk, dv].map(|part| part.index_axis_move(Axis(0), 0));
            scratch.lend(|scratch| {
                head.backward(next, [out, lse, d_out], parts, scratch);
            });
        },
    );
    Ok((dq, dkv))
}
