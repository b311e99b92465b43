//! Floats split into parts that the tile unit multiplies, in the order in which it reads them.

use std::arch::x86_64::*;

use super::super::gemm::Matrix;
use super::{BLOCK, PARTS, SLAB, SLAB_FLOATS, TILE, TILE_FLOATS};

/// Which operand is packed: that decides what is a row of its tiles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The left one: a tile's row holds 32 inner elements of one row.
    Left,
    /// The right one: a tile's row holds two inner elements of each of 16 columns.
    Right,
}

/// Packs the elements `inner` of `lanes` rows of the left operand or columns of the right one into
/// slabs, one after the other; what a slab has no element for is 0.
pub(super) fn pack(
    side: Side,
    operand: Matrix<'_>,
    lanes: std::ops::Range<usize>,
    inner: std::ops::Range<usize>,
    out: &mut [f32],
) {
    debug_assert!(lanes.len() <= BLOCK);
    let slabs = inner.clone().step_by(SLAB);
    assert!(slabs.len() * SLAB_FLOATS <= out.len(), "room for the slabs");
    let (lane_stride, inner_stride) = match side {
        Side::Left => operand.strides(),
        Side::Right => operand.transposed().strides(),
    };
    for (first, out) in slabs.zip(out.chunks_exact_mut(SLAB_FLOATS)) {
        let depth = SLAB.min(inner.end - first);
        for tile in 0..BLOCK / TILE {
            let lane = lanes.start + tile * TILE;
            let count = lanes.end.saturating_sub(lane).min(TILE);
            let start = if count == 0 {
                0
            } else {
                lane * lane_stride + first * inner_stride
            };
            let source = Source {
                floats: &operand.floats()[start..],
                lane_stride,
                inner_stride,
                lanes: count,
                depth,
            };
            source.check();
            let out = &mut out[tile * TILE_FLOATS..];
            assert!(out.len() >= (PARTS - 1) * 2 * TILE_FLOATS + TILE_FLOATS);
            // SAFETY: the instructions are there wherever the tile unit is; the source was checked
            // to hold the elements, and `out` to have room for its tiles.
            unsafe { pack_tile(side, source, out.as_mut_ptr()) };
        }
    }
}

/// Up to 16 lanes of up to 32 inner elements.
#[derive(Clone, Copy)]
struct Source<'a> {
    floats: &'a [f32],
    lane_stride: usize,
    inner_stride: usize,
    lanes: usize,
    depth: usize,
}

impl Source<'_> {
    /// Panics unless the floats hold the elements, and one of the strides is 1.
    fn check(&self) {
        assert!(self.lane_stride == 1 || self.inner_stride == 1);
        if self.lanes > 0 && self.depth > 0 {
            let last = (self.lanes - 1) * self.lane_stride + (self.depth - 1) * self.inner_stride;
            assert!(last < self.floats.len(), "an operand that is long enough");
        }
    }
}

/// One tile of each part, `2 * TILE_FLOATS` apart.
///
/// # Safety
/// The processor must have AVX-512 F and BW; `source` must hold what it says, and `out` have room.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_tile(side: Side, source: Source<'_>, out: *mut f32) {
    let Source {
        floats,
        lane_stride,
        inner_stride,
        lanes,
        depth,
    } = source;
    let floats = floats.as_ptr();
    let mut parts = [[_mm512_setzero_si512(); TILE]; PARTS];
    // Pairs of inner elements, as the unit takes them, by lanes or by pairs: whichever lies in a row.
    let by_lanes = inner_stride == 1;
    // SAFETY: masked loads read only the elements that there are; every row begins inside of the
    // floats.
    unsafe {
        if by_lanes {
            let (low, high) = (first_of_16(depth), first_of_16(depth.saturating_sub(TILE)));
            for lane in 0..lanes {
                let row = floats.add(lane * lane_stride);
                let left = split(_mm512_maskz_loadu_ps(low, row));
                let right = split(_mm512_maskz_loadu_ps(high, row.wrapping_add(TILE)));
                for (part, (left, right)) in parts.iter_mut().zip(left.into_iter().zip(right)) {
                    part[lane] = upper_halves(left, right);
                }
            }
        } else {
            let there = first_of_16(lanes);
            for pair in 0..depth.div_ceil(2) {
                let row = floats.add(2 * pair * inner_stride);
                let even = split(_mm512_maskz_loadu_ps(there, row));
                let odd = if 2 * pair + 1 < depth {
                    split(_mm512_maskz_loadu_ps(there, row.add(inner_stride)))
                } else {
                    [_mm512_setzero_si512(); PARTS]
                };
                for (part, (even, odd)) in parts.iter_mut().zip(even.into_iter().zip(odd)) {
                    part[pair] = _mm512_mask_blend_epi16(ODD, _mm512_srli_epi32::<16>(even), odd);
                }
            }
        }
    }
    for (index, part) in parts.iter_mut().enumerate() {
        if by_lanes != (side == Side::Left) {
            transpose(part);
        }
        for (row, &units) in part.iter().enumerate() {
            // SAFETY: the caller gives room for a tile of each part.
            unsafe {
                let to = out.add(index * 2 * TILE_FLOATS + row * TILE);
                _mm512_storeu_si512(to.cast(), units);
            }
        }
    }
}

