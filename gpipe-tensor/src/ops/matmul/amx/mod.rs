//! Single-precision products on the tile unit of Intel's server processors (AMX), which multiplies
//! numbers of 8 bits' precision (bf16) and adds them up in single precision, sixteen times as fast
//! as the vector units multiply floats.
//!
//! A float has 24 bits: it is exactly the sum of three such numbers, and a product of two floats
//! that of nine small products; the six largest carry the precision of a float (Henry, Tang and
//! Heinecke, arXiv:1904.06376). A product therefore costs six passes of a unit that is sixteen times
//! as fast. Its error is about that of single precision: against double precision, at most 1.6 times
//! the error of the vector path in the tested cases, and smaller in most. Two things differ: infinities
//! become NaN (their remainder is ∞ − ∞), and parts below the smallest normal float (1e-38) are lost.
//!
//! With [`Precision::Bf16`], a product is one pass over operands rounded to the nearest bf16.
//!
//! The work is divided by the sizes of the operands alone, so any number of threads gives the same bits.

mod kernel;
mod pack;
mod rectangle;
#[cfg(test)]
mod tests;
mod tile;

use std::cell::RefCell;
use std::ops::Range;

use super::matrix::{Begin, Gemm, Matrix, MatrixMut};
use crate::instruction_set::InstructionSet;
use crate::ops::scratch::{Scratch, Spare};
use crate::parallel::{even_parts, for_each_on, threads_for};
use crate::simd::vectorised;
use crate::{Device, Precision, Result};
use kernel::Unit;
use pack::{Side, pack};
use rectangle::Rectangle;
use tile::{BLOCK, SLAB, TILE, slab_floats};

/// Columns of c processed at once, so that the packed part of b stays in a cache.
const COLUMNS: usize = 1024;
/// Size of a packed panel of b, in parts of elements: 768 KiB, which leaves room for the other data in a
/// second-level cache of 2 MiB. All rows of a meet one panel before the next one is packed: where panels of 8 MiB together came from
/// the third-level cache for every 64 rows, products took 1.2 to 1.6 times as long.
const PANEL: usize = 384 * 1024;
/// Rows of the sums that are added up at once for each 16 of their columns.
const ROWS: usize = 64;
/// Inner elements per part of a long sum for few rows and columns.
const PART: usize = 1024;
/// The most floats of the partial sums together.
const PARTIAL_SUMS: usize = 1 << 22;

/// Whether products of these sizes are computed on the tile unit: the instruction set includes AMX, it is
/// available, and blocks are not mostly empty. A scaled product cannot be added to a given matrix.
pub(super) fn takes(gemm: Gemm, instructions: InstructionSet) -> bool {
    let Gemm { m, n, k, .. } = gemm;
    let begins = gemm.scale == 1.0 || !gemm.accumulate;
    m >= TILE && n >= TILE && k >= SLAB && begins && instructions.uses_amx()
}

/// Computes c = begin + a·b on as many threads as `device` may use now.
///
/// # Errors
/// Errors of allocation.
pub(super) fn run(
    device: &Device,
    gemm: Gemm,
    begin: Begin<'_>,
    (a, b): (Matrix<'_>, Matrix<'_>),
    c: MatrixMut<'_>,
) -> Result<()> {
    match device.host().precision() {
        Precision::Single => Product::<3> { gemm, a, b }.run(device, begin, c),
        Precision::Bf16 => Product::<1> { gemm, a, b }.run(device, begin, c),
    }
}

