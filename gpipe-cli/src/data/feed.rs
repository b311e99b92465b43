//! From samples to what the pipeline takes: tensors, micro-batch by micro-batch.

use gpipe_remat::{Target, micro_batches};
use gpipe_sched::{Item, MicroBatch};
use gpipe_tensor::{Device, Tensors};

use super::Samples;
use crate::fail::{Fail, Result};

/// A batch as the pipeline takes it.
pub type Batch = Vec<Item<Tensors, Target>>;

/// The batch of a training step, in so many micro-batches. Its tensors are counted on `device`
/// until the pipeline takes them.
pub fn training(samples: &Samples, device: &Device, parts: usize, step: u64) -> Result<Batch> {
    let batch = samples.of_step(step);
    let targets = batch.len() * samples.length();
    Feed {
        samples,
        device,
        step,
        train: true,
        divisor: targets as f64,
    }
    .cut(&batch, parts)
}

/// The held-out samples in batches of at most `size`, each in at most `parts` micro-batches. The
/// losses of all batches add up to the mean over all held-out targets.
pub fn evaluation(
    samples: &Samples,
    device: &Device,
    size: usize,
    parts: usize,
    step: u64,
) -> Result<Vec<Batch>> {
    let held_out: Vec<u64> = samples.held_out().collect();
    let targets = held_out.len() * samples.length();
    let feed = Feed {
        samples,
        device,
        step,
        train: false,
        divisor: targets as f64,
    };
    held_out
        .chunks(size)
        .map(|batch| feed.cut(batch, parts.min(batch.len())))
        .collect()
}

struct Feed<'a> {
    samples: &'a Samples,
    device: &'a Device,
    step: u64,
    train: bool,
    divisor: f64,
}

impl Feed<'_> {
    /// Samples `batch` in `parts` micro-batches that differ by at most one sample.
    fn cut(&self, batch: &[u64], parts: usize) -> Result<Batch> {
        let ranges = micro_batches(batch.len(), parts).map_err(Fail::usage)?;
        let item = |(index, rows): (usize, std::ops::Range<usize>)| {
            let (input, values) = self
                .samples
                .tensors(self.device, &batch[rows.clone()])
                .map_err(Fail::run)?;
            Ok(Item {
                micro_batch: MicroBatch {
                    index,
                    samples: rows.start as u64..rows.end as u64,
                    step: self.step,
                    train: self.train,
                },
                input: Tensors::from_iter([input]),
                target: Target {
                    values,
                    divisor: self.divisor,
                },
            })
        };
        ranges.into_iter().enumerate().map(item).collect()
    }
}
