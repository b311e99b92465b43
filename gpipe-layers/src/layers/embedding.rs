//! From token ids to vectors.

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{DType, Shape, Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{Flows, checked, output, single, times, trained, unexpected, unpack};
use crate::lingvo;
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, LayerCache, Memory, Param, PassContext, Pending, Result,
    Saved, TensorSet,
};

/// A table with one row per token, and optionally a second one with one row per position, which is added:
/// from ids (B, T) to (B, T, width).
#[derive(Debug)]
pub struct Embedding {
    name: String,
    vocab: usize,
    width: usize,
    token: Param,
    position: Option<Param>,
}

impl Embedding {
    /// An embedding of tokens with the parameter `{name}.weight`, initialized from a
    /// normal distribution with this standard deviation.
    pub fn new(name: impl Into<String>, vocab: usize, width: usize, std: f32) -> Self {
        let name = name.into();
        let token = table(&name, vocab, width, Init::Normal(std));
        Self {
            name,
            vocab,
            width,
            token,
            position: None,
        }
    }

    /// The same with a learned embedding of up to `context` positions, the parameter
    /// `{name}.weight` of the name given here.
    #[must_use]
    pub fn with_positions(mut self, name: &str, context: usize) -> Self {
        self.position = Some(table(name, context, self.width, self.token.init.clone()));
        self
    }

    /// The description of the ids.
    fn ids<'a>(&self, inputs: &'a [Flow]) -> Result<&'a Flow> {
        let context = self.position.as_ref().map(|table| table.shape.rows());
        match inputs {
            [ids] if ids.dtype == DType::U32 => match context {
                Some(context) if ids.shape.rank() != 2 || ids.shape.last() > context => {}
                _ => return Ok(ids),
            },
            _ => {}
        }
        let expected = match context {
            Some(context) => format!("indices of shape (batch, up to {context})"),
            None => "one tensor of indices".to_owned(),
        };
        Err(unexpected(&self.name, expected, Flows(inputs)))
    }

    fn check(&self, ids: &Tensor) -> Result<()> {
        let flow = Flow {
            shape: ids.shape().clone(),
            dtype: ids.dtype(),
        };
        self.ids(&[flow]).map(|_| ())
    }
}

fn table(name: &str, rows: usize, width: usize, init: Init) -> Param {
    let name = format!("{name}.weight");
    Param::new(name, [rows, width], Kind::Matrix, init)
}

impl Layer for Embedding {
    fn name(&self) -> &str {
        &self.name
    }

    /// A gather: no FLOPs but the addition of positions; its cost is memory traffic.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let ids = self.ids(inputs)?;
        let shape = [ids.shape.dims(), &[self.width]].concat();
        let shape = Shape::from(shape.as_slice());
        let y = output(&self.name, shape, self.token.dtype)?;
        let elements = y.elements();
        let added = self.position.as_ref().map_or(0, |_| elements);
        let of_token = trained(&self.token, elements);
        let of_positions = |table| trained(table, elements);
        let of_positions = self.position.as_ref().map_or(0, of_positions);
        let is_trained = of_token > 0 || of_positions > 0;
        let positions = self.position.iter().map(|table| &table.shape);
        let mut params = checked(&self.name, &self.token.shape)?;
        for table in positions {
            params = params.saturating_add(checked(&self.name, table)?);
        }
        Ok(Cost {
            forward: added,
            input_grad: 0,
            weight_grad: of_token.saturating_add(of_positions),
            params,
            memory: Memory {
                saved_inputs: TensorSet::All,
                pending_inputs: TensorSet::All,
                pending_grads: TensorSet::All,
                forward_peak: y.bytes(),
                // The positions' own indices.
                weight_grad_peak: match &self.position {
                    Some(table) if !table.frozen => ids.bytes(),
                    _ => 0,
                },
                ..Memory::default()
            },
            // A row is read and written, its gradient read and added to what was there, which is of
            // single precision.
            traffic: times(&[if is_trained { 3 } else { 2 }, y.bytes()])
                .saturating_add(times(&[4, 2 * of_token + of_positions])),
            outputs: vec![y],
            ..Cost::default()
        })
    }

    /// As if the gather were a product with one-hot rows (`GPipeTransformerEmbeddingLayer`).
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let ids = self.ids(inputs)?;
        Ok(lingvo::transformer_embedding(&ids.shape, self.vocab, self.width)?.flops)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let ids = single(&self.name, x)?;
        self.check(&ids)?;
        let within = || Error::within(&self.name);
        let mut y = ops::embedding(&ids, self.token.value()?).map_err(within())?;
        if let Some(table) = &self.position {
            let rows = table.value()?.rows(0..ids.shape().last());
            ops::add_assign(&mut y, &rows.map_err(within())?).map_err(within())?;
        }
        let saved = Saved {
            tensors: smallvec![ids],
            ..Saved::default()
        };
        Ok((smallvec![y], saved))
    }

    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        _cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let Some(table) = &self.position else {
            return Ok(self.forward(cx, x)?.0);
        };
        let ids = single(&self.name, x)?;
        self.check(&ids)?;
        let within = || Error::within(&self.name);
        let time = ids.shape().last();
        let numbers = span.past().iter().flat_map(|&past| past..past + time);
        let positions = numbers.map(|number| number as u32).collect();
        let positions = Tensor::from_u32(ids.device(), ids.shape().clone(), positions);
        let positions = positions.map_err(within())?;
        let mut y = ops::embedding(&ids, self.token.value()?).map_err(within())?;
        let added = ops::embedding(&positions, table.value()?).map_err(within())?;
        ops::add_assign(&mut y, &added).map_err(within())?;
        Ok(smallvec![y])
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        Ok((Tensors::new(), self.param_only_grad(saved, dy)?))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let [ids] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        Ok(Pending {
            tensors: smallvec![ids, dy],
            ..Pending::default()
        })
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        let [ids, dy] = unpack(&self.name, pending.tensors)?;
        let within = || Error::within(&self.name);
        self.token
            .add_grad(&self.name, |grad| ops::embedding_grad(&ids, &dy, grad))?;
        if let Some(table) = self.position.as_mut().filter(|table| !table.frozen) {
            let time = ids.shape().last() as u32;
            let positions = (0..time).cycle().take(ids.elements()).collect();
            let positions = Tensor::from_u32(ids.device(), ids.shape().clone(), positions);
            let positions = positions.map_err(within())?;
            let add = |grad: &mut Tensor| ops::embedding_grad(&positions, &dy, grad);
            table.add_grad(&self.name, add)?;
        }
        Ok(())
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.token);
        if let Some(table) = &mut self.position {
            visit(table);
        }
    }
}
