//! Sums and other reductions on a GPU: launches.

use super::kernels::{self, CHUNK, Reduction, Spans};
use crate::cuda::table::Table;
use crate::cuda::{Gpu, Memory};
use crate::{DType, Error, Result, Tensor};

/// Adds to `out` the sum of `x` over its leading rows.
pub(super) fn add_rows(gpu: &Gpu, x: &Tensor, out: &mut Tensor) -> Result<()> {
    const OP: &str = "sum_rows_accumulate";
    let width = out.elements();
    if x.elements() == 0 {
        return Ok(());
    }
    let rows = x.elements() / width;
    let stored = x.dtype();
    let partials = gpu.alloc(4 * width * Spans::new(stored, rows, width).count())?;
    let to = out.written(OP, gpu, DType::F32)?;
    let x = x.operand(OP, gpu, stored)?;
    for launch in kernels::sum_rows(stored, x.at, partials.at(0), to, rows, width) {
        // SAFETY: all live on this handle; x has `rows` rows of `width` elements, the result one, and
        // there are partial sums for each span of rows.
        unsafe { gpu.launch(&launch) }?;
    }
    Ok(())
}

/// The reductions of the chunks of tensors, in order; copied to the host at once.
pub(super) struct Partials {
    memory: Memory,
    /// Number of chunks of each tensor.
    counts: Vec<usize>,
}

impl Partials {
    /// Launches the reductions.
    pub fn of(gpu: &Gpu, reduction: Reduction, tensors: &[&Tensor]) -> Result<Self> {
        const OP: &str = "sum";
        let bytes = match reduction {
            Reduction::Sum | Reduction::Squares => 8,
            Reduction::MaxAbs => 4,
        };
        let counts = tensors.iter().map(|x| x.elements().div_ceil(CHUNK));
        let counts: Vec<usize> = counts.collect();
        let memory = gpu.alloc(bytes * counts.iter().sum::<usize>())?;
        let stored = tensors.first().map_or(DType::F32, |x| x.dtype());
        let alike = |x: &&Tensor| x.dtype() == stored && x.gpu().is_some();
        let many = tensors.len() > 1 && stored.is_float() && tensors.iter().all(alike);
        if many && matches!(reduction, Reduction::Squares) {
            let mut table = Table::default();
            for x in tensors {
                table.push(&[x.operand(OP, gpu, stored)?.at], x.elements());
            }
            let rows = gpu.upload(table.bytes())?;
            // SAFETY: the tensors of the table live on this handle, and there is a sum for each chunk
            // of each.
            unsafe { gpu.launch(&kernels::squares(stored, &table, rows.at(0), memory.at(0))) }?;
            return Ok(Self { memory, counts });
        }
        let mut place = 0;
        for (x, count) in tensors.iter().zip(&counts) {
            if !x.dtype().is_float() {
                return Err(Error::DType {
                    op: OP,
                    expected: DType::F32,
                    got: x.dtype(),
                });
            }
            let to = memory.at(bytes * place);
            let stored = x.dtype();
            let operand = x.operand(OP, gpu, stored)?;
            // SAFETY: both live on this handle; x has as many elements, and there is a sum for each of
            // its chunks.
            unsafe {
                gpu.launch(&kernels::reduce(
                    reduction,
                    stored,
                    operand.at,
                    to,
                    x.elements(),
                ))
            }?;
            place += count;
        }
        Ok(Self { memory, counts })
    }

    /// The sum of each tensor, in the order of its chunks.
    pub fn sums(&self) -> Result<Vec<f64>> {
        let total = self.counts.iter().sum();
        let parts = self.memory.read(0, total, f64::from_ne_bytes)?;
        let mut parts = parts.into_iter();
        let counts = self.counts.iter();
        Ok(counts
            .map(|&count| parts.by_ref().take(count).sum())
            .collect())
    }

    /// The largest of all.
    pub fn largest(&self) -> Result<u32> {
        let total = self.counts.iter().sum();
        let parts = self.memory.read(0, total, u32::from_ne_bytes)?;
        Ok(parts.into_iter().max().unwrap_or(0))
    }
}
