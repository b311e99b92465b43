//! Token embedding with sinusoidal positions, as Lingvo's encoder-decoder has it.

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{DType, Shape, Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{Flows, checked, output, single, times, trained, unexpected, unpack};
use crate::lingvo;
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, LayerCache, Memory, Origin, Param, PassContext, Pending,
    Result, Saved, TensorSet,
};

/// table\[id\]·√width plus the sinusoid of the position within its segment
/// ([`ops::scale_and_add_positions`]): from ids and segments, both (B, T), to (B, T, width) and the segments.
#[derive(Debug)]
pub struct SinusoidEmbedding {
    name: String,
    vocab: usize,
    width: usize,
    table: Param,
}

impl SinusoidEmbedding {
    /// An embedding with the parameter `{name}.weight` (vocab, width), initialized from a normal distribution of
    /// variance 1/width, so that what is added to the positions has variance 1.
    ///
    /// # Errors
    /// [`Error::Config`] for an odd width.
    pub fn new(name: impl Into<String>, vocab: usize, width: usize) -> Result<Self> {
        let name = name.into();
        if !width.is_multiple_of(2) {
            return Err(Error::Config(format!(
                "{name}: a width of {width}: sinusoidal positions need an even number"
            )));
        }
        let init = Init::Normal((width.max(1) as f32).sqrt().recip());
        let table = Param::new(format!("{name}.weight"), [vocab, width], Kind::Matrix, init);
        Ok(Self {
            name,
            vocab,
            width,
            table,
        })
    }

    fn scale(&self) -> f32 {
        (self.width as f32).sqrt()
    }

    fn ids<'a>(&self, inputs: &'a [Flow]) -> Result<&'a Flow> {
        match inputs {
            [ids, segments]
                if ids == segments && ids.dtype == DType::U32 && ids.shape.rank() == 2 =>
            {
                Ok(ids)
            }
            _ => {
                let expected = "indices and segments of shape (batch, time)";
                Err(unexpected(&self.name, expected, Flows(inputs)))
            }
        }
    }

    /// The embedding of ids whose positions are counted from `first`, and the segments.
    fn embed(&self, x: &[Tensor], first: u64) -> Result<(Tensors, Saved)> {
        let [ids, segments] = x else {
            return Err(unexpected(&self.name, "indices and segments", x.len()));
        };
        let within = || Error::within(&self.name);
        let mut y = ops::embedding(ids, self.table.value()?).map_err(within())?;
        ops::scale_and_add_positions(&mut y, segments, first, self.scale()).map_err(within())?;
        let saved = Saved::new([ids.clone()]);
        Ok((smallvec![y, segments.clone()], saved))
    }
}

impl Layer for SinusoidEmbedding {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        2
    }

    /// A gather, and two FLOPs an element: scale and position.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let ids = self.ids(inputs)?;
        let shape = [ids.shape.dims(), &[self.width]].concat();
        let y = output(&self.name, Shape::from(shape.as_slice()), self.table.dtype)?;
        let params = checked(&self.name, &self.table.shape)?;
        let elements = y.elements();
        Ok(Cost {
            forward: times(&[2, elements]),
            weight_grad: trained(&self.table, times(&[2, elements])),
            params,
            memory: Memory {
                outputs: vec![Origin::New, Origin::Same(1)],
                saved_inputs: TensorSet::Only(vec![0]),
                pending_inputs: TensorSet::Only(vec![0]),
                pending_grads: TensorSet::All,
                forward_peak: y.bytes(),
                // dY · √width.
                weight_grad_peak: if self.table.frozen { 0 } else { y.bytes() },
                ..Memory::default()
            },
            // A row is read, written, read and written with its position; its gradient is scaled and added.
            traffic: times(&[4, y.bytes()])
                .saturating_add(trained(&self.table, times(&[4, y.bytes()]))),
            outputs: vec![y, inputs[1].clone()],
            ..Cost::default()
        })
    }

    /// As if the gather were a product with one-hot rows (`GPipeTransformerEmbeddingLayer`).
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let ids = self.ids(inputs)?;
        Ok(lingvo::transformer_embedding(&ids.shape, self.vocab, self.width)?.flops)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        self.embed(&x, 0)
    }

    /// The rows go on at the same position, each in one segment.
    fn forward_cached(
        &self,
        _cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        _cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let past = span.common_past();
        let past = past.ok_or_else(|| unexpected(&self.name, "texts of one length", "others"))?;
        Ok(self.embed(&x, past as u64)?.0)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        Ok((Tensors::new(), self.param_only_grad(saved, dy)?))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let [ids] = unpack(&self.name, saved.tensors)?;
        Ok(Pending::new([ids, single(&self.name, dy)?]))
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        let [ids, dy] = unpack(&self.name, pending.tensors)?;
        if self.table.frozen {
            return Ok(());
        }
        let dy = ops::scale(&dy, self.scale()).map_err(Error::within(&self.name))?;
        self.table
            .add_grad(&self.name, |grad| ops::embedding_grad(&ids, &dy, grad))
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.table);
    }
}