/// The odd ones of 32 lanes.
const ODD: u32 = 0xAAAA_AAAA;

/// A mask of the first `n` of 16 lanes, all of them if there are more.
fn first_of_16(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// x as a sum of three numbers of 8 bits each, which are the upper halves of floats: exact, since a
/// float has 24 bits (but for what lies below the smallest normal float).
#[target_feature(enable = "avx512f")]
fn split(x: __m512) -> [__m512i; PARTS] {
    let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
    let first = _mm512_and_si512(_mm512_castps_si512(x), upper);
    let rest = _mm512_sub_ps(x, _mm512_castsi512_ps(first));
    let second = _mm512_and_si512(_mm512_castps_si512(rest), upper);
    let third = _mm512_sub_ps(rest, _mm512_castsi512_ps(second));
    [first, second, _mm512_castps_si512(third)]
}

/// The upper halves of 32 floats, in their order.
#[target_feature(enable = "avx512f,avx512bw")]
fn upper_halves(left: __m512i, right: __m512i) -> __m512i {
    let odd = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19,
        17, 15, 13, 11, 9, 7, 5, 3, 1,
    );
    _mm512_permutex2var_epi16(left, odd, right)
}

/// Exchanges rows and columns of 16 by 16 units of 32 bits.
#[target_feature(enable = "avx512f")]
fn transpose(rows: &mut [__m512i; TILE]) {
    let mut other = *rows;
    // Units, then pairs of units, then groups of four, then of eight change places.
    for i in 0..8 {
        let (a, b) = (rows[2 * i], rows[2 * i + 1]);
        other[2 * i] = _mm512_unpacklo_epi32(a, b);
        other[2 * i + 1] = _mm512_unpackhi_epi32(a, b);
    }
    for i in 0..4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|j| other[4 * i + j]);
        rows[4 * i] = _mm512_unpacklo_epi64(a, c);
        rows[4 * i + 1] = _mm512_unpackhi_epi64(a, c);
        rows[4 * i + 2] = _mm512_unpacklo_epi64(b, d);
        rows[4 * i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for i in 0..4 {
        let [a, b, c, d] = [0, 4, 8, 12].map(|j| rows[j + i]);
        other[i] = _mm512_shuffle_i32x4::<0x88>(a, b);
        other[4 + i] = _mm512_shuffle_i32x4::<0xDD>(a, b);
        other[8 + i] = _mm512_shuffle_i32x4::<0x88>(c, d);
        other[12 + i] = _mm512_shuffle_i32x4::<0xDD>(c, d);
    }
    for i in 0..4 {
        let [a, b, c, d] = [0, 4, 8, 12].map(|j| other[j + i]);
        rows[i] = _mm512_shuffle_i32x4::<0x88>(a, c);
        rows[8 + i] = _mm512_shuffle_i32x4::<0xDD>(a, c);
        rows[4 + i] = _mm512_shuffle_i32x4::<0x88>(b, d);
        rows[12 + i] = _mm512_shuffle_i32x4::<0xDD>(b, d);
    }
}
