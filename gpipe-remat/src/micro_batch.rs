//! Cutting a batch into micro-batches that differ by at most one sample.

use std::ops::Range;

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
