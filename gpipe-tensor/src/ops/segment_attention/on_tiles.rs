//! Heads of segments on tiles.

use std::ops::Range;

use ndarray::ArrayViewMut2;

use super::cpu::{Head, PADDING};
use crate::ops::attention::tiles::{Backward, Forward, Instructions, Keys, QueryHead, Sees};
use crate::ops::matmul::matrix::Matrix;

impl<'a> Head<'a> {
    /// As [`forward`](Self::forward).
    pub(super) fn forward_on_tiles(
        self,
        instructions: Instructions,
        next: Option<Self>,
        out: ArrayViewMut2<'_, f32>,
        lse: &mut [f32],
        scratch: &mut [f32],
    ) {
        let forward = Forward {
            queries: self.query_rows(self.queries, 0),
            keys: self.tile_keys(),
            sees: self,
            dropout: self.dropout,
            next: next.map(|next| (next.query_rows(next.queries, 0), next.tile_keys())),
            out,
            lse,
            scratch,
        };
        forward.run(instructions);
    }

    /// As [`backward`](Self::backward).
    pub(super) fn backward_on_tiles(
        self,
        instructions: Instructions,
        next: Option<(Self, [&[f32]; 2])>,
        [out, lse, d_out]: [&[f32]; 3],
        [dq, dk, dv]: [ArrayViewMut2<'_, f32>; 3],
        scratch: &mut [f32],
    ) {
        let [queries, out, d_out] = self.rows_of([self.queries, out, d_out]);
        let head = QueryHead {
            queries,
            out,
            d_out,
            lse,
            dropout: self.dropout,
            dq,
        };
        let backward = Backward {
            keys: self.tile_keys(),
            sees: self,
            heads: std::iter::once(head),
            next: next.map(|(next, results)| {
                let [out, d_out] = results;
                (next.tile_keys(), next.rows_of([next.queries, out, d_out]))
            }),
            dk,
            dv,
            scratch,
        };
        backward.run(instructions);
    }

    fn rows_of<'b>(self, floats: [&'b [f32]; 3]) -> [Matrix<'b>; 3] {
        floats.map(|floats| self.query_rows(floats, 0))
    }

    fn tile_keys(self) -> Keys<'a> {
        Keys {
            keys: self.key_rows(0, 0),
            values: self.key_rows(1, 0),
            len: self.key_segments.len(),
            size: self.size,
        }
    }
}

impl Sees for Head<'_> {
    fn keys(self, queries: Range<usize>) -> Range<usize> {
        self.seen_by(queries)
    }

    fn all(self, queries: Range<usize>, keys: Range<usize>) -> bool {
        let Some(of_keys) = self.key_segments.get(keys.clone()) else {
            return false;
        };
        let segment = of_keys[0];
        let same = |segments: &[u32]| segments.iter().all(|other| *other == segment);
        segment != PADDING
            && (!self.causal || keys.end <= queries.start + 1)
            && same(of_keys)
            && same(&self.query_segments[queries])
    }

    #[inline(always)]
    fn hide<const QUERIES: usize>(self, key: usize, first: usize, scores: &mut [f32; QUERIES]) {
        let mut segments = [PADDING; QUERIES];
        for (to, from) in segments.iter_mut().zip(&self.query_segments[first..]) {
            *to = *from;
        }
        let segment = self.key_segments.get(key).copied().unwrap_or(PADDING);
        let distance = match self.causal {
            true => (first as u32).wrapping_sub(key as u32),
            false => 0,
        };
        for lane in 0..QUERIES {
            let value = scores[lane];
            let same = segments[lane] == segment && segment != PADDING;
            let sees = same & (distance.wrapping_add(lane as u32) < 1 << 31);
            scores[lane] = if sees { value } else { f32::NEG_INFINITY };
        }
    }
}
