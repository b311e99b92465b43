//! Cutting a batch into micro-batches that differ by at most one sample.

use std::ops::Range;

use gpipe_sched::{Item, MicroBatch};
use gpipe_tensor::{Tensor, Tensors};

use crate::{Error, Result};

/// The samples of each of `micro_batches` micro-batches, the larger ones first.
///
/// ```
/// assert_eq!(gpipe_remat::micro_batches(10, 4).unwrap(), [0..3, 3..6, 6..8, 8..10]);
/// ```
///
/// # Errors
/// If there are no micro-batches, or more than samples.
pub fn micro_batches(samples: usize, micro_batches: usize) -> Result<Vec<Range<usize>>> {
    if micro_batches == 0 || micro_batches > samples {
        return Err(Error::MicroBatches {
            micro_batches,
            samples,
        });
    }
    let (rows, larger) = (samples / micro_batches, samples % micro_batches);
    let start = |m: usize| m * rows + m.min(larger);
    Ok((0..micro_batches).map(|m| start(m)..start(m + 1)).collect())
}

/// A batch as a pipeline takes it, in `parts` micro-batches. The first extent of every input counts
/// samples; `target` gives what the outputs of some of the samples are compared with. `step` is the
/// number of the step, from 0; `train` says whether gradients will be taken.
///
/// The items hold views of the inputs, not copies.
///
/// # Errors
/// If there are no micro-batches or more than samples, if inputs differ in their number of samples or
/// there are none, or that of `target`.
pub fn batch_items<G>(
    inputs: &[Tensor],
    parts: usize,
    step: u64,
    train: bool,
    mut target: impl FnMut(Range<usize>) -> Result<G>,
) -> Result<Vec<Item<Tensors, G>>> {
    let samples = inputs.first().map_or(0, |input| input.shape().rows());
    if let Some(other) = inputs.iter().find(|input| input.shape().rows() != samples) {
        return Err(Error::Assembly(format!(
            "inputs of {samples} and of {} samples: give as many of each",
            other.shape().rows()
        )));
    }
    let item = |(index, rows): (usize, Range<usize>)| {
        let input = inputs.iter().map(|input| Ok(input.rows(rows.clone())?));
        Ok(Item {
            input: input.collect::<Result<Tensors>>()?,
            micro_batch: MicroBatch::new(index, rows.start as u64..rows.end as u64, step, train),
            target: target(rows)?,
        })
    };
    let ranges = micro_batches(samples, parts)?;
    ranges.into_iter().enumerate().map(item).collect()
}
