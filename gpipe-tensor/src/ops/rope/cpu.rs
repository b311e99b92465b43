//! The kernels of the rotary position embedding.

use crate::simd::vectorised;

/// Turns the heads of a row of `from` into `to`, forward for `sign` 1 and back for −1.
#[inline(always)]
fn turn(size: usize, turns: &[f32], sign: f32, from: &[f32], to: &mut [f32]) {
    let half = size / 2;
    let (cosines, sines) = turns.split_at(half);
    for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
        let (a, b) = from.split_at(half);
        let (to_a, to_b) = to.split_at_mut(half);
        for i in 0..half {
            let sin = sign * sines[i];
            to_a[i] = a[i].mul_add(cosines[i], -(b[i] * sin));
            to_b[i] = b[i].mul_add(cosines[i], a[i] * sin);
        }
    }
}

/// The cosines and sines of a row.
#[inline(always)]
fn turns_of(table: &[f32], size: usize, row: usize) -> &[f32] {
    let rows = table.len() / size;
    &table[row % rows * size..][..size]
}

/// Packs rows, the first of them row `first` of all samples.
pub(super) fn pack(
    size: usize,
    [wide, narrow]: [usize; 2],
    table: &[f32],
    first: usize,
    [q, k, v]: [&[f32]; 3],
    qkv: &mut [f32],
) {
    vectorised!({
        let rows = q.chunks_exact(wide);
        let rows = rows.zip(k.chunks_exact(narrow).zip(v.chunks_exact(narrow)));
        let rows = rows.zip(qkv.chunks_exact_mut(wide + 2 * narrow));
        for (row, ((q, (k, v)), qkv)) in rows.enumerate() {
            let turns = turns_of(table, size, first + row);
            let (to_q, rest) = qkv.split_at_mut(wide);
            let (to_k, to_v) = rest.split_at_mut(narrow);
            turn(size, turns, 1.0, q, to_q);
            turn(size, turns, 1.0, k, to_k);
            to_v.copy_from_slice(v);
        }
    });
}

/// Takes rows apart, and turns them back.
pub(super) fn unpack(
    size: usize,
    [wide, narrow]: [usize; 2],
    table: &[f32],
    first: usize,
    dqkv: &[f32],
    [dq, dk, dv]: [&mut [f32]; 3],
) {
    vectorised!({
        let rows = dq.chunks_exact_mut(wide);
        let rows = rows.zip(dk.chunks_exact_mut(narrow).zip(dv.chunks_exact_mut(narrow)));
        let rows = rows.zip(dqkv.chunks_exact(wide + 2 * narrow));
        for (row, ((dq, (dk, dv)), dqkv)) in rows.enumerate() {
            let turns = turns_of(table, size, first + row);
            let (from_q, rest) = dqkv.split_at(wide);
            let (from_k, from_v) = rest.split_at(narrow);
            turn(size, turns, -1.0, from_q, dq);
            turn(size, turns, -1.0, from_k, dk);
            dv.copy_from_slice(from_v);
        }
    });
}
