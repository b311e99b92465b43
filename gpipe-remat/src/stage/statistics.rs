//! Statistics that layers gather of a step ([`Kind::Statistic`]), from groups of micro-batches: means and variances are
//! merged by their numbers of rows, not added.

use gpipe_layers::{Kind, Layer};
use gpipe_tensor::{Tensor, ops};

use crate::{Error, Result};

/// Means and biased variances in turn, and the rows that each pair is of.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub rows: Vec<u64>,
    pub values: Vec<Tensor>,
}

impl Statistics {
    /// Takes those of a layer out of it, until [`put`](Self::put) puts them back; none of a layer without merged
    /// statistics.
    pub fn take(layer: &mut dyn Layer) -> Self {
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        layer.merged_rows(&mut |count| rows.push(*count));
        if !rows.is_empty() {
            layer.params(&mut |param| {
                if param.kind == Kind::Statistic {
                    values.extend(param.grad.take());
                }
            });
        }
        Self { rows, values }
    }

    pub fn put(self, layer: &mut dyn Layer) {
        let (mut rows, mut values) = (self.rows.into_iter(), self.values.into_iter());
        layer.merged_rows(&mut |count| *count = rows.next().unwrap_or_default());
        layer.params(&mut |param| {
            if param.kind == Kind::Statistic && !param.frozen && param.grad.is_none() {
                param.grad = values.next();
            }
        });
    }

    /// Merges those of later micro-batches into these.
    pub fn merge(&mut self, later: &Self) -> Result<()> {
        let (pairs, others) = (2 * self.rows.len(), later.values.as_chunks::<2>().0);
        if self.values.len() != pairs || later.values.len() != pairs {
            return Err(Error::Assembly(
                "of a mean and a variance one alone is frozen: freeze both, or none".into(),
            ));
        }
        let pairs = self.values.as_chunks_mut::<2>().0.iter_mut().zip(others);
        for (([mean, variance], other), (&rows, &added)) in
            pairs.zip(self.rows.iter().zip(&later.rows))
        {
            let part = ops::concat(&[&other[0], &other[1]])?;
            ops::merge_channel_statistics([mean, variance], rows, &part, added)?;
        }
        for (rows, added) in self.rows.iter_mut().zip(&later.rows) {
            *rows += added;
        }
        Ok(())
    }
}
