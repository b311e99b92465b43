//! From samples to what the pipeline takes: tensors, micro-batch by micro-batch.

use std::ops::Range;

use gpipe_remat::{Target, micro_batches};
use gpipe_sched::{Groups, Item, MicroBatch};
use gpipe_tensor::{Device, Tensors};

use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::images::Draw;

/// A batch as the pipeline takes it: one item for each micro-batch.
pub type Batch = Vec<Item<Tensors, Target>>;

/// The batch of a training step, which counts from 0, in `parts` micro-batches that differ by at most
/// one sample. Its tensors are counted on `device` until the pipeline takes them.
///
/// The batch is a function of the data set's seed and the step: batches that were not made before it,
/// or were made twice, change nothing.
///
/// # Errors
/// If `parts` is 0 or exceeds the samples of a step, there is no memory for the list of these, or a tensor cannot be made.
pub fn training_batch(
    dataset: &Dataset,
    device: &Device,
    parts: usize,
    step: u64,
) -> Result<Batch> {
    let batch = dataset.draws_of_step(step)?;
    Cutter {
        dataset,
        device,
        step,
        train: true,
        divisor: dataset.targets(&batch) as f64,
    }
    .cut(&batch, parts)
}

/// The micro-batches of a [`training_batch`] that are those of a replica, in its numbering.
///
/// # Errors
/// As [`training_batch`].
pub fn training_batch_of_replica(
    dataset: &Dataset,
    device: &Device,
    groups: Groups,
    step: u64,
) -> Result<Batch> {
    let batch = dataset.draws_of_step(step)?;
    Cutter {
        dataset,
        device,
        step,
        train: true,
        divisor: dataset.targets(&batch) as f64,
    }
    .cut_part(&batch, groups.of_step(), groups.own_micro_batches())
}

/// The micro-batches of a [`training_batch`] that are those of a replica, for a model with layers before the pipeline:
/// every item has the inputs of its whole group of micro-batches ([`group_items`](gpipe_remat::group_items)).
///
/// # Errors
/// As [`training_batch`].
pub fn training_batch_of_groups(
    dataset: &Dataset,
    device: &Device,
    groups: Groups,
    step: u64,
) -> Result<Batch> {
    let batch = dataset.draws_of_step(step)?;
    let divisor = dataset.targets(&batch) as f64;
    let of_step = micro_batches(batch.len(), groups.of_step())?;
    let own = &of_step[groups.own_micro_batches()];
    let first = own.first().map_or(0, |rows| rows.start);
    let end = own.last().map_or(0, |rows| rows.end);
    let (inputs, targets) = dataset.tensors(device, &batch[first..end])?;
    let item = |(index, rows): (usize, &Range<usize>)| {
        let members = groups.micro_batches(groups.of(index));
        let whole = own[members.start].start - first..own[members.end - 1].end - first;
        let input = inputs.iter().map(|input| input.rows(whole.clone()));
        Ok(Item {
            micro_batch: MicroBatch::new(index, rows.start as u64..rows.end as u64, step, true),
            input: input.collect::<gpipe_tensor::Result<Tensors>>()?,
            target: Target {
                values: targets.rows(rows.start - first..rows.end - first)?,
                divisor,
            },
        })
    };
    own.iter().enumerate().map(item).collect()
}

/// The held-out samples in batches of at most `size`, each in at most `parts` micro-batches; `step`
/// is passed on to layers. The losses of all batches add up to the mean over all held-out targets. A batch is made
/// when it is asked for, which is an error if `parts` is 0 or a tensor cannot be made.
///
/// # Errors
/// If `size` is 0.
pub fn evaluation_batches<'a>(
    dataset: &'a Dataset,
    device: &'a Device,
    size: usize,
    parts: usize,
    step: u64,
) -> Result<impl ExactSizeIterator<Item = Result<Batch>> + use<'a>> {
    evaluation_batches_of_replica(dataset, device, size, parts, step, [0, 1])
}

