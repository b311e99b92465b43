//! The checked sizes of one call of attention.

use super::cpu::{self, Head};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::tiles;
use crate::error::{Error, Result};
use crate::instruction_set::InstructionSet;
use crate::ops::dropout::{Dropout, Mask};
use crate::tensor::Tensor;

/// The heads of attention, and how far they see. A number of heads stands for as many of queries, keys and
/// values, which see every position before their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Heads of queries.
    pub queries: usize,
    /// Heads of keys and values, a divisor of those of queries: query head j reads head
    /// ⌊j · groups / queries⌋ (grouped queries; Ainslie et al., arXiv:2305.13245).
    pub groups: usize,
    /// The number of positions that a position sees, its own included; all before it if none is given.
    pub window: Option<usize>,
}

impl From<usize> for Heads {
    fn from(heads: usize) -> Self {
        Self {
            queries: heads,
            groups: heads,
            window: None,
        }
    }
}

/// The sizes of the operands, and dropout.
pub(super) struct Plan<'a> {
    pub batch: usize,
    pub len: usize,
    pub heads: usize,
    /// Heads of keys and values.
    pub groups: usize,
    /// Elements of a position's queries, all heads together.
    pub width: usize,
    /// Elements of one head.
    pub size: usize,
    /// Number of positions that a position sees, at most all of them.
    pub window: usize,
    pub dropout: Option<(Mask, &'a Dropout)>,
    pub instructions: InstructionSet,
    /// Those of heads that are computed on tiles.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub tiles: Option<tiles::Instructions>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        op: &'static str,
        qkv: &Tensor,
        heads: Heads,
        dropout: Option<&'a Dropout>,
    ) -> Result<Self> {
        let Heads {
            queries: heads,
            groups,
            window,
        } = heads;
        let &[batch, len, columns] = qkv.shape().dims() else {
            return Err(Error::shape(
                op,
                "queries, keys and values (B, T, columns)",
                qkv.shape(),
            ));
        };
        let parts = heads.saturating_add(groups.saturating_mul(2));
        let size = columns / parts.max(1);
        let whole = size > 0 && size * parts == columns;
        let divides = heads > 0 && groups > 0 && heads.is_multiple_of(groups);
        if !whole || !divides || window == Some(0) {
            let expected = match groups == heads {
                true => format!("(B, T, 3d) with d a multiple of {heads} heads"),
                false => format!(
                    "(B, T, {parts}s), {heads} heads in {groups} groups of the same size, and a window of 1 \
                     or more"
                ),
            };
            return Err(Error::shape(op, expected, qkv.shape()));
        }
        let dropout = match dropout {
            Some(dropout) => dropout.mask(op, batch)?.map(|mask| (mask, dropout)),
            None => None,
        };
        let width = size * heads;
        let instructions = qkv.device().host().instruction_set();
        Ok(Self {
            batch,
            len,
            heads,
            groups,
            width,
            size,
            window: window.unwrap_or(len).min(len),
            dropout,
            instructions,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            tiles: tiles::instructions(instructions, len),
        })
    }

    /// This with heads computed on these tiles, or by products.
    #[cfg(all(test, target_arch = "x86_64", not(miri)))]
    pub(super) fn with_tiles(self, tiles: Option<tiles::Instructions>) -> Self {
        Self { tiles, ..self }
    }

    /// Heads of all samples: what threads share out.
    pub(super) fn items(&self) -> usize {
        self.batch * self.heads
    }

    /// Of the forward pass, if there were no mask; the backward pass has more.
    pub(super) fn multiplications(&self) -> usize {
        let of_item = self
            .len
            .saturating_mul(self.len)
            .saturating_mul(2 * self.size);
        self.items().saturating_mul(of_item)
    }

    /// Query heads that share a head of keys and values.
    pub(super) fn per_group(&self) -> usize {
        self.heads / self.groups
    }

    /// Floats of scratch of the forward pass of an item.
    pub(super) fn forward_scratch(&self) -> usize {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.tiles.is_some() {
            return tiles::forward_scratch(self.len, self.size);
        }
        cpu::forward_scratch(self.len, self.size)
    }

    /// Floats of scratch of the backward pass of the query heads that share their keys.
    pub(super) fn backward_scratch(&self) -> usize {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.tiles.is_some() {
            return tiles::backward_scratch(self.len, self.size);
        }
        cpu::backward_scratch(self.len, self.size)
    }

    /// One of the items, sample by sample.
    pub(super) fn head<'b>(&self, qkv: &'b [f32], item: usize) -> Head<'b> {
        let (sample, head) = (item / self.heads, item % self.heads);
        let row = (self.heads + 2 * self.groups) * self.size;
        let keys = self.heads + head / self.per_group();
        Head {
            qkv: &qkv[sample * self.len * row..(sample + 1) * self.len * row],
            row,
            columns: [head, keys, keys + self.groups].map(|head| head * self.size),
            width: self.width,
            size: self.size,
            len: self.len,
            window: self.window,
            instructions: self.instructions,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            tiles: self.tiles,
            dropout: self.dropout.map(|(mask, dropout)| {
                let stream = dropout.key.sample(dropout.samples.start + sample as u64);
                (mask, stream, (head * self.len * self.len) as u64)
            }),
        }
    }
}
