//! Large products of floats by AVX2 and FMA, or by AVX-512.
//!
//! A step of the kernel of the crate `gemm-f32` reads 24 floats of one operand, which lie in the second-level cache, for 4 of
//! the other: 16 bytes a cycle at the peak of AVX2's multipliers, half of what that cache gives at best on a Zen 3. Here a
//! panel of two vectors of columns of b stays in the first-level cache while panels of 6 rows of a (12 by AVX-512) come
//! by, 4 bytes a cycle: the order of Goto and van de Geijn (ACM TOMS 34(3), 2008) with the tile that BLIS takes for AVX2. On
//! that Zen 3, the products of a transformer with 4,096 rows take 0.82 to 0.89 of `gemm-f32`'s time. Where all operands fit
//! the second-level cache, `gemm-f32` is as fast or faster, since it copies less. By AVX-512 on a Zen 5 steps of two models
//! take 0.95 to 0.98 of their time with `gemm-f32`. There, reading rows of a in place takes 1 to 2 % longer than copying them; on
//! an Intel Xeon reading rows or columns of a in place by tiles of 8 by 48 takes 0.95 to 1.07 of the time by shape, the same in
//! all, and asking for the lines that are copied next while tiles are multiplied changes nothing. Asking for the next panels of b
//! meanwhile, into the second-level cache, takes 0.98 of a step there. That Xeon multiplies at
//! about 0.85 of its peak where all operands lie in the first-level cache, alike by tiles of 12 by 32, 14 by 32, 8 by 48, 9 by
//! 48 and 6 by 64; MKL's products of 1,024 rows are as fast there as these. With weights that are packed already, a step of
//! `bench-a` takes 0.97 of its time there on one thread and 0.98 to 0.99 on two. A prototype that packed them once a step, for 4 and 8
//! micro-batches, took 1.02 and 1.03 of it (1.05 to 1.13 with AMX, where they grow by half; 0.97 in bf16): panels that were just packed
//! are in the caches. So weights are packed for every product. With GELU computed while its rows are packed, instead of before, a
//! step takes 1.01 of its time.
//!
//! With [`Precision::Bf16`], operands are rounded to the nearest bf16 when they are packed, two inner elements in the place
//! of a float, and a step multiplies both.
//!
//! Sums are cut into runs by the number of inner elements alone. So the bits of an element depend neither on threads
//! nor on the rows and columns around it.

pub(in crate::ops) mod kernel;
pub(in crate::ops) mod pack;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use pulp::Simd;
use pulp::x86::{V3, V4};

use super::matrix::{Begin, Gemm, Matrix, MatrixMut};
use crate::instruction_set::InstructionSet;
use crate::ops::scratch::{Scratch, Spare};
use crate::parallel::{even_parts, for_each_in_parts, threads_for};
use crate::{Device, Host, Precision, Result};
use kernel::{Bf16Pairs, Multiply, Product};
use pack::pack;

/// The most steps of a panel, of an inner element each or of two: 16 KiB for the 16 columns of AVX2, half of a first-level cache; 32 KiB for the 32
/// of AVX-512, two thirds of that of a Zen 5, where 192 take up to 3 % longer.
const DEPTH: usize = 256;
/// The most rows of a work item: with [`DEPTH`] 72 KiB, which fits a second-level cache of 256 KiB.
const ROWS: usize = 72;
/// The most columns of b that are packed together.
const COLUMNS: usize = 2048;
/// The most floats of all packed panels of b together: 1 MiB, half of a second-level cache of an Intel Xeon. Where 4 MiB come from
/// its third-level cache for every work item, gradients of weights take 3 % longer.
const PACKED: usize = 1 << 18;
/// Columns of b that are packed by one thread.
const PART: usize = 64;

/// The instructions of products that are computed here.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Instructions {
    Avx2(V3),
    Avx512(V4),
}

