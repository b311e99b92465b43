//! Splits floats into bf16 parts for the tile unit, in the order in which it reads them.

use std::arch::x86_64::*;

use super::tile::{BLOCK, SLAB, TILE, TILE_FLOATS, slab_floats};
use crate::ops::matmul::matrix::{Matrix, reaches};

/// Which operand is packed; decides the layout of its tiles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The left operand: a tile's row holds 32 inner elements of one row, in the order 0, 16, 1, 17 and
    /// so on, which takes fewer instructions than ascending order.
    Left,
    /// The right operand: a tile's row holds two inner elements, 16 apart, of each of 16 columns.
    Right,
}

/// Packs `PARTS` parts of each float into consecutive slabs: the inner elements `inner` of the rows
/// `lanes` of the left operand, or of the columns `lanes` of the right one. Slabs are padded with zeros.
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
        let next = match first + SLAB < inner.end {
            true => SLAB * inner_stride,
            false => (BLOCK * lane_stride).wrapping_sub((first - inner.start) * inner_stride),
        };
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
                next,
            };
            source.check();
            let out = &mut out[tile * TILE_FLOATS..];
            assert!(out.len() >= (2 * PARTS - 1) * TILE_FLOATS);
            // SAFETY: AMX implies these instructions; the checks above ensure that the source holds
            // the elements and that `out` has room for its tiles.
            unsafe {
                match source.is_full() {
                    true => pack_tile::<PARTS, true>(side, source, out.as_mut_ptr()),
                    false => pack_tile::<PARTS, false>(side, source, out.as_mut_ptr()),
                }
            }
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
    /// How much further what is packed next lies: the next slab, or the first one of the next block.
    next: usize,
}

impl Source<'_> {
    /// Panics unless the floats contain all elements and one of the strides is 1.
    fn check(&self) {
        assert!(self.lane_stride == 1 || self.inner_stride == 1);
        assert!(
            reaches(
                self.floats.len(),
                self.lanes,
                self.lane_stride,
                self.depth,
                self.inner_stride
            ),
            "an operand that is long enough"
        );
    }

    /// Whether no lane and no inner element is missing.
    fn is_full(&self) -> bool {
        (self.lanes, self.depth) == (TILE, SLAB)
    }
}

