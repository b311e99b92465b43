//! The shapes of GPT-2 with 124 million parameters, which the others do not come near.

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DeviceId, Result, Tensor, find_cuda};

use super::bench::Bench;

/// Attention of 1,024 positions and 12 heads (1 on emulated devices), and the head of 50,257 words: logits,
/// their loss, and both gradients.
pub(super) fn shapes(b: &mut Bench) -> Result<()> {
    let emulated = find_cuda().is_ok_and(|found| found.devices[0].name.starts_with("Emulated"));
    let (len, heads) = (1024, if emulated { 1 } else { 12 });
    let width = 64 * heads;
    let (qkv, dy) = (b.random([1, len, 3 * width])?, b.random([1, len, width])?);
    let (out, lse) = ops::attention(&qkv, heads, None)?;
    b.keep(&out)?;
    b.keep(&lse)?;
    b.keep(&ops::attention_grad(&qkv, &out, &lse, &dy, heads, None)?)?;
    let (rows, width, words) = (16, 768, 50_257);
    let x = ops::scale(&b.random([rows, width])?, 0.0625)?;
    let table = ops::scale(&b.random([words, width])?, 0.0625)?;
    let logits = ops::matmul_padded(Layout::Nt, &x, &table)?;
    b.keep(&logits)?;
    let targets: Vec<u32> = (0..rows as u32).map(|i| i * 3301 % words as u32).collect();
    let host = b.device.host().device(DeviceId::Cpu)?;
    let targets = Tensor::from_u32(&host, [rows], targets)?;
    let (loss, d_logits) = ops::cross_entropy(logits, &targets, 1.0)?;
    b.keep_number(loss);
    b.keep(&ops::matmul(Layout::Nn, &d_logits, &table, None)?)?;
    let mut sum = b.single([words, width])?;
    ops::matmul_accumulate(Layout::Tn, &d_logits, &x, &mut sum)?;
    b.keep(&sum)
}
