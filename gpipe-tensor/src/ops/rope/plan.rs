//! The checked sizes of one call of rotary positions.

use super::angles::Angles;
use super::scaling::RopeScaling;
use crate::error::{Error, Result};
use crate::ops::scratch::Scratch;
use crate::tensor::Tensor;

/// The angles of [`rope`](super::rope), and the heads that it turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Elements of a head: an even number H.
    pub size: usize,
    /// Pair i of a head turns by position · thetaᵖ with p = −2i/H, if not slower by the scaling.
    pub theta: f64,
    /// Slower turns.
    pub scaling: RopeScaling,
    /// Position of the first row of each sample.
    pub first: u64,
}

impl Rope {
    /// Whether samples of this number of positions can be turned, for callers that have no tensors yet.
    ///
    /// # Errors
    /// [`Error::Argument`] as [`rope`](super::rope).
    pub fn check(&self, positions: usize) -> Result<()> {
        self.angles("rope", positions).map(|_| ())
    }

    fn angles(&self, op: &'static str, positions: usize) -> Result<Angles> {
        let theta = self.theta;
        if !(theta.is_finite() && theta > 0.0) {
            let message = format!("a theta of {theta}: use a number above 0");
            return Err(Error::Argument { op, message });
        }
        if let Err(message) = self.scaling.check() {
            return Err(Error::Argument { op, message });
        }
        let ratio = theta.powf(-2.0 / self.size as f64);
        let angles = Angles::new(ratio, self.scaling);
        let last = self.first as f64 + positions as f64;
        if !angles.reach(self.size, last) {
            let message = format!(
                "positions up to {last} with a theta of {theta}: use angles below 2^48 turns"
            );
            return Err(Error::Argument { op, message });
        }
        Ok(angles)
    }
}

/// The extents of a call.
pub(super) struct Plan {
    pub batch: usize,
    pub len: usize,
    /// Elements of a position's queries, and of its keys or values.
    pub widths: [usize; 2],
    pub size: usize,
    pub angles: Angles,
    pub first: u64,
}

impl Plan {
    pub(super) fn new(
        op: &'static str,
        rope: &Rope,
        samples: &[usize],
        widths: [usize; 2],
    ) -> Result<Self> {
        let &[batch, len, columns] = samples else {
            let expected = "(samples, positions, columns)";
            return Err(Error::shape(op, expected, format!("{samples:?}")));
        };
        let size = rope.size;
        let whole = widths
            .iter()
            .all(|&w| w > 0 && w.is_multiple_of(size.max(1)));
        if size == 0 || !size.is_multiple_of(2) || !whole {
            let expected = format!("heads of an even size that divides the columns, not {size}");
            return Err(Error::shape(op, expected, columns));
        }
        let angles = rope.angles(op, len)?;
        if widths[1]
            .checked_mul(2)
            .and_then(|w| w.checked_add(widths[0]))
            .is_none()
        {
            let shape = [batch, len, columns].into();
            return Err(Error::Size { op, shape });
        }
        Ok(Self {
            batch,
            len,
            widths,
            size,
            angles,
            first: rope.first,
        })
    }

    /// Elements of a row that holds queries, keys and values.
    pub(super) fn packed(&self) -> usize {
        self.widths[0] + 2 * self.widths[1]
    }

    /// Cosines and sines of every position.
    pub(super) fn table(&self, on: &Tensor) -> Result<Scratch> {
        let mut table = Scratch::take(on.device(), self.len * self.size)?;
        for (row, turns) in table.chunks_exact_mut(self.size).enumerate() {
            self.angles.fill(self.first + row as u64, turns);
        }
        Ok(table)
    }
}