thread_local! {
    /// Scratch for the packed operands of small products of a thread.
    static SMALL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Computes a small product on the calling thread, in single precision.
pub(super) fn run_alone(gemm: Gemm, (a, b): (Matrix<'_>, Matrix<'_>), mut c: MatrixMut<'_>) {
    /// Columns of b, and inner elements, that are packed at a time.
    const SIDE: usize = 4 * BLOCK;
    let product = Product::<3> { gemm, a, b };
    let begin = match gemm.accumulate {
        true => Begin::Sum,
        false => Begin::Zero,
    };
    let mut all = Rectangle::whole(&mut c, gemm.m, gemm.n);
    SMALL.with_borrow_mut(|room| {
        let packed = SIDE / SLAB * slab_floats(3);
        // Aligned to cache lines, so that each row of a tile is one line.
        room.resize(packed * (SIDE / BLOCK + 2) + TILE, 0.0);
        let first = room.as_ptr().align_offset(64).min(TILE);
        let (blocks, packed) = room[first..].split_at_mut(2 * packed);
        for columns in runs(0..gemm.n, SIDE) {
            for inner in runs(0..gemm.k, SIDE) {
                let panels = Panels::<3> {
                    columns: columns.clone(),
                    depth: inner.len().next_multiple_of(SLAB),
                };
                panels.pack(b, &inner, packed);
                let begin = begin.at(inner.start == 0);
                let strips = strips(0..gemm.m, inner, packed, begin);
                product.multiply(&panels, strips, &mut all, blocks);
            }
        }
    });
    if gemm.scale != 1.0 {
        vectorised!({
            for row in 0..gemm.m {
                c.row(row, gemm.n).iter_mut().for_each(|x| *x *= gemm.scale);
            }
        });
    }
}

/// The sizes and the operands of a product; `PARTS` is the number of bf16 parts per float.
#[derive(Clone, Copy)]
struct Product<'a, const PARTS: usize> {
    gemm: Gemm,
    a: Matrix<'a>,
    b: Matrix<'a>,
}

/// The layout of a packed b: these columns, `depth` inner elements at a time.
struct Panels<const PARTS: usize> {
    columns: Range<usize>,
    depth: usize,
}

impl<const PARTS: usize> Panels<PARTS> {
    fn new(columns: Range<usize>, k: usize) -> Self {
        let most = PANEL / PARTS / columns.len().next_multiple_of(BLOCK);
        let most = most.clamp(128, 512);
        // Panels of about the same depth.
        let depth = k.div_ceil(k.div_ceil(most)).next_multiple_of(SLAB);
        Self { columns, depth }
    }

    /// Floats of a packed block of columns, or of rows.
    fn block(&self) -> usize {
        self.depth / SLAB * slab_floats(PARTS)
    }

    /// Floats of all packed columns.
    fn floats(&self) -> usize {
        self.columns.len().div_ceil(BLOCK) * self.block()
    }

    /// Packs the elements `inner` of the columns, at most `depth` of them.
    fn pack(&self, b: Matrix<'_>, inner: &Range<usize>, packed: &mut [f32]) {
        let columns = runs(self.columns.clone(), BLOCK);
        for (columns, out) in columns.zip(packed.chunks_exact_mut(self.block())) {
            pack::<PARTS>(Side::Right, b, columns, inner.clone(), out);
        }
    }
}

/// A unit of multiplication: up to 32 rows of a and one panel of b.
struct Strip<'a> {
    /// Rows of a.
    lines: Range<usize>,
    /// The inner elements of the panel.
    inner: Range<usize>,
    packed: &'a [f32],
    begin: Begin<'a>,
}

/// The strips of all `rows` by one panel.
fn strips<'a>(
    rows: Range<usize>,
    inner: Range<usize>,
    packed: &'a [f32],
    begin: Begin<'a>,
) -> impl Iterator<Item = Strip<'a>> {
    runs(rows, BLOCK).map(move |lines| Strip {
        lines,
        inner: inner.clone(),
        packed,
        begin,
    })
}

