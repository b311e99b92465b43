//! Convolutions as products of matrices, whose rows are gathered block by block.

use super::gather::Gather;
use crate::Result;
use crate::device::Device;
use crate::ops::matmul::matrix::{Begin, Gemm, Matrix, MatrixMut};
use crate::ops::scratch::{Scratch, Spare};
use crate::parallel::{CHUNK, for_each, rows_per_chunk};

/// Floats of a gather up to which it is made in one piece: the product then shares its right operand among
/// all rows.
const ONE_PIECE: usize = 1 << 21;

/// Rows of a block: enough for the product to repay packing its right operand, few enough for the
/// second-level cache where the rows are short.
const BLOCK: usize = 512;

/// Floats of the block of rows whose product with the gradient is added to that of the weight.
const WEIGHT_BLOCK: usize = 1 << 20;

/// A product of gathered rows with a matrix of `columns` columns.
pub(super) struct Product<'a> {
    pub gather: Gather,
    pub source: &'a [f32],
    pub matrix: Matrix<'a>,
    pub columns: usize,
}

impl Product<'_> {
    /// Writes begin + gathered · matrix to the first `columns` elements of each row of `out`; rows begin every
    /// `stride` elements.
    ///
    /// The blocks depend on sizes only, so the number of threads does not change the bits.
    pub fn run(
        &self,
        device: &Device,
        begin: Begin<'_>,
        out: &mut [f32],
        stride: usize,
    ) -> Result<()> {
        let width = self.gather.width();
        let rows = out.len().div_ceil(stride.max(1));
        if rows == 0 {
            return Ok(());
        }
        if rows.saturating_mul(width) <= ONE_PIECE {
            let mut gathered = Scratch::take(device, rows * width)?;
            gather_rows(device, &self.gather, self.source, 0, &mut gathered);
            let (a, c) = (Matrix::new(&gathered, width), MatrixMut::new(out, stride));
            return Gemm::new(rows, self.columns, width).run_on(device, begin, a, self.matrix, c);
        }
        let blocks = rows.div_ceil(BLOCK);
        let spare = Spare::new(device, blocks, BLOCK * width)?;
        let instructions = device.host().instruction_set();
        let items = out.chunks_mut(BLOCK * stride).enumerate();
        for_each(device, items, |(i, out)| {
            let rows = BLOCK.min(rows - i * BLOCK);
            spare.lend(|gathered| {
                let gathered = &mut gathered[..rows * width];
                self.gather.copy(self.source, i * BLOCK, gathered);
                let accumulate = !matches!(begin, Begin::Zero);
                for row in out.chunks_mut(stride).filter(|_| accumulate) {
                    begin.row(&mut row[..self.columns]);
                }
                let gemm = Gemm {
                    accumulate,
                    ..Gemm::new(rows, self.columns, width)
                };
                let c = MatrixMut::new(out, stride);
                gemm.run(instructions, Matrix::new(gathered, width), self.matrix, c);
            });
        });
        Ok(())
    }
}

/// Adds dYᵀ · gathered to `dw`; `dy` holds rows of `columns` elements that begin every `stride`.
pub(super) fn add_weight_grad(
    device: &Device,
    gather: &Gather,
    source: &[f32],
    (dy, stride, columns): (&[f32], usize, usize),
    dw: &mut [f32],
) -> Result<()> {
    let width = gather.width();
    let rows = dy.len().div_ceil(stride.max(1));
    let block = (WEIGHT_BLOCK / width.max(1))
        .clamp(BLOCK, 4096)
        .min(rows.max(1));
    let mut gathered = Scratch::take(device, block * width)?;
    for first in (0..rows).step_by(block) {
        let rows = block.min(rows - first);
        let gathered = &mut gathered[..rows * width];
        gather_rows(device, gather, source, first, gathered);
        let dy = Matrix::new(&dy[first * stride..], stride).transposed();
        let (b, c) = (Matrix::new(gathered, width), MatrixMut::new(dw, width));
        Gemm::new(columns, width, rows).run_on(device, Begin::Sum, dy, b, c)?;
    }
    Ok(())
}

/// Gathers rows from `first` on, on several threads.
fn gather_rows(device: &Device, gather: &Gather, source: &[f32], first: usize, rows: &mut [f32]) {
    let width = gather.width().max(1);
    let rows_a_chunk = rows_per_chunk(width);
    let chunks = rows.chunks_mut(rows_a_chunk * width).enumerate();
    for_each(device, chunks, |(i, rows)| {
        gather.copy(source, first + i * rows_a_chunk, rows);
    });
}

/// The weight of one group (outputs, taps, inputs) as (taps, outputs, inputs), for the taps in `order`.
pub(super) fn taps_first(
    device: &Device,
    weight: &[f32],
    (outputs, taps, inputs): (usize, usize, usize),
    order: &[usize],
    turned: &mut [f32],
) {
    let block = (outputs * inputs).max(1);
    let items = turned.chunks_mut(block).zip(order);
    for_each(device, items, |(turned, &tap)| {
        let rows = weight.chunks(taps * inputs);
        for (to, row) in turned.chunks_mut(inputs.max(1)).zip(rows) {
            to.copy_from_slice(&row[tap * inputs..][..inputs]);
        }
    });
}

/// Writes the pixels of one phase to where they belong: pixel (i, j) of `phase_pixels`, an image of
/// `phase_size` pixels, to (phase + stride·i, …) of `out`.
pub(super) struct Phase {
    pub phase: [usize; 2],
    pub stride: [usize; 2],
    pub phase_size: [usize; 2],
    pub size: [usize; 2],
    pub channels: usize,
}

impl Phase {
    /// Copies the phase's pixels of all images.
    pub fn scatter(&self, device: &Device, pixels: &[f32], out: &mut [f32]) {
        let Self {
            phase,
            stride,
            phase_size,
            size,
            channels,
        } = *self;
        let line = size[1] * channels;
        let lines_a_chunk = (CHUNK / line.max(1)).max(1);
        let chunks = out.chunks_mut((lines_a_chunk * line).max(1)).enumerate();
        for_each(device, chunks, |(i, lines)| {
            for (k, line) in lines.chunks_mut(line).enumerate() {
                let (sample, y) = {
                    let line = i * lines_a_chunk + k;
                    (line / size[0], line % size[0])
                };
                if y % stride[0] != phase[0] {
                    continue;
                }
                let from = (sample * phase_size[0] + y / stride[0]) * phase_size[1] * channels;
                let from = pixels[from..].chunks(channels).take(phase_size[1]);
                let to = line.chunks_mut(channels).skip(phase[1]).step_by(stride[1]);
                to.zip(from).for_each(|(to, from)| to.copy_from_slice(from));
            }
        });
    }
}