impl Instructions {
    /// The best of the processor among those allowed.
    pub(in crate::ops) fn of(allowed: InstructionSet) -> Option<Self> {
        match V4::try_new() {
            Some(simd) if allowed != InstructionSet::Avx2 => Some(Self::Avx512(simd)),
            _ => V3::try_new().map(Self::Avx2),
        }
    }
}

/// The instructions, if this product is computed here: the processor has them, and the product is large enough to make
/// up for the copies of its operands, or is one of those that [`Precision::Bf16`] is for.
pub(super) fn takes(gemm: Gemm, host: &Host) -> Option<Instructions> {
    let Gemm { m, n, k, scale, .. } = gemm;
    let least = match host.precision() {
        Precision::Single => (192, 128, 64),
        Precision::Bf16 => (64, 32, 32),
    };
    match m >= least.0 && n >= least.1 && k >= least.2 && scale == 1.0 {
        true => Instructions::of(host.instruction_set()),
        false => None,
    }
}

/// Computes c = begin + a·b on as many threads as `device` may use now.
///
/// # Errors
/// Errors of allocation.
pub(super) fn run(
    instructions: Instructions,
    device: &Device,
    gemm: Gemm,
    begin: Begin<'_>,
    operands: (Matrix<'_>, Matrix<'_>),
    c: MatrixMut<'_>,
) -> Result<()> {
    match instructions {
        Instructions::Avx2(simd) => {
            run_with::<_, 6, 16, 1>((simd, simd), device, gemm, begin, operands, c)
        }
        Instructions::Avx512(simd) => match Bf16Pairs::new(simd) {
            Some(pairs) if device.host().precision() == Precision::Bf16 => {
                run_with::<_, 12, 32, 2>((pairs, *simd), device, gemm, begin, operands, c)
            }
            _ => run_with::<_, 12, 32, 1>((simd, *simd), device, gemm, begin, operands, c),
        },
    }
}

/// As [`run`], by tiles of this many rows and columns (two vectors), whose sums take three quarters of the registers, and steps of
/// `INNER` inner elements.
fn run_with<M: Multiply, const TILE_ROWS: usize, const TILE_COLUMNS: usize, const INNER: usize>(
    (multiply, copying): (M, V3),
    device: &Device,
    gemm: Gemm,
    begin: Begin<'_>,
    (a, b): (Matrix<'_>, Matrix<'_>),
    mut c: MatrixMut<'_>,
) -> Result<()> {
    const { assert!(INNER == M::INNER && TILE_COLUMNS == 2 * M::Simd::F32_LANES) };
    let Gemm { m, n, k, .. } = gemm;
    let steps = k.div_ceil(INNER);
    let threads = threads_for(device, gemm.multiplications());
    let depth = evenly(steps, DEPTH, 8);
    let threads_rows: Vec<Vec<Range<usize>>> = even_parts(m.div_ceil(TILE_ROWS), threads)
        .map(|tiles| rows_of_items(tiles, (ROWS / TILE_ROWS, threads), (TILE_ROWS, m)))
        .collect();
    let all_rows = || threads_rows.iter().flatten().cloned();
    let items = all_rows().count();
    let most = all_rows().map(|rows| rows.len()).max().unwrap_or(0);
    let width = evenly(n, COLUMNS, TILE_COLUMNS);
    let at_once = (PACKED / (width * depth)).clamp(1, steps.div_ceil(depth));
    let mut packed = Scratch::take(device, at_once * width * depth)?;
    let blocks = Spare::new(device, items, most.next_multiple_of(TILE_ROWS) * depth)?;
    let pack_columns = |place, room: &mut [f32]| {
        pack::<TILE_COLUMNS, INNER>(copying, b.transposed(), place, depth, room);
    };
    for columns in runs(0..n, width) {
        for several in runs(0..k, at_once * depth * INNER) {
            let parts: Vec<Vec<Part<'_>>> = packed
                .chunks_exact_mut(columns.len().next_multiple_of(TILE_COLUMNS) * depth)
                .zip(runs(several.clone(), depth * INNER))
                .map(|(packed, inner)| {
                    let columns = runs(columns.clone(), PART);
                    let part = |(columns, room)| Part::new(columns, inner.clone(), room);
                    columns
                        .zip(packed.chunks_mut(PART * depth))
                        .map(part)
                        .collect()
                })
                .collect();
            let mut c_blocks = c.blocks(all_rows());
            let items = threads_rows.iter().enumerate().map(|(thread, rows)| {
                let blocks = rows.iter().cloned().zip(&mut c_blocks);
                blocks.map(|(rows, c)| (thread, rows, c)).collect()
            });
            for_each_in_parts(device, items.collect(), |(thread, rows, mut c)| {
                blocks.lend(|block| {
                    for parts in &parts {
                        let inner = parts[0].inner.clone();
                        pack::<TILE_ROWS, INNER>(
                            copying,
                            a,
                            (rows.clone(), inner.clone()),
                            depth,
                            block,
                        );
                        // Threads begin with different parts, lest they wait for each other's copies.
                        let (later, first) = parts.split_at(thread * parts.len() / threads);
                        for part in first.iter().chain(later) {
                            let columns = part.columns.clone();
                            let product = Product::<M, TILE_ROWS> {
                                multiply,
                                a: block,
                                b: part.packed(pack_columns),
                                depth,
                                steps: inner.len().div_ceil(INNER),
                                size: (rows.len(), columns.len()),
                                begin: begin.at(inner.start == 0).from(columns.start),
                            };
                            product.add(c.from(0, columns.start));
                        }
                    }
                });
            });
        }
    }
    Ok(())
}

