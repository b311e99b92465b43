//! The kernels of the cross-entropy.

use crate::ops::rows::{RUN, exponentials, max};
use crate::simd::vectorised;

/// The target of a row that counts neither in the loss nor in the gradient.
pub const IGNORE: u32 = u32::MAX;

/// The distribution that a row should have: 1 − `smoothing` at the target, and the rest in equal parts elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(super) smoothing: f64,
    pub(super) elsewhere: f64,
}

impl Wanted {
    pub(crate) fn new(smoothing: f32, classes: usize) -> Self {
        // One class has no other to share with.
        let (smoothing, others) = match classes {
            0 | 1 => (0.0, 1.0),
            _ => (f64::from(smoothing), (classes - 1) as f64),
        };
        Self {
            smoothing,
            elsewhere: smoothing / others,
        }
    }

    /// What the loss of a row exceeds that without smoothing by: ε·x_t − ε/(V − 1)·Σ of the other logits.
    fn more(self, row: &[f32], target: usize) -> f64 {
        if self.smoothing == 0.0 {
            return 0.0;
        }
        let all: f64 = row.iter().map(|&x| f64::from(x)).sum();
        let aim = f64::from(row[target]);
        self.smoothing * aim - self.elsewhere * (all - aim)
    }
}

/// Overwrites the logits with their gradient and writes each row's loss, both times the row's weight; without
/// weights it is 1.
pub(super) fn gradient(
    logits: &mut [f32],
    width: usize,
    targets: &[u32],
    weights: Option<&[f32]>,
    wanted: Wanted,
    divisor: f64,
    losses: &mut [f64],
) {
    vectorised!({
        let rows = logits.chunks_exact_mut(width).zip(targets);
        for (i, ((row, &target), loss)) in rows.zip(losses.iter_mut()).enumerate() {
            let weight = weights.map_or(1.0, |weights| f64::from(weights[i]));
            if target == IGNORE || weight == 0.0 {
                row.fill(0.0);
                *loss = 0.0;
                continue;
            }
            let target = target as usize;
            let (largest, aim, more) = (max(row), row[target], wanted.more(row, target));
            let sum = exponentials(row, largest);
            *loss = weight * (loss_of(largest, sum, aim) + more);
            let factor = (weight / (sum * divisor)) as f32;
            row.iter_mut().for_each(|p| *p *= factor);
            if wanted.smoothing > 0.0 {
                let elsewhere = (weight * wanted.elsewhere / divisor) as f32;
                row.iter_mut().for_each(|p| *p -= elsewhere);
            }
            let above = 1.0 - wanted.smoothing - wanted.elsewhere;
            row[target] -= (weight * above / divisor) as f32;
        }
    });
}

/// Writes each row's loss: the same bits as [`gradient`].
pub(super) fn losses(
    logits: &[f32],
    width: usize,
    targets: &[u32],
    wanted: Wanted,
    losses: &mut [f64],
) {
    vectorised!({
        let mut run = [0.0; RUN];
        let rows = logits.chunks_exact(width).zip(targets);
        for ((row, &target), loss) in rows.zip(losses.iter_mut()) {
            if target == IGNORE {
                *loss = 0.0;
                continue;
            }
            let largest = max(row);
            let mut sum = 0.0;
            for logits in row.chunks(RUN) {
                let run = &mut run[..logits.len()];
                run.copy_from_slice(logits);
                sum += exponentials(run, largest);
            }
            let target = target as usize;
            *loss = loss_of(largest, sum, row[target]) + wanted.more(row, target);
        }
    });
}

/// Number of rows whose largest logit (the first of equal ones) is that of the target.
pub(super) fn correct(logits: &[f32], width: usize, targets: &[u32]) -> u64 {
    vectorised!({
        let mut count = 0;
        for (row, &target) in logits.chunks_exact(width).zip(targets) {
            if target != IGNORE {
                let largest = max(row);
                let first = row.iter().position(|&logit| logit == largest);
                count += u64::from(first == Some(target as usize));
            }
        }
        count
    })
}

/// −ln(e^(aim − largest) / sum)
#[inline(always)]
fn loss_of(largest: f32, sum: f64, aim: f32) -> f64 {
    sum.ln() + (f64::from(largest) - f64::from(aim))
}
