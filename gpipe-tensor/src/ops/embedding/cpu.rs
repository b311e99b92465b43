//! The kernels of the embedding.

use crate::simd::vectorised;

/// Copies row `ids[i]` of `table` to row `i` of `out`.
pub(super) fn gather(ids: &[u32], table: &[f32], width: usize, out: &mut [f32]) {
    for (&id, out) in ids.iter().zip(out.chunks_exact_mut(width)) {
        let start = id as usize * width;
        out.copy_from_slice(&table[start..start + width]);
    }
}

/// Adds, in order, each row of `dy` whose id lies in the rows `first ..` of the table to that row.
pub(super) fn scatter_add(ids: &[u32], dy: &[f32], width: usize, first: usize, table: &mut [f32]) {
    vectorised!({
        let rows = table.len() / width;
        for (&id, dy) in ids.iter().zip(dy.chunks_exact(width)) {
            let row = (id as usize).wrapping_sub(first);
            if row < rows {
                let sums = &mut table[row * width..(row + 1) * width];
                sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            }
        }
    });
}
