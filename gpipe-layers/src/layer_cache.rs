//! What a layer keeps of earlier positions while a text is generated.

use gpipe_tensor::ops::KeyValueCache;

use crate::Result;

/// The state of a layer from earlier positions: keys and values, and that of the layers inside it. It
/// begins empty ([`Default`]).
#[derive(Debug, Default)]
pub struct LayerCache {
    /// Keys and values, of attention.
    pub attention: KeyValueCache,
    nested: Vec<Self>,
}

impl LayerCache {
    /// The caches of this many layers inside.
    pub fn nested(&mut self, layers: usize) -> &mut [Self] {
        self.nested.resize_with(layers, Self::default);
        &mut self.nested
    }

    /// Row i becomes what row `rows[i]` was, in all of it.
    ///
    /// # Errors
    /// Those of [`KeyValueCache::select`].
    pub fn select(&mut self, rows: &[usize]) -> Result<()> {
        let selected = self.attention.select(rows);
        selected.map_err(crate::Error::within("cache"))?;
        self.nested.iter_mut().try_for_each(|one| one.select(rows))
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        let nested = self.nested.iter().map(Self::bytes).sum::<usize>();
        self.attention.bytes() + nested
    }
}