impl<const PARTS: usize> Product<'_, PARTS> {
    fn run(self, device: &Device, begin: Begin<'_>, c: MatrixMut<'_>) -> Result<()> {
        match self.parts() {
            1 => self.by_rectangles(device, begin, c),
            parts => self.by_parts(device, parts, begin, c),
        }
    }

    /// Number of parts of the sums. It is 1 unless c is small compared with their length: its rows would
    /// be too few for many threads and for the reuse of a panel of b.
    fn parts(self) -> usize {
        let Gemm { m, n, k, .. } = self.gemm;
        if k < 2 * m.max(n) {
            return 1;
        }
        let room = PARTIAL_SUMS / (m * n);
        (k / PART).clamp(1, 8).min(room.max(1))
    }

    /// Distributes rectangles of c over threads, one each. Every thread packs what its own needs of a and b: to copy elements
    /// twice takes less time than to wait for the other threads' copies and to fetch them from their caches.
    fn by_rectangles(self, device: &Device, begin: Begin<'_>, mut c: MatrixMut<'_>) -> Result<()> {
        let Gemm { m, n, k, .. } = self.gemm;
        let threads = threads_for(device, self.gemm.multiplications());
        let blocks_of = |size: usize| size.div_ceil(BLOCK);
        let ranges = |size: usize, parts: usize| -> Vec<Range<usize>> {
            let parts = even_parts(blocks_of(size), parts);
            let range = |part: Range<usize>| part.start * BLOCK..size.min(part.end * BLOCK);
            parts.map(range).collect()
        };
        let (row_parts, column_parts) = grid(threads, blocks_of(m), blocks_of(n));
        let (rows, columns) = (ranges(m, row_parts), ranges(n, column_parts));
        let panels_of = |columns: &Range<usize>| {
            let panels = |run| Panels::<PARTS>::new(run, k);
            runs(columns.clone(), even(columns.len())).map(panels)
        };
        let most = |size: fn(&Panels<PARTS>) -> usize| {
            let all = columns.iter().flat_map(panels_of);
            all.map(|panels| size(&panels)).max().unwrap_or(0)
        };
        let count = rows.len() * columns.len();
        let packs = Spare::new(device, count, most(Panels::floats))?;
        let blocks = Spare::new(device, count, 2 * most(Panels::block))?;
        let rectangles = Rectangle::grid(&mut c, &rows, &columns);
        for_each_on(threads, device, rectangles, |mut rectangle| {
            let mut work = |packed: &mut [f32], blocks: &mut [f32]| {
                for panels in panels_of(&rectangle.columns()) {
                    for inner in runs(0..k, panels.depth) {
                        panels.pack(self.b, &inner, packed);
                        let begin = begin.at(inner.start == 0);
                        let strips = strips(rectangle.rows(), inner, packed, begin);
                        self.multiply(&panels, strips, &mut rectangle, blocks);
                    }
                }
            };
            packs.lend(|packed| blocks.lend(|blocks| work(packed, blocks)));
        });
        Ok(())
    }

    /// Distributes parts of the sums over threads, then adds them up.
    fn by_parts(
        self,
        device: &Device,
        parts: usize,
        begin: Begin<'_>,
        mut c: MatrixMut<'_>,
    ) -> Result<()> {
        let Gemm { m, n, k, .. } = self.gemm;
        let threads = threads_for(device, self.gemm.multiplications());
        let part = k.div_ceil(parts).next_multiple_of(SLAB);
        let mut sums = Scratch::take(device, parts * m * n)?;
        let all_panels: Vec<Panels<PARTS>> = runs(0..n, COLUMNS)
            .map(|columns| Panels::new(columns, part))
            .collect();
        let most =
            |size: fn(&Panels<PARTS>) -> usize| all_panels.iter().map(size).max().unwrap_or(0);
        let packs = Spare::new(device, parts, most(Panels::<PARTS>::floats))?;
        let blocks = Spare::new(device, parts, 2 * most(Panels::<PARTS>::block))?;
        let items = runs(0..k, part).zip(sums.chunks_exact_mut(m * n));
        for_each_on(threads, device, items, |(part, sums)| {
            let mut sums = MatrixMut::new(sums, n);
            let mut sums = Rectangle::whole(&mut sums, m, n);
            let mut work = |packed: &mut [f32], blocks: &mut [f32]| {
                for panels in &all_panels {
                    for inner in runs(part.clone(), panels.depth) {
                        panels.pack(self.b, &inner, packed);
                        let begin = Begin::Zero.at(inner.start == part.start);
                        let strips = strips(0..m, inner, packed, begin);
                        self.multiply(panels, strips, &mut sums, blocks);
                    }
                }
            };
            packs.lend(|packed| blocks.lend(|blocks| work(packed, blocks)));
        });
        // The last part may be empty, since parts are rounded up to whole slabs.
        let sums: Vec<&[f32]> = sums.chunks_exact(m * n).take(k.div_ceil(part)).collect();
        let few = (ROWS * TILE / n).max(1);
        for_each_on(
            threads,
            device,
            runs(0..m, few).zip(c.row_blocks(few)),
            |(rows, mut c)| {
                vectorised!({
                    for row in rows.clone() {
                        let out = c.row(row - rows.start, n);
                        begin.row(out);
                        for sum in &sums {
                            for (out, x) in out.iter_mut().zip(&sum[row * n..(row + 1) * n]) {
                                *out += x;
                            }
                        }
                    }
                });
            },
        );
        Ok(())
    }

    /// Adds the products of the strips, in order, to the output `c`.
    fn multiply<'b>(
        self,
        panels: &Panels<PARTS>,
        strips: impl Iterator<Item = Strip<'b>>,
        c: &mut Rectangle<'_>,
        blocks: &mut [f32],
    ) {
        let Some(unit) = Unit::new() else {
            unreachable!("`takes` asks whether AMX is available")
        };
        for (index, strip) in strips.enumerate() {
            // Alternates blocks: the unit may still be reading that of the previous strip.
            let (even, odd) = blocks.split_at_mut(panels.block());
            let block = if index % 2 == 0 { even } else { odd };
            let slabs = strip.inner.len().div_ceil(SLAB) * slab_floats(PARTS);
            pack::<PARTS>(Side::Left, self.a, strip.lines.clone(), strip.inner, block);
            let columns = runs(panels.columns.clone(), BLOCK);
            for (columns, packed) in columns.zip(strip.packed.chunks_exact(panels.block())) {
                let begin = strip.begin.from(columns.start);
                let out = c.block(&strip.lines, &columns);
                unit.add::<PARTS>(&block[..slabs], &packed[..slabs], begin, out);
            }
        }
    }
}

