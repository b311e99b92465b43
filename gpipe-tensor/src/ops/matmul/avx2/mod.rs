//! Large products of floats by AVX2 and FMA, on processors without AVX-512.
//!
//! A step of the kernel of the crate `gemm` reads 24 floats of one operand, which lie in the second-level cache, for 4 of
//! the other: 16 bytes a cycle at the peak of the multipliers, half of what that cache gives at best on a Zen 3. Here a
//! panel of 16 columns of b stays in the first-level cache while panels of 6 rows of a come by, 4 bytes a cycle: the
//! order of Goto and van de Geijn (ACM TOMS 34(3), 2008) with the tile that BLIS takes for vectors of this length. On
//! that Zen 3, the products of a transformer with 4,096 rows take 0.82 to 0.89 of `gemm`'s time. Where all operands fit
//! the second-level cache, `gemm` is as fast or faster, since it copies less. With vectors and tiles of AVX-512 (12 by 32)
//! the same order takes 0.75 to 1.25 of `gemm`'s time on a Zen 5, mostly
//! about 1: its second-level cache is fast enough for `gemm`.
//!
//! Sums are cut into runs by the number of inner elements alone. So the bits of an element depend neither on threads
//! nor on the rows and columns around it.

mod kernel;
mod pack;
#[cfg(test)]
mod tests;

use std::ops::Range;

use pulp::x86::{V3, V4};

use super::matrix::{Begin, Gemm, Matrix, MatrixMut};
use crate::instruction_set::InstructionSet;
use crate::ops::scratch::{Scratch, Spare};
use crate::parallel::{for_each_on, threads_for};
use crate::{Device, Result};
use kernel::{Product, TILE_COLUMNS, TILE_ROWS};
use pack::pack;

/// The most inner elements of a panel: 16 KiB for 16 columns, half of a first-level cache.
const DEPTH: usize = 256;
/// The most rows of a work item: with [`DEPTH`] 72 KiB, which fits a second-level cache of 256 KiB.
const ROWS: usize = 72;
/// The most columns of b that are packed together.
const COLUMNS: usize = 2048;
/// The most floats of all packed panels of b together: 4 MiB, for a third-level cache.
const PACKED: usize = 1 << 20;

/// The instructions, if this product is computed here: the processor has them and none better among those allowed,
/// and the product is large enough to make up for the copies of its operands.
pub(super) fn takes(gemm: Gemm, instructions: InstructionSet) -> Option<V3> {
    let Gemm { m, n, k, scale, .. } = gemm;
    let is_large = m >= 192 && n >= 128 && k >= 64;
    let is_best = || instructions == InstructionSet::Avx2 || V4::try_new().is_none();
    match is_large && scale == 1.0 && is_best() {
        true => V3::try_new(),
        false => None,
    }
}

/// Computes c = begin + a·b on as many threads as `device` may use now.
///
/// # Errors
/// Errors of allocation.
pub(super) fn run(
    simd: V3,
    device: &Device,
    gemm: Gemm,
    begin: Begin<'_>,
    (a, b): (Matrix<'_>, Matrix<'_>),
    mut c: MatrixMut<'_>,
) -> Result<()> {
    let Gemm { m, n, k, .. } = gemm;
    let threads = threads_for(device, gemm.multiplications());
    let depth = evenly(k, DEPTH, 8);
    let rows = evenly(m, ROWS.min(m.div_ceil(2 * threads)), TILE_ROWS);
    let width = evenly(n, COLUMNS, TILE_COLUMNS);
    let at_once = (PACKED / (width * depth)).clamp(1, k.div_ceil(depth));
    let mut packed = Scratch::take(device, at_once * width * depth)?;
    let blocks = Spare::new(device, m.div_ceil(rows), rows * depth)?;
    for columns in runs(0..n, width) {
        let width = columns.len().next_multiple_of(TILE_COLUMNS);
        for several in runs(0..k, at_once * depth) {
            let panels = runs(several.clone(), depth).flat_map(|inner| {
                runs(columns.clone(), TILE_COLUMNS).map(move |lanes| (lanes, inner.clone()))
            });
            let panels = panels.zip(packed.chunks_exact_mut(depth * TILE_COLUMNS));
            for_each_on(threads, device, panels, |((lanes, inner), out)| {
                pack::<TILE_COLUMNS>(simd, b.transposed(), lanes, inner, out);
            });
            let items = runs(0..m, rows).zip(c.row_blocks(rows));
            for_each_on(threads, device, items, |(lanes, mut c)| {
                let floats = lanes.len().next_multiple_of(TILE_ROWS) * depth;
                blocks.lend(|block| {
                    let inner = runs(several.clone(), depth);
                    for (inner, panels) in inner.zip(packed.chunks_exact(width * depth)) {
                        let block = &mut block[..floats];
                        let begin = begin.at(inner.start == 0).from(columns.start);
                        let steps = inner.len();
                        let tiles = block.chunks_exact_mut(depth * TILE_ROWS);
                        for (out, lanes) in tiles.zip(runs(lanes.clone(), TILE_ROWS)) {
                            pack::<TILE_ROWS>(simd, a, lanes, inner.clone(), out);
                        }
                        let product = Product {
                            a: block,
                            b: panels,
                            depth,
                            steps,
                            size: (lanes.len(), columns.len()),
                            begin,
                        };
                        product.add(simd, c.from(0, columns.start));
                    }
                });
            });
        }
    }
    Ok(())
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