/// Those of the [`evaluation_batches`] that are the share of one of several replicas: `[replica, replicas]` counts from 0,
/// and the replicas take batches in turn.
///
/// # Errors
/// As [`evaluation_batches`], and for no replicas.
pub fn evaluation_batches_of_replica<'a>(
    dataset: &'a Dataset,
    device: &'a Device,
    size: usize,
    parts: usize,
    step: u64,
    [replica, replicas]: [usize; 2],
) -> Result<impl ExactSizeIterator<Item = Result<Batch>> + use<'a>> {
    if replicas == 0 {
        let key = "pipeline.replicas";
        return Err(Error::Zero { key });
    }
    if size == 0 {
        let key = "data.batch_size";
        return Err(Error::Zero { key });
    }
    let cutter = Cutter {
        dataset,
        device,
        step,
        train: false,
        divisor: dataset.held_out_targets() as f64,
    };
    let samples = dataset.held_out();
    let firsts = (samples.start as usize..samples.end as usize).step_by(size);
    let batch = move |first: usize| {
        let draws = (first as u64..samples.end).take(size);
        let draws = draws.map(|sample| Draw {
            sample,
            epoch: None,
        });
        let draws: Vec<Draw> = draws.collect();
        cutter.cut(&draws, parts.min(draws.len()))
    };
    Ok(firsts.skip(replica).step_by(replicas).map(batch))
}

struct Cutter<'a> {
    dataset: &'a Dataset,
    device: &'a Device,
    step: u64,
    train: bool,
    divisor: f64,
}

