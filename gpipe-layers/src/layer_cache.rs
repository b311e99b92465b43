//! What a layer keeps of earlier positions while a text is generated.

use gpipe_tensor::Tensor;
use gpipe_tensor::ops::{self, KeyValueCache};

use crate::Result;

/// The state of a layer from earlier positions: keys and values, and that of the layers inside it. It
/// begins empty ([`Default`]).
#[derive(Debug, Default)]
pub struct LayerCache {
    /// Keys and values, of attention.
    pub attention: KeyValueCache,
    /// What cross-attention keeps of an encoder's output.
    pub(crate) memory: Option<Memory>,
    nested: Vec<Self>,
}

/// Keys and values (rows, positions, 2·width) of an encoder's output, and the segments of its positions.
#[derive(Debug)]
pub(crate) struct Memory {
    pub keys_and_values: Tensor,
    pub segments: Tensor,
}

impl Memory {
    /// Row i becomes what row `rows[i]` was.
    fn select(&mut self, rows: &[usize]) -> gpipe_tensor::Result<()> {
        let &[count, positions, width] = self.keys_and_values.shape().dims() else {
            return Ok(());
        };
        let device = self.keys_and_values.device().clone();
        // A row beyond 32 bits is none of these either.
        let ids = rows
            .iter()
            .map(|&row| u32::try_from(row).unwrap_or(u32::MAX));
        let ids = ids.collect();
        let ids = Tensor::from_u32(&device, [rows.len()], ids)?;
        let table = self.keys_and_values.reshape([count, positions * width])?;
        let chosen = ops::embedding(&ids, &table)?;
        let keys_and_values = chosen.reshape([rows.len(), positions, width])?;
        let segments = self.segments.u32s()?;
        let chosen = rows
            .iter()
            .flat_map(|row| &segments[row * positions..][..positions]);
        self.segments =
            Tensor::from_u32(&device, [rows.len(), positions], chosen.copied().collect())?;
        self.keys_and_values = keys_and_values;
        Ok(())
    }
}

impl LayerCache {
    /// The caches of this many layers inside.
    pub fn nested(&mut self, layers: usize) -> &mut [Self] {
        self.nested.resize_with(layers, Self::default);
        &mut self.nested
    }

    /// Row i becomes what row `rows[i]` was, in all of it. An error may leave some of it with other rows than the rest.
    ///
    /// # Errors
    /// Those of [`KeyValueCache::select`].
    pub fn select(&mut self, rows: &[usize]) -> Result<()> {
        let selected = self.attention.select(rows);
        let memory = self.memory.as_mut();
        let memory = memory.map_or(Ok(()), |memory| memory.select(rows));
        selected
            .and(memory)
            .map_err(crate::Error::within("cache"))?;
        self.nested.iter_mut().try_for_each(|one| one.select(rows))
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        let nested = self.nested.iter().map(Self::bytes).sum::<usize>();
        let memory = self.memory.as_ref();
        let memory = memory.map_or(0, |memory| {
            memory.keys_and_values.bytes() + memory.segments.bytes()
        });
        self.attention.bytes() + memory + nested
    }
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;

    #[test]
    fn bytes_are_those_of_all_tensors() {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let memory = Memory {
            keys_and_values: Tensor::zeros(&device, [2, 3, 8]).unwrap(),
            segments: Tensor::from_u32(&device, [2, 3], vec![1; 6]).unwrap(),
        };
        let cache = LayerCache {
            memory: Some(memory),
            ..LayerCache::default()
        };
        assert_eq!(cache.bytes() as u64, device.live_bytes());
    }

    #[test]
    fn rows_of_a_memory_are_chosen_or_refused() {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let mut memory = Memory {
            keys_and_values: Tensor::from_f32(&device, [2, 1, 2], [1.0, 2.0, 3.0, 4.0]).unwrap(),
            segments: Tensor::from_u32(&device, [2, 1], vec![5, 6]).unwrap(),
        };
        for row in [2, 1 << 32] {
            assert!(memory.select(&[row]).is_err(), "{row}");
        }
        memory.select(&[1, 0, 1]).unwrap();
        let chosen = memory.keys_and_values.f32s().unwrap();
        assert_eq!(chosen, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(memory.segments.u32s().unwrap(), [6, 5, 6]);
    }
}
