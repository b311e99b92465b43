//! Splits a batch into micro-batches whose sizes differ by at most one sample.

use std::ops::Range;

use gpipe_sched::{Groups, Item, MicroBatch, Schedule};
use gpipe_tensor::{Tensor, Tensors};

use crate::{Error, Result};

/// The samples of each of `micro_batches` micro-batches, the larger ones first.
///
/// ```
/// assert_eq!(gpipe_remat::micro_batches(10, 4).unwrap(), [0..3, 3..6, 6..8, 8..10]);
/// ```
///
/// # Errors
/// For no micro-batches, or more than samples or than a schedule can have.
pub fn micro_batches(samples: usize, micro_batches: usize) -> Result<Vec<Range<usize>>> {
    if micro_batches == 0 || micro_batches > samples.min(Schedule::MAX_CELLS) {
        return Err(Error::MicroBatches {
            micro_batches,
            samples,
        });
    }
    let (rows, larger) = (samples / micro_batches, samples % micro_batches);
    let start = |m: usize| m * rows + m.min(larger);
    Ok((0..micro_batches).map(|m| start(m)..start(m + 1)).collect())
}

/// Splits a batch into `parts` micro-batches for a pipeline. The first extent of every input is the number
/// of samples; `target` returns the target of a range of samples. `step` is the number of the step, from
/// 0; `train` says whether gradients are computed.
///
/// The items hold views of the inputs, not copies.
///
/// # Errors
/// For no micro-batches or more than samples, for no inputs or inputs of different numbers of samples;
/// and errors of `target`.
pub fn batch_items<G>(
    inputs: &[Tensor],
    parts: usize,
    step: u64,
    train: bool,
    mut target: impl FnMut(Range<usize>) -> Result<G>,
) -> Result<Vec<Item<Tensors, G>>> {
    let ranges = samples_of(inputs, parts)?;
    let item = |(index, rows): (usize, Range<usize>)| {
        let micro_batch = MicroBatch::new(index, rows.start as u64..rows.end as u64, step, train);
        item(inputs, micro_batch, rows.clone(), target(rows)?)
    };
    ranges.into_iter().enumerate().map(item).collect()
}

/// [`batch_items`] of a training step for a model with layers before the pipeline
/// ([`AssemblyBuilder::before`](crate::AssemblyBuilder::before)): every item has the inputs of its whole group,
/// of which the layers are handed those of the group's first micro-batch.
///
/// # Errors
/// As [`batch_items`].
pub fn group_items<G>(
    inputs: &[Tensor],
    parts: usize,
    groups: Groups,
    step: u64,
    mut target: impl FnMut(Range<usize>) -> Result<G>,
) -> Result<Vec<Item<Tensors, G>>> {
    let ranges = samples_of(inputs, parts)?;
    // Those of the whole step.
    let groups = Groups::new(parts, groups.count()).unwrap_or(Groups::one(parts));
    let make = |(index, rows): (usize, &Range<usize>)| {
        let members = groups.micro_batches(groups.of(index));
        let whole = ranges[members.start].start..ranges[members.end - 1].end;
        let micro_batch = MicroBatch::new(index, rows.start as u64..rows.end as u64, step, true);
        item(inputs, micro_batch, whole, target(rows.clone())?)
    };
    ranges.iter().enumerate().map(make).collect()
}

/// The items of a step that are those of a replica, in its numbering; all of them without other replicas.
pub fn items_of_replica<F, G>(mut items: Vec<Item<F, G>>, groups: Groups) -> Vec<Item<F, G>> {
    if groups.replicas() == 1 {
        return items;
    }
    let own = groups.own_micro_batches();
    items.truncate(own.end);
    items.drain(..own.start.min(items.len()));
    for (index, item) in items.iter_mut().enumerate() {
        item.micro_batch.index = index;
    }
    items
}

/// The samples of each of `parts` micro-batches of inputs of one number of samples.
fn samples_of(inputs: &[Tensor], parts: usize) -> Result<Vec<Range<usize>>> {
    let Some(first) = inputs.first() else {
        return Err(Error::Assembly(
            "no inputs: give the tensors that the first layer takes".into(),
        ));
    };
    let samples = first.shape().rows();
    if let Some(other) = inputs.iter().find(|input| input.shape().rows() != samples) {
        return Err(Error::Assembly(format!(
            "inputs of {samples} and of {} samples: give as many of each",
            other.shape().rows()
        )));
    }
    micro_batches(samples, parts)
}

/// An item with views of these rows of the inputs.
fn item<G>(
    inputs: &[Tensor],
    micro_batch: MicroBatch,
    rows: Range<usize>,
    target: G,
) -> Result<Item<Tensors, G>> {
    let input = inputs.iter().map(|input| Ok(input.rows(rows.clone())?));
    Ok(Item {
        input: input.collect::<Result<Tensors>>()?,
        micro_batch,
        target,
    })
}
