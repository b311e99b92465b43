//! Floats split into parts that the tile unit multiplies, in the order in which it reads them.

use std::arch::x86_64::*;

use super::tile::{BLOCK, SLAB, TILE, TILE_FLOATS, slab_floats};
use crate::ops::matmul::matrix::Matrix;

/// Which operand is packed: that decides what is a row of its tiles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The left one: a tile's row holds 32 inner elements of one row: 0, 16, 1, 17 and so on, which
    /// takes fewer instructions than their own order.
    Left,
    /// The right one: a tile's row holds two inner elements of each of 16 columns, 16 apart.
    Right,
}

/// Packs this many parts of the elements `inner` of `lanes` rows of the left operand or columns of the right one into
/// slabs, one after the other; what a slab has no element for is 0.
pub(super) fn pack<const PARTS: usize>(
    side: Side,
    operand: Matrix<'_>,
    lanes: std::ops::Range<usize>,
    inner: std::ops::Range<usize>,
    out: &mut [f32],
) {
    debug_assert!(lanes.len() <= BLOCK);
    let slabs = inner.clone().step_by(SLAB);
    assert!(
        slabs.len() * slab_floats(PARTS) <= out.len(),
        "room for the slabs"
    );
    let (lane_stride, inner_stride) = match side {
        Side::Left => operand.strides(),
        Side::Right => operand.transposed().strides(),
    };
    for (first, out) in slabs.zip(out.chunks_exact_mut(slab_floats(PARTS))) {
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
            assert!(out.len() >= (2 * PARTS - 1) * TILE_FLOATS);
            // SAFETY: AMX is available only together with these instructions; the source was checked
            // to hold the elements, and `out` to have room for its tiles.
            unsafe { pack_tile::<PARTS>(side, source, out.as_mut_ptr()) };
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
unsafe fn pack_tile<const PARTS: usize>(side: Side, source: Source<'_>, out: *mut f32) {
    // What lies in a row of the source, a lane or an inner element, either is what lies in a row of
    // the tiles, or rows and columns change places. Plain loops: a closure would not be compiled for
    // these instructions.
    // SAFETY: the caller's promises are those that are asked for here.
    unsafe {
        match (side, source.inner_stride == 1) {
            (Side::Left, true) => {
                for lane in 0..TILE {
                    let (left, right) = (source.lane(lane, 0), source.lane(lane, TILE));
                    store_pairs::<PARTS>(out.add(lane * TILE), left, right);
                }
            }
            (Side::Left, false) => {
                let (mut left, mut right) =
                    ([_mm512_setzero_ps(); TILE], [_mm512_setzero_ps(); TILE]);
                for i in 0..TILE {
                    left[i] = source.inner(i);
                    right[i] = source.inner(TILE + i);
                }
                let (left, right) = (transposed(left), transposed(right));
                for lane in 0..TILE {
                    store_pairs::<PARTS>(out.add(lane * TILE), left[lane], right[lane]);
                }
            }
            (Side::Right, false) => {
                for pair in 0..TILE {
                    let (left, right) = (source.inner(pair), source.inner(TILE + pair));
                    store_pairs::<PARTS>(out.add(pair * TILE), left, right);
                }
            }
            (Side::Right, true) => {
                let (mut left, mut right) =
                    ([_mm512_setzero_ps(); TILE], [_mm512_setzero_ps(); TILE]);
                for lane in 0..TILE {
                    left[lane] = source.lane(lane, 0);
                    right[lane] = source.lane(lane, TILE);
                }
                let (left, right) = (transposed(left), transposed(right));
                for pair in 0..TILE {
                    store_pairs::<PARTS>(out.add(pair * TILE), left[pair], right[pair]);
                }
            }
        }
    }
}

impl Source<'_> {
    /// 16 inner elements of a lane from `first` on; 0 where there are none.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, and the source hold what it says.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn lane(&self, lane: usize, first: usize) -> __m512 {
        let there = if lane < self.lanes {
            first_of_16(self.depth.saturating_sub(first))
        } else {
            0
        };
        let from = self
            .floats
            .as_ptr()
            .wrapping_add(lane * self.lane_stride + first);
        // SAFETY: a masked load reads only the elements that there are.
        unsafe { _mm512_maskz_loadu_ps(there, from) }
    }

    /// An inner element of all 16 lanes; 0 where there are none.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, and the source hold what it says.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn inner(&self, inner: usize) -> __m512 {
        let there = if inner < self.depth {
            first_of_16(self.lanes)
        } else {
            0
        };
        let from = self.floats.as_ptr().wrapping_add(inner * self.inner_stride);
        // The next lanes will be packed soon. Newer compilers take the call as safe, the oldest supported one
        // wants the block.
        #[allow(unused_unsafe)]
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(BLOCK).cast());
        }
        // SAFETY: a masked load reads only the elements that there are.
        unsafe { _mm512_maskz_loadu_ps(there, from) }
    }
}

