//! Causal attention of many heads: softmax(Q·Kᵀ/√s)·V without ever holding all scores.

pub(in crate::ops) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod kernels;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod launches;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod on_tiles;
mod plan;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod tensor_cores;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(in crate::ops) mod tiles;

use ndarray::{ArrayViewMut, Axis};

use super::dropout::Dropout;
use super::scratch::Spare;
use crate::parallel::{for_each_on, threads_for};
use crate::{Error, Result, Tensor};
use plan::Plan;

pub use plan::Heads;

/// Attention within each head of each sample, where position i sees the positions 0..=i.
///
/// `qkv` (B, T, 3d) holds queries, keys and values in this order, and in each of them the heads one
/// after the other, s = d/heads elements each; with fewer heads of keys and values than of queries
/// ([`Heads`]) it has (heads + 2·groups)·s columns, and d = heads·s. The results are the heads' outputs side by side
/// (B, T, d), and the logarithm of each row's Σ e^score (B, heads, T), from which the gradient
/// computes the probabilities again. Dropout, if given, is applied to the probabilities; element
/// (head·T + i)·T + j of a sample decides about query i and key j.
///
/// # Errors
/// [`Error::Shape`] unless `qkv` has these columns and the groups divide the heads; errors of
/// [`Dropout`] and of allocation.
pub fn attention(
    qkv: &Tensor,
    heads: impl Into<Heads>,
    dropout: Option<&Dropout>,
) -> Result<(Tensor, Tensor)> {
    forward(Plan::new("attention", qkv, heads.into(), dropout)?, qkv)
}

fn forward(plan: Plan<'_>, qkv: &Tensor) -> Result<(Tensor, Tensor)> {
    let Plan {
        batch,
        len,
        heads,
        width,
        size,
        ..
    } = plan;
    let mut out = qkv.empty_like([batch, len, width])?;
    let mut lse = Tensor::empty(qkv.device(), [batch, heads, len])?;
    if out.elements() == 0 {
        return Ok((out, lse));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = qkv.gpu() {
        cuda::forward(gpu, &plan, qkv, &mut out, &mut lse)?;
        return Ok((out, lse));
    }
    let floats = qkv.f32s()?;
    let scratch = Spare::new(qkv.device(), plan.items(), plan.forward_scratch())?;
    let mut view = view([batch, len, width], out.f32s_mut()?)?;
    let items = view.exact_chunks_mut([1, len, size]).into_iter();
    let items = items.zip(lse.f32s_mut()?.chunks_mut(len)).enumerate();
    let threads = threads_for(qkv.device(), plan.multiplications());
    for_each_on(threads, qkv.device(), items, |(item, (out, lse))| {
        let out = out.index_axis_move(Axis(0), 0);
        let next = (item + 1 < plan.items()).then(|| plan.head(floats, item + 1));
        scratch.lend(|scratch| plan.head(floats, item).forward(next, out, lse, scratch));
    });
    Ok((out, lse))
}

/// The gradient with respect to `qkv` from the operands and results of [`attention`] and dL/do.
///
/// With scores S = Q·Kᵀ/√s, probabilities P = e^(S − lse) and factors Z of dropout (1 without),
/// O = (P∘Z)·V. Hence dV = (P∘Z)ᵀ·dO and dP = (dO·Vᵀ)∘Z, and the gradient of the softmax is
/// dS = P∘(dP − D), where Dᵢ = Σⱼ PᵢⱼdPᵢⱼ = Σ dOᵢ∘Oᵢ (Dao et al., arXiv:2205.14135); dQ = dS·K/√s
/// and dK = dSᵀ·Q/√s, summed over the heads of a group and over blocks of query rows in ascending order.
///
/// # Errors
/// [`Error::Shape`] if the operands are not those of [`attention`]; errors of [`Dropout`] and of
/// allocation.
pub fn attention_grad(
    qkv: &Tensor,
    out: &Tensor,
    lse: &Tensor,
    d_out: &Tensor,
    heads: impl Into<Heads>,
    dropout: Option<&Dropout>,
) -> Result<Tensor> {
    let plan = Plan::new(GRAD, qkv, heads.into(), dropout)?;
    backward(plan, qkv, out, lse, d_out)
}

const GRAD: &str = "attention_grad";

fn backward(
    plan: Plan<'_>,
    qkv: &Tensor,
    out: &Tensor,
    lse: &Tensor,
    d_out: &Tensor,
) -> Result<Tensor> {
    let Plan {
        batch,
        len,
        heads,
        groups,
        width,
        size,
        ..
    } = plan;
    let expected = [batch, len, width].into();
    for got in [out.shape(), d_out.shape()] {
        if *got != expected {
            return Err(Error::shape(
                GRAD,
                format!("results of shape {expected}"),
                got,
            ));
        }
    }
    if lse.shape().dims() != [batch, heads, len] {
        let expected = format!("logarithms of sums of shape [{batch}, {heads}, {len}]");
        return Err(Error::shape(GRAD, expected, lse.shape()));
    }
    let mut dqkv = qkv.empty_like(qkv.shape().clone())?;
    if dqkv.elements() == 0 {
        return Ok(dqkv);
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = qkv.gpu() {
        cuda::backward(gpu, &plan, [qkv, out, lse, d_out], &mut dqkv)?;
        return Ok(dqkv);
    }
    let per_group = plan.per_group();
    let (floats, lse) = (qkv.f32s()?, lse.f32s()?.chunks(len * per_group));
    let sample = len * width;
    let (out, d_out) = (out.f32s()?, d_out.f32s()?);
    let items = batch * groups;
    let scratch = Spare::new(qkv.device(), items, plan.backward_scratch())?;
    let view = view([batch, len, (heads + 2 * groups) * size], dqkv.f32s_mut()?)?;
    let (mut queries, rest) = view.split_at(Axis(2), width);
    let (mut keys, mut values) = rest.split_at(Axis(2), groups * size);
    let queries = queries.exact_chunks_mut([1, len, per_group * size]);
    let [keys, values] = [&mut keys, &mut values].map(|part| part.exact_chunks_mut([1, len, size]));
    let parts = queries.into_iter().zip(keys.into_iter().zip(values));
    for_each_on(
        threads_for(qkv.device(), plan.multiplications()),
        qkv.device(),
        parts.zip(lse).enumerate(),
        |(item, ((dq, (dk, dv)), lse))| {
            let of_item = |item: usize| {
                let sample = item / groups * sample..(item / groups + 1) * sample;
                let head = plan.head(floats, item * per_group);
                (head, [&out[sample.clone()], &d_out[sample]])
            };
            let (head, [out, d_out]) = of_item(item);
            let next = (item + 1 < items).then(|| of_item(item + 1));
            let parts = [dq, dk, dv].map(|part| part.index_axis_move(Axis(0), 0));
            scratch.lend(|scratch| head.backward(next, [out, lse, d_out], parts, scratch));
        },
    );
    Ok(dqkv)
}

/// The elements of a tensor under a shape of this many extents.
pub(in crate::ops) fn view<D: ndarray::Dimension, const N: usize>(
    dims: [usize; N],
    floats: &mut [f32],
) -> Result<ArrayViewMut<'_, f32, D>>
where
    [usize; N]: ndarray::IntoDimension<Dim = D>,
{
    let got = floats.len();
    ArrayViewMut::from_shape(dims, floats)
        .map_err(|e| Error::shape("attention", e.to_string(), got))
}
