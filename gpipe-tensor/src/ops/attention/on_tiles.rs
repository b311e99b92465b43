//! Causal heads on tiles.

use std::ops::Range;

use ndarray::{ArrayViewMut2, Axis};

use super::cpu::Head;
use super::tiles::{Backward, Forward, Instructions, Keys, QueryHead, Sees};

impl<'a> Head<'a> {
    /// As [`forward`](Self::forward); `next` is the head that this thread is likely to take next.
    pub(super) fn forward_on_tiles(
        self,
        instructions: Instructions,
        next: Option<Self>,
        out: ArrayViewMut2<'_, f32>,
        lse: &mut [f32],
        scratch: &mut [f32],
    ) {
        let forward = Forward {
            queries: self.part(0, 0),
            keys: self.tile_keys(),
            sees: self,
            dropout: self.dropout,
            next: next.map(|next| (next.part(0, 0), next.tile_keys())),
            out,
            lse,
            scratch,
        };
        forward.run(instructions);
    }

    /// As [`backward`](Self::backward); `next` is the first head that this thread is likely to take next, with its
    /// sample's results and their gradients.
    pub(super) fn backward_on_tiles(
        self,
        instructions: Instructions,
        next: Option<(Self, [&[f32]; 2])>,
        [out, lse, d_out]: [&[f32]; 3],
        [mut dq, dk, dv]: [ArrayViewMut2<'_, f32>; 3],
        scratch: &mut [f32],
    ) {
        let heads = dq.axis_chunks_iter_mut(Axis(1), self.size);
        let heads = heads.zip(lse.chunks_exact(self.len)).enumerate();
        let backward = Backward {
            keys: self.tile_keys(),
            sees: self,
            heads: heads.map(|(later, (dq, lse))| {
                let head = self.later(later);
                QueryHead {
                    queries: head.part(0, 0),
                    out: head.single(out, 0),
                    d_out: head.single(d_out, 0),
                    lse,
                    dropout: head.dropout,
                    dq,
                }
            }),
            next: next.map(|(next, [out, d_out])| {
                let rows = [next.part(0, 0), next.single(out, 0), next.single(d_out, 0)];
                (next.tile_keys(), rows)
            }),
            dk,
            dv,
            scratch,
        };
        backward.run(instructions);
    }

    fn tile_keys(self) -> Keys<'a> {
        Keys {
            keys: self.part(1, 0),
            values: self.part(2, 0),
            len: self.len,
            size: self.size,
        }
    }
}

impl Sees for Head<'_> {
    fn keys(self, queries: Range<usize>) -> Range<usize> {
        (queries.start + 1).saturating_sub(self.window)..queries.end
    }

    fn all(self, queries: Range<usize>, keys: Range<usize>) -> bool {
        keys.end <= queries.start + 1 && queries.end <= keys.start + self.window
    }

    #[inline(always)]
    fn hide<const QUERIES: usize>(self, key: usize, first: usize, scores: &mut [f32; QUERIES]) {
        // Of a later key the distance wraps to a large number. What is wider than this has no scores in memory.
        let distance = (first as u32).wrapping_sub(key as u32);
        let window = u32::try_from(self.window).unwrap_or(u32::MAX);
        for (lane, score) in (0u32..).zip(scores) {
            let value = *score;
            let sees = distance.wrapping_add(lane) < window;
            *score = if sees { value } else { f32::NEG_INFINITY };
        }
    }
}
