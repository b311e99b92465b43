//! The checked sizes of one call of attention.

use super::cpu::Head;
use crate::error::{Error, Result};
use crate::instruction_set::InstructionSet;
use crate::ops::dropout::{Dropout, Mask};
use crate::tensor::Tensor;

/// The sizes of the operands, and dropout.
pub(super) struct Plan<'a> {
    pub batch: usize,
    pub len: usize,
    pub heads: usize,
    /// Elements of a position's queries, all heads together.
    pub width: usize,
    /// Elements of one head.
    pub size: usize,
    pub dropout: Option<(Mask, &'a Dropout)>,
    pub instructions: InstructionSet,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        op: &'static str,
        qkv: &Tensor,
        heads: usize,
        dropout: Option<&'a Dropout>,
    ) -> Result<Self> {
        let &[batch, len, columns] = qkv.shape().dims() else {
            return Err(Error::shape(
                op,
                "queries, keys and values (B, T, 3d)",
                qkv.shape(),
            ));
        };
        let size = columns / 3 / heads.max(1);
        if size == 0 || size * heads * 3 != columns {
            let expected = format!("(B, T, 3d) with d a multiple of {heads} heads");
            return Err(Error::shape(op, expected, qkv.shape()));
        }
        let dropout = match dropout {
            Some(dropout) => dropout.mask(op, batch)?.map(|mask| (mask, dropout)),
            None => None,
        };
        let width = size * heads;
        Ok(Self {
            batch,
            len,
            heads,
            width,
            size,
            dropout,
            instructions: qkv.device().host().instruction_set(),
        })
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

    /// One of the items, sample by sample.
    pub(super) fn head<'b>(&self, qkv: &'b [f32], item: usize) -> Head<'b> {
        let (sample, head) = (item / self.heads, item % self.heads);
        let row = 3 * self.width;
        Head {
            qkv: &qkv[sample * self.len * row..(sample + 1) * self.len * row],
            column: head * self.size,
            width: self.width,
            size: self.size,
            len: self.len,
            instructions: self.instructions,
            dropout: self.dropout.map(|(mask, dropout)| {
                let stream = dropout.key.sample(dropout.samples.start + sample as u64);
                (mask, stream, (head * self.len * self.len) as u64)
            }),
        }
    }
}