/// Writes a row of the tile of each part: floats from both sides in turns.
///
/// # Safety
/// There must be room at `out` for a row in each of the tiles.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn store_pairs<const PARTS: usize>(out: *mut f32, left: __m512, right: __m512) {
    let (left, right) = (split::<PARTS>(left), split::<PARTS>(right));
    for part in 0..PARTS {
        let low = _mm512_srli_epi32::<16>(left[part]);
        let row = _mm512_mask_blend_epi16(0xAAAA_AAAA, low, right[part]);
        // SAFETY: the caller gives the room.
        unsafe { _mm512_storeu_si512(out.add(part * 2 * TILE_FLOATS).cast(), row) };
    }
}

/// A mask of the first `n` of 16 lanes, all of them if there are more.
fn first_of_16(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// The upper halves of floats: the one nearest to x (to the even one of two) where one is asked for,
/// else three whose sum is x: exact, since each has 8 bits and a float 24 (but for what lies below the
/// smallest normal float). The second is the nearest to what the first leaves: the third, and with it what
/// the smallest products lack, has either sign.
#[target_feature(enable = "avx512f")]
#[inline]
fn split<const PARTS: usize>(x: __m512) -> [__m512i; PARTS] {
    let bits = _mm512_castps_si512(x);
    let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
    let mut parts = [_mm512_setzero_si512(); PARTS];
    if PARTS == 1 {
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
        // What is not a number would be carried over into one.
        let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(x, x);
        parts[0] = _mm512_and_si512(_mm512_mask_add_epi32(bits, number, bits, up), upper);
        return parts;
    }
    // Cut off, not rounded, so that what is finite stays so; what is left has the same sign.
    let first = _mm512_and_si512(bits, upper);
    let rest = _mm512_sub_ps(x, _mm512_castsi512_ps(first));
    let nearest = _mm512_add_epi32(_mm512_castps_si512(rest), _mm512_set1_epi32(0x8000));
    let second = _mm512_and_si512(nearest, upper);
    let third = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(second)));
    for (part, value) in parts.iter_mut().zip([first, second, third]) {
        *part = value;
    }
    parts
}

/// Rows and columns of 16 by 16 floats exchanged.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(rows: [__m512; TILE]) -> [__m512; TILE] {
    // Floats, then pairs, then groups of four, then of eight change places.
    let mut a = rows;
    let mut b = rows;
    for i in 0..8 {
        b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    for i in 0..4 {
        let (p, q) = (_mm512_castps_pd(b[4 * i]), _mm512_castps_pd(b[4 * i + 1]));
        let (r, s) = (
            _mm512_castps_pd(b[4 * i + 2]),
            _mm512_castps_pd(b[4 * i + 3]),
        );
        a[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, r));
        a[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, r));
        a[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(q, s));
        a[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(q, s));
    }
    for i in 0..4 {
        let (p, q, r, s) = (a[i], a[4 + i], a[8 + i], a[12 + i]);
        b[i] = _mm512_shuffle_f32x4::<0x88>(p, q);
        b[4 + i] = _mm512_shuffle_f32x4::<0xDD>(p, q);
        b[8 + i] = _mm512_shuffle_f32x4::<0x88>(r, s);
        b[12 + i] = _mm512_shuffle_f32x4::<0xDD>(r, s);
    }
    for i in 0..4 {
        let (p, q, r, s) = (b[i], b[4 + i], b[8 + i], b[12 + i]);
        a[i] = _mm512_shuffle_f32x4::<0x88>(p, r);
        a[8 + i] = _mm512_shuffle_f32x4::<0xDD>(p, r);
        a[4 + i] = _mm512_shuffle_f32x4::<0x88>(q, s);
        a[12 + i] = _mm512_shuffle_f32x4::<0xDD>(q, s);
    }
    a
}