/// The rows of the items of a thread, which computes these `tiles` of `height` rows each out of all `rows`: at most `most` tiles an item,
/// and fewer towards the end, so that other threads that are done before can help.
fn rows_of_items(
    mut tiles: Range<usize>,
    (most, threads): (usize, usize),
    (height, rows): (usize, usize),
) -> Vec<Range<usize>> {
    /// Tiles of the last items, if there are many.
    const LEAST: usize = 2;
    let least = (tiles.len() / 8).clamp(1, LEAST);
    let mut items = Vec::new();
    while !tiles.is_empty() {
        let count = match threads {
            1 => most,
            _ => (tiles.len() / 2).clamp(least, most),
        };
        let end = tiles.end.min(tiles.start + count);
        items.push(tiles.start * height..rows.min(end * height));
        tiles.start = end;
    }
    items
}

/// Some columns of b over some inner elements, packed by the thread that needs them first.
struct Part<'a> {
    columns: Range<usize>,
    inner: Range<usize>,
    room: Mutex<Option<&'a mut [f32]>>,
    packed: OnceLock<&'a [f32]>,
}

impl<'a> Part<'a> {
    fn new(columns: Range<usize>, inner: Range<usize>, room: &'a mut [f32]) -> Self {
        Self {
            columns,
            inner,
            room: Mutex::new(Some(room)),
            packed: OnceLock::new(),
        }
    }

    /// The packed columns; `pack` packs these columns and inner elements.
    fn packed(&self, pack: impl FnOnce((Range<usize>, Range<usize>), &mut [f32])) -> &'a [f32] {
        self.packed.get_or_init(|| {
            let room = self
                .room
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let room = room.expect("a part is packed once");
            pack((self.columns.clone(), self.inner.clone()), room);
            room
        })
    }
}

/// The length of runs of about the same length, at most `most`, rounded up to whole steps.
fn evenly(total: usize, most: usize, step: usize) -> usize {
    total.div_ceil(total.div_ceil(most)).next_multiple_of(step)
}

/// Splits `range` into runs of `step`; the last one may be shorter.
fn runs(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> + Clone + Send {
    let end = range.end;
    range
        .step_by(step)
        .map(move |start| start..end.min(start + step))
}