/// How many parts rows and columns of c are divided in, at most one rectangle a thread, so that the longest time of
/// a thread is the least: blocks of c are multiplied, and each run of 32 rows or columns of them is packed, which takes about as long as
/// three blocks.
fn grid(threads: usize, row_blocks: usize, column_blocks: usize) -> (usize, usize) {
    const PACKING: usize = 3;
    let cost = |&(rows, columns): &(usize, usize)| {
        let (high, wide) = (row_blocks.div_ceil(rows), column_blocks.div_ceil(columns));
        high * wide + PACKING * (high + wide)
    };
    (1..=threads.min(row_blocks))
        .map(|rows| (rows, (threads / rows).clamp(1, column_blocks)))
        .min_by_key(cost)
        .unwrap_or((1, 1))
}

/// Columns per run, so that no run is much shorter than the others: the left operand is packed again for
/// each run.
fn even(n: usize) -> usize {
    n.div_ceil(n.div_ceil(COLUMNS).max(1))
        .next_multiple_of(BLOCK)
        .max(BLOCK)
}

/// Splits `range` into runs of `step`; the last one may be shorter.
fn runs(range: Range<usize>, step: usize) -> impl ExactSizeIterator<Item = Range<usize>> + Clone {
    let end = range.end;
    range
        .step_by(step)
        .map(move |start| start..end.min(start + step))
}