impl Cutter<'_> {
    /// Samples `batch` in `parts` micro-batches that differ by at most one sample.
    fn cut(&self, batch: &[Draw], parts: usize) -> Result<Batch> {
        self.cut_part(batch, parts, 0..parts)
    }

    /// The micro-batches `own` of them, counted from the first.
    fn cut_part(&self, batch: &[Draw], parts: usize, own: Range<usize>) -> Result<Batch> {
        let mut ranges = micro_batches(batch.len(), parts)?;
        ranges.truncate(own.end);
        ranges.drain(..own.start);
        let item = |(index, rows): (usize, Range<usize>)| {
            let (input, values) = self.dataset.tensors(self.device, &batch[rows.clone()])?;
            Ok(Item {
                micro_batch: MicroBatch::new(
                    index,
                    rows.start as u64..rows.end as u64,
                    self.step,
                    self.train,
                ),
                input,
                target: Target {
                    values,
                    divisor: self.divisor,
                },
            })
        };
        ranges.into_iter().enumerate().map(item).collect()
    }
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;
    use crate::options::{HeldOut, SampleOptions};

    fn device() -> Device {
        Host::new(1).unwrap().device(DeviceId::Cpu).unwrap()
    }

    /// 20 samples of 4 tokens, 7 a step; 18 are trained on and 2 held out.
    fn dataset() -> Dataset {
        let options = SampleOptions {
            seq_len: 4,
            batch_size: 7,
            held_out: HeldOut::LastTenth,
            ..SampleOptions::default()
        };
        Dataset::from_tokens((0..81).collect(), &options).unwrap()
    }

    #[test]
    fn a_training_batch_is_a_function_of_the_step() {
        let dataset = dataset();
        let inputs = |step| -> Vec<u32> {
            let batch = training_batch(&dataset, &device(), 3, step).unwrap();
            let items = batch.iter().enumerate();
            items
                .flat_map(|(index, item)| {
                    let micro_batch = &item.micro_batch;
                    assert_eq!((micro_batch.index, micro_batch.step), (index, step));
                    assert!(micro_batch.train);
                    assert_eq!(micro_batch.samples, [0..3, 3..5, 5..7][index]);
                    assert_eq!(item.target.divisor, 28.0);
                    let input = item.input[0].u32s().unwrap();
                    let target = item.target.values.u32s().unwrap();
                    assert!(input.iter().zip(target).all(|(x, y)| x + 1 == *y));
                    input.to_vec()
                })
                .collect()
        };
        let first = inputs(0);
        assert_ne!(first, inputs(1));
        assert_eq!(first, inputs(0));
        let starts: Vec<u64> = first.chunks(4).map(|tokens| tokens[0] as u64 / 4).collect();
        assert_eq!(starts, dataset.samples_of_step(0).unwrap());
        // Recorded: another order would be another run.
        assert_eq!(starts, [10, 6, 2, 12, 11, 7, 9]);
        for parts in [0, 8] {
            let refused = training_batch(&dataset, &device(), parts, 0).err().unwrap();
            assert!(refused.is_input_error(), "{refused}");
        }
    }

    #[test]
    fn replicas_share_a_training_batch_and_may_take_the_inputs_of_whole_groups() {
        let (dataset, device) = (dataset(), device());
        let whole = training_batch(&dataset, &device, 5, 3).unwrap();
        let input = |item: &Item<Tensors, Target>| item.input[0].u32s().unwrap().to_vec();
        for replica in 0..2 {
            let groups = Groups::new(5, 4).unwrap().on_replica(replica, 2).unwrap();
            let expected = &whole[groups.own_micro_batches()];
            let batch = training_batch_of_replica(&dataset, &device, groups, 3).unwrap();
            let of_groups = training_batch_of_groups(&dataset, &device, groups, 3).unwrap();
            assert_eq!(
                (batch.len(), of_groups.len()),
                (expected.len(), expected.len())
            );
            for (index, expected_item) in expected.iter().enumerate() {
                for item in [&batch[index], &of_groups[index]] {
                    let (found, wanted) = (&item.micro_batch, &expected_item.micro_batch);
                    assert_eq!((found.index, found.train), (index, true));
                    assert_eq!((&found.samples, found.step), (&wanted.samples, 3));
                    let [found, wanted] = [item, expected_item].map(|item| &item.target);
                    assert_eq!(found.divisor, wanted.divisor);
                    assert_eq!(found.values.u32s().unwrap(), wanted.values.u32s().unwrap());
                }
                assert_eq!(input(&batch[index]), input(expected_item));
                let members = groups.micro_batches(groups.of(index));
                let group: Vec<u32> = expected[members].iter().flat_map(input).collect();
                assert_eq!(input(&of_groups[index]), group);
            }
        }
    }

    #[test]
    fn evaluation_weighs_every_held_out_target_alike() {
        let dataset = dataset();
        let device = device();
        let batches = |size| -> Result<Vec<Batch>> {
            evaluation_batches(&dataset, &device, size, 5, 9)?.collect()
        };
        for (size, parts) in [(1, &[1, 1][..]), (2, &[2]), (100, &[2])] {
            let batches = batches(size).unwrap();
            let lengths: Vec<usize> = batches.iter().map(Vec::len).collect();
            assert_eq!(lengths, parts);
            for item in batches.iter().flatten() {
                assert!(!item.micro_batch.train && item.micro_batch.step == 9);
                assert_eq!(item.target.divisor, 8.0);
            }
        }
        assert!(batches(0).err().unwrap().is_input_error());
    }

    #[test]
    fn replicas_take_evaluation_batches_in_turn() {
        let options = SampleOptions {
            seq_len: 4,
            batch_size: 7,
            held_out: HeldOut::Everything,
            ..SampleOptions::default()
        };
        let dataset = Dataset::from_tokens((0..81).collect(), &options).unwrap();
        let device = device();
        let inputs = |share: [usize; 2]| -> Vec<Vec<u32>> {
            let batches = evaluation_batches_of_replica(&dataset, &device, 3, 2, 9, share);
            let input = |batch: Batch| {
                let items = batch.iter();
                items
                    .flat_map(|item| item.input[0].u32s().unwrap().to_vec())
                    .collect()
            };
            batches.unwrap().map(Result::unwrap).map(input).collect()
        };
        let whole = inputs([0, 1]);
        assert_eq!(whole.len(), 7);
        // The last one has more replicas than batches.
        for replicas in [1, 2, 3, 7, 9] {
            let shares: Vec<_> = (0..replicas).map(|r| inputs([r, replicas])).collect();
            let in_turn = (0..whole.len()).map(|b| shares[b % replicas][b / replicas].clone());
            assert_eq!(in_turn.collect::<Vec<_>>(), whole);
            assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), whole.len());
        }
        let none = evaluation_batches_of_replica(&dataset, &device, 3, 2, 9, [0, 0]);
        assert!(none.err().unwrap().is_input_error());
    }

    /// Pictures of a large folder would not fit into memory together.
    #[test]
    fn one_batch_of_an_evaluation_is_in_memory_at_a_time() {
        let options = SampleOptions {
            seq_len: 4,
            held_out: HeldOut::Everything,
            ..SampleOptions::default()
        };
        let dataset = Dataset::from_tokens((0..81).collect(), &options).unwrap();
        let device = device();
        let batches = evaluation_batches(&dataset, &device, 5, 1, 0).unwrap();
        assert_eq!(batches.len(), 4);
        let samples = batches.map(|batch| batch.unwrap()[0].micro_batch.samples.clone());
        assert_eq!(samples.collect::<Vec<_>>(), [0..5, 0..5, 0..5, 0..5]);
        // Inputs and targets of 5 samples of 4 tokens of 4 bytes.
        assert_eq!(device.peak_bytes(), 2 * 5 * 4 * 4);
    }
}