/// Writes one tile per part; consecutive parts are `2 * TILE_FLOATS` apart.
///
/// # Safety
/// The processor must have AVX-512 F and BW; `source` must hold the elements that it describes, all of a tile if `FULL`,
/// and `out` must have room for the tiles.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_tile<const PARTS: usize, const FULL: bool>(
    side: Side,
    source: Source<'_>,
    out: *mut f32,
) {
    // Where rows of the source are rows of the tiles they are copied, else 16 by 16 blocks are
    // transposed. Plain loops: a closure would not be compiled for these instructions.
    // SAFETY: the safety conditions of this function imply those of the calls.
    unsafe {
        match (side, source.inner_stride == 1) {
            (Side::Left, true) => {
                for lane in 0..TILE {
                    let [left, right] = source.lane::<FULL>(lane);
                    store_pairs::<PARTS>(out.add(lane * TILE), left, right);
                }
            }
            (Side::Left, false) => {
                let (mut left, mut right) =
                    ([_mm512_setzero_ps(); TILE], [_mm512_setzero_ps(); TILE]);
                for i in 0..TILE {
                    [left[i], right[i]] = source.pair::<FULL>(i);
                }
                let (left, right) = (transposed(left), transposed(right));
                for lane in 0..TILE {
                    store_pairs::<PARTS>(out.add(lane * TILE), left[lane], right[lane]);
                }
            }
            (Side::Right, false) => {
                for pair in 0..TILE {
                    let [left, right] = source.pair::<FULL>(pair);
                    store_pairs::<PARTS>(out.add(pair * TILE), left, right);
                }
            }
            (Side::Right, true) => {
                let (mut left, mut right) =
                    ([_mm512_setzero_ps(); TILE], [_mm512_setzero_ps(); TILE]);
                for lane in 0..TILE {
                    [left[lane], right[lane]] = source.lane::<FULL>(lane);
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
    /// The 32 inner elements of a lane; 0 beyond the end. Asks for those of the next slab.
    ///
    /// # Safety
    /// The processor must have AVX-512 F; the source must hold the elements that it describes, of all lanes if `FULL`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn lane<const FULL: bool>(&self, lane: usize) -> [__m512; 2] {
        let from = self.at(lane, self.lane_stride);
        let next = from.wrapping_add(self.next);
        prefetch(next);
        prefetch(next.wrapping_add(TILE));
        // SAFETY: all elements exist if `FULL`; a masked load reads only existing ones.
        unsafe {
            if FULL {
                return [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(TILE))];
            }
            let depth = if lane < self.lanes { self.depth } else { 0 };
            let right = from.wrapping_add(TILE);
            [
                _mm512_maskz_loadu_ps(first_of_16(depth), from),
                _mm512_maskz_loadu_ps(first_of_16(depth.saturating_sub(TILE)), right),
            ]
        }
    }

    /// The inner elements `inner` and 16 + `inner` of all 16 lanes; 0 beyond the end. Asks for those of the next slab.
    ///
    /// # Safety
    /// The processor must have AVX-512 F; the source must hold the elements that it describes, and all of a slab if `FULL`.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn pair<const FULL: bool>(&self, inner: usize) -> [__m512; 2] {
        let from = self.at(inner, self.inner_stride);
        let right = self.at(TILE + inner, self.inner_stride);
        prefetch(from.wrapping_add(self.next));
        prefetch(right.wrapping_add(self.next));
        // SAFETY: all elements exist if `FULL`; a masked load reads only existing ones.
        unsafe {
            if FULL {
                return [_mm512_loadu_ps(from), _mm512_loadu_ps(right)];
            }
            let mask = |inner| match inner < self.depth {
                true => first_of_16(self.lanes),
                false => 0,
            };
            [
                _mm512_maskz_loadu_ps(mask(inner), from),
                _mm512_maskz_loadu_ps(mask(TILE + inner), right),
            ]
        }
    }

    /// The address of a row or column, of which the strides may lead beyond the end.
    #[inline]
    fn at(&self, index: usize, stride: usize) -> *const f32 {
        self.floats
            .as_ptr()
            .wrapping_add(index.wrapping_mul(stride))
    }
}

/// Asks for a cache line that is packed soon, into the second-level cache: in the first, lines that lie a power of two apart would
/// drive each other out.
#[inline]
fn prefetch(address: *const f32) {
    // Newer compilers take the call as safe, the oldest supported one wants the block.
    #[allow(unused_unsafe)]
    // SAFETY: a prefetch reads nothing, whatever the address; every processor that this is compiled for has it.
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
}

/// Writes one row of the tile of each part: the values of `left` and `right` interleaved.
///
/// # Safety
/// `out` must have room for a row in each of the tiles.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn store_pairs<const PARTS: usize>(out: *mut f32, left: __m512, right: __m512) {
    let (left, right) = (split::<PARTS>(left), split::<PARTS>(right));
    for part in 0..PARTS {
        let low = _mm512_srli_epi32::<16>(left[part]);
        let row = _mm512_mask_blend_epi16(0xAAAA_AAAA, low, right[part]);
        // SAFETY: the caller provides the room.
        unsafe { _mm512_storeu_si512(out.add(part * 2 * TILE_FLOATS).cast(), row) };
    }
}

/// Mask of the first `n` of 16 lanes; all lanes for `n` above 16.
fn first_of_16(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// The bf16 parts of floats. One part is the nearest bf16, ties to even. Three parts sum up to the float
/// exactly, since each has 8 bits and a float 24 (except below the smallest normal float): the first is
/// truncated, the second is the nearest to the remainder. The third, and with it the products that are
/// left out, therefore has either sign.
#[target_feature(enable = "avx512f")]
#[inline]
fn split<const PARTS: usize>(x: __m512) -> [__m512i; PARTS] {
    let bits = _mm512_castps_si512(x);
    let upper = _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
    let mut parts = [_mm512_setzero_si512(); PARTS];
    if PARTS == 1 {
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
        // The rounding could carry a NaN over into a number.
        let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(x, x);
        parts[0] = _mm512_and_si512(_mm512_mask_add_epi32(bits, number, bits, up), upper);
        return parts;
    }
    // Truncated, not rounded, so that finite floats stay finite; the remainder has the same sign.
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

/// Transposes 16 by 16 floats.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(rows: [__m512; TILE]) -> [__m512; TILE] {
    // Exchanges single floats, then pairs, then groups of four, then groups of eight.
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
