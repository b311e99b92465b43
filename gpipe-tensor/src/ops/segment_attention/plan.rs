//! What a call asks for, with operands that fit.

use super::cpu::{self, Head};
use crate::instruction_set::InstructionSet;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::ops::attention::tiles;
use crate::ops::dropout::{Dropout, Mask};
use crate::{Error, Result, Tensor};

/// Which keys a query sees, and how many heads there are.
///
/// A row may hold several sequences: a query sees the keys of its own segment number. Segment 0 is padding:
/// no query sees it, and its queries see nothing. The result of a query without keys is 0, and so is its
/// gradient.
#[derive(Clone, Copy, Debug)]
pub struct SegmentAttention<'a> {
    /// Number of heads.
    pub heads: usize,
    /// Whether query i sees the keys 0..=i alone, of those of its segment.
    pub causal: bool,
    /// Segment of each query, indices (B, T).
    pub query_segments: &'a Tensor,
    /// Segment of each key, indices (B, S).
    pub key_segments: &'a Tensor,
    /// Dropout of the probabilities: element (head·T + i)·S + j of a sample decides about query i and key j.
    pub dropout: Option<&'a Dropout>,
}

/// A tensor of floats with its elements.
pub(super) struct Operand<'a> {
    pub tensor: &'a Tensor,
    pub floats: &'a [f32],
}

impl<'a> Operand<'a> {
    pub fn of(tensor: &'a Tensor) -> Result<Self> {
        let floats = tensor.f32s()?;
        Ok(Self { tensor, floats })
    }
}

/// The checked sizes of the operands.
pub(super) struct Plan<'a> {
    pub batch: usize,
    pub queries: usize,
    pub keys: usize,
    pub heads: usize,
    pub width: usize,
    pub size: usize,
    pub causal: bool,
    query_segments: &'a [u32],
    key_segments: &'a [u32],
    pub dropout: Option<(Mask, &'a Dropout)>,
    instructions: InstructionSet,
    /// Those of heads that are computed on tiles.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub tiles: Option<tiles::Instructions>,
}

impl<'a> Plan<'a> {
    pub fn new(
        op: &'static str,
        q: &Tensor,
        kv: &Tensor,
        settings: &SegmentAttention<'a>,
    ) -> Result<Self> {
        let (heads, causal) = (settings.heads, settings.causal);
        let misfit = || {
            let expected = format!(
                "queries (B, T, d), keys and values (B, S, 2d), d a multiple of {heads} heads{}",
                if causal { ", and T = S" } else { "" }
            );
            Error::shape(op, expected, format!("{} and {}", q.shape(), kv.shape()))
        };
        let (&[batch, queries, width], &[kv_batch, keys, columns]) =
            (q.shape().dims(), kv.shape().dims())
        else {
            return Err(misfit());
        };
        let fits = kv_batch == batch && width.checked_mul(2) == Some(columns);
        let divides = heads > 0 && width > 0 && width.is_multiple_of(heads);
        if !fits || !divides || (causal && queries != keys) {
            return Err(misfit());
        }
        let segments = [
            (settings.query_segments, queries),
            (settings.key_segments, keys),
        ];
        for (segments, len) in segments {
            if segments.shape().dims() != [batch, len] {
                let expected = format!("segments of shape [{batch}, {len}]");
                return Err(Error::shape(op, expected, segments.shape()));
            }
        }
        let dropout = match settings.dropout {
            Some(dropout) => dropout.mask(op, batch)?.map(|mask| (mask, dropout)),
            None => None,
        };
        let instructions = q.device().host().instruction_set();
        Ok(Self {
            batch,
            queries,
            keys,
            heads,
            width,
            size: width / heads,
            causal,
            query_segments: settings.query_segments.u32s()?,
            key_segments: settings.key_segments.u32s()?,
            dropout,
            instructions,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            tiles: tiles::instructions(instructions, queries),
        })
    }

    /// This with heads computed on these tiles, or by products.
    #[cfg(all(test, target_arch = "x86_64", not(miri)))]
    pub fn with_tiles(self, tiles: Option<tiles::Instructions>) -> Self {
        Self { tiles, ..self }
    }

    /// Heads of all samples: what threads share out.
    pub fn items(&self) -> usize {
        self.batch * self.heads
    }

    /// Of the forward pass, if every query saw every key.
    pub fn multiplications(&self) -> usize {
        let of_item = self
            .queries
            .saturating_mul(self.keys)
            .saturating_mul(2 * self.size);
        self.items().saturating_mul(of_item)
    }

    pub fn forward_scratch(&self) -> usize {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.tiles.is_some() {
            return tiles::forward_scratch(self.keys, self.size);
        }
        cpu::forward_scratch(self.queries, self.keys, self.size)
    }

    pub fn backward_scratch(&self) -> usize {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.tiles.is_some() {
            return tiles::backward_scratch(self.keys, self.size);
        }
        cpu::backward_scratch(self.queries, self.keys, self.size)
    }

    /// One of the items, sample by sample.
    pub fn head<'b>(&'b self, q: &Operand<'b>, kv: &Operand<'b>, item: usize) -> Head<'b> {
        let (sample, head) = (item / self.heads, item % self.heads);
        let rows = |floats: &'b [f32], row: usize| &floats[sample * row..(sample + 1) * row];
        let segments = |all: &'b [u32], len: usize| &all[sample * len..(sample + 1) * len];
        Head {
            queries: rows(q.floats, self.queries * self.width),
            keys: rows(kv.floats, 2 * self.keys * self.width),
            query_segments: segments(self.query_segments, self.queries),
            key_segments: segments(self.key_segments, self.keys),
            column: head * self.size,
            width: self.width,
            size: self.size,
            causal: self.causal,
            instructions: self.instructions,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            tiles: self.tiles,
            dropout: self.dropout.map(|(mask, dropout)| {
                let stream = dropout.key.sample(dropout.samples.start + sample as u64);
                (mask, stream, (head * self.queries * self.keys) as u64)
            }),
        }
    }
}
