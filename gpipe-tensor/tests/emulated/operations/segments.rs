//! Packed rows.

use gpipe_tensor::ops::{self, Dropout};
use gpipe_tensor::philox::Key;
use gpipe_tensor::{DeviceId, Result, Tensor};

use super::bench::Bench;

/// Attention between positions of the same segment, positions within segments, and smoothed labels.
pub(super) fn segments(b: &mut Bench) -> Result<()> {
    for (queries, keys, causal) in [(9, 13, false), (40, 40, true), (33, 70, false)] {
        let (heads, width) = (2, 16);
        let of = |b: &Bench, len: usize| {
            let segments = (0..2 * len).map(|i| (i % len * 4 / len + i / len) as u32 % 4);
            Tensor::from_u32(&b.device, [2, len], segments.collect())
        };
        let (of_queries, of_keys) = (of(b, queries)?, of(b, keys)?);
        let drop = Dropout {
            rate: 0.1,
            key: Key::new(1, "segments", 2),
            samples: 3..5,
        };
        for dropout in [None, Some(&drop)] {
            let settings = ops::SegmentAttention {
                heads,
                causal,
                query_segments: &of_queries,
                key_segments: &of_keys,
                dropout,
            };
            let (q, kv) = (
                b.random([2, queries, width])?,
                b.random([2, keys, 2 * width])?,
            );
            let (out, lse) = ops::segment_attention(&q, &kv, &settings)?;
            b.keep(&out)?;
            let dy = b.random([2, queries, width])?;
            let (dq, dkv) = ops::segment_attention_grad([&q, &kv], &out, &lse, &dy, &settings)?;
            b.keep(&dq)?;
            b.keep(&dkv)?;
        }
        let mut y = b.own([2, queries, width])?;
        ops::scale_and_add_positions(&mut y, &of_queries, 2, 3.0)?;
        b.keep(&y)?;
        let targets = (0..2 * queries as u32).map(|i| i * 7 % width as u32);
        let host = b.device.host().device(DeviceId::Cpu)?;
        let targets = Tensor::from_u32(&host, [2, queries], targets.collect())?;
        b.keep_number(ops::smoothed_cross_entropy_loss(&y, &targets, 0.1, 32.0)?);
        let (loss, gradient) = ops::smoothed_cross_entropy(y.clone(), &targets, 0.1, 32.0)?;
        b.keep_number(loss.read()?);
        b.keep(&gradient)?;
        let mut weights = b.single([2, queries])?;
        weights.fill(0.75)?;
        let (loss, gradient) = ops::weighted_cross_entropy(y, &targets, &weights, 0.1, 32.0)?;
        b.keep_number(loss.read()?);
        b.keep(&gradient)?;
    }
    Ok(())
}
