//! Attention of new positions while texts are generated.

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Tensor, Tensors, ops};

use super::{MultiHeadAttention, Source};
use crate::layer_cache::Memory;
use crate::layers::flow::unexpected;
use crate::{Error, LayerCache, Result};

impl MultiHeadAttention {
    /// The outputs of new positions. All positions of a text that is generated are of one segment, without padding.
    pub(super) fn cached(
        &self,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        self.check_count(&x)?;
        let within = || Error::within(&self.name);
        let width = self.width;
        let q = self.project(&x[0], 0..width)?;
        let y = match self.source {
            Source::Input { .. } => {
                let kv = self.project(&x[0], width..3 * width)?;
                let cache = &mut cache.attention;
                cache
                    .store(span, (&kv, 0), (&kv, width), width)
                    .map_err(within())?;
                cache.attend(span, (&q, 0), self.heads)
            }
            Source::Memory => {
                let memory = self.memory(&x, &mut cache.memory)?;
                let settings = self.settings(&x[2], &memory.segments, None);
                ops::segment_attention(&q, &memory.keys_and_values, &settings).map(|(y, _)| y)
            }
        };
        let mut outputs = x;
        outputs[0] = y.map_err(within())?;
        Ok(outputs)
    }

    /// The keys and values of the memory: projected in the pass that brings it, kept for those with an empty one.
    fn memory<'a>(&self, x: &Tensors, kept: &'a mut Option<Memory>) -> Result<&'a Memory> {
        let (memory, segments): (&Tensor, &Tensor) = (&x[1], &x[3]);
        if memory.elements() > 0 {
            *kept = Some(Memory {
                keys_and_values: self.project(memory, self.width..3 * self.width)?,
                segments: segments.clone(),
            });
        }
        kept.as_ref()
            .ok_or_else(|| unexpected(&self.name, "a memory", memory.shape()))
    }
}
