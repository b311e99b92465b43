//! The caches of a stage's layers while texts are generated.

use std::ops::Range;

use gpipe_layers::{Layer, LayerCache, PassContext};
use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Device, Tensors};

use crate::{Error, Result};

/// What the layers of a stage keep of the positions of each row.
#[derive(Debug)]
pub(crate) struct StageCache {
    layers: Vec<LayerCache>,
    /// Positions of each row.
    lengths: Vec<usize>,
}

impl StageCache {
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            layers: Vec::new(),
            lengths: vec![0; rows],
        }
    }

    /// Row i becomes what row `rows[i]` was, and forgets its positions from `lengths[i]` on.
    pub(crate) fn select(&mut self, rows: &[usize], lengths: &[usize]) -> Result<()> {
        let count = self.lengths.len();
        if rows.len() != lengths.len() || rows.iter().any(|&row| row >= count) {
            return Err(Error::Assembly(format!(
                "{} rows and {} lengths of a cache of {count} rows: give a length for each, and rows that \
                 `keep_positions` made",
                rows.len(),
                lengths.len()
            )));
        }
        // Stages of an encoder keep nothing, and count no positions of the texts that go past them.
        let mut pairs = rows.iter().zip(lengths).filter(|_| self.bytes() > 0);
        if let Some((&row, &length)) = pairs.find(|(row, length)| **length > self.lengths[**row]) {
            return Err(Error::Assembly(format!(
                "{length} positions of row {row}, of which `keep_positions` has kept {}: give at most as many",
                self.lengths[row]
            )));
        }
        let unchanged = rows.iter().copied().eq(0..count);
        if !unchanged {
            for cache in &mut self.layers {
                cache.select(rows)?;
            }
        }
        self.lengths = lengths.to_vec();
        Ok(())
    }

    /// Bytes of the keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// The outputs of new positions of these rows.
    pub(crate) fn forward(
        &mut self,
        layers: &[Box<dyn Layer>],
        device: &Device,
        cx: &PassContext,
        rows: Range<usize>,
        mut x: Tensors,
    ) -> Result<Tensors> {
        // A tensor that passes the stage has no positions here. Of sources and texts the longer ones count, until `select`
        // says how many are those of the texts.
        let positions = x.iter().filter_map(|x| x.shape().dims().get(1).copied());
        let added = positions.max().unwrap_or(0);
        let past = self.lengths.get(rows.clone()).ok_or_else(|| {
            Error::Assembly(format!(
                "samples {rows:?} of a cache of {} rows: call `keep_positions` with as many",
                self.lengths.len()
            ))
        })?;
        let past = past.to_vec();
        let span = CacheSpan::new(device, self.lengths.len(), rows.start, past)?;
        self.layers.resize_with(layers.len(), LayerCache::default);
        for (layer, cache) in layers.iter().zip(&mut self.layers) {
            let passing: Tensors = x.drain(layer.arity().min(x.len())..).collect();
            x = layer.forward_cached(cx, x, &span, cache)?;
            x.extend(passing);
        }
        for length in &mut self.lengths[rows] {
            *length += added;
        }
        Ok(x)
    }
}
