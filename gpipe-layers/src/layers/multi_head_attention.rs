//! Self- and cross-attention by segments, with the projections to queries, keys and values
//! (arXiv:1706.03762, section 3.2.2).

mod cached;

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{Flows, checked, foreign, output, times, trained, unexpected, unpack};
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, LayerCache, Memory, Origin, Param, PassContext, Pending,
    Result, Saved, TensorSet,
};

/// What the keys and values are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The input, whose later positions a query may not see.
    Input { causal: bool },
    /// The output of an encoder.
    Memory,
}

/// Attention of many heads between positions of the same segment, as PyTorch's `MultiheadAttention` before its
/// `out_proj`. Segment 0 is padding, which sees and is seen by nothing ([`ops::SegmentAttention`]).
///
/// Self-attention takes x (B, T, width) and segments (B, T), and returns the heads' results (B, T, width) and the
/// segments. Cross-attention takes x, the memory (B, S, width), the segments of x (B, T) and those of the memory
/// (B, S), and hands the last three on: what it adds to the gradient of the memory joins the gradient of those
/// who take the memory later.
///
/// No T × S tensor is kept: the gradient computes the probabilities again.
#[derive(Debug)]
pub struct MultiHeadAttention {
    name: String,
    width: usize,
    heads: usize,
    source: Source,
    dropout: f32,
    weight: Param,
    bias: Param,
}

impl MultiHeadAttention {
    /// Self-attention with the parameters `{name}.in_proj_weight` (3·width, width) and `{name}.in_proj_bias`, in which
    /// a position sees only those up to its own if `causal`.
    ///
    /// # Errors
    /// [`Error::Config`] unless the heads divide the width.
    pub fn of_itself(
        name: impl Into<String>,
        width: usize,
        heads: usize,
        causal: bool,
    ) -> Result<Self> {
        Self::new(name.into(), width, heads, Source::Input { causal })
    }

    /// Cross-attention with the same parameters.
    ///
    /// # Errors
    /// As [`of_itself`](Self::of_itself).
    pub fn of_memory(name: impl Into<String>, width: usize, heads: usize) -> Result<Self> {
        Self::new(name.into(), width, heads, Source::Memory)
    }

    /// The same, dropping this share of the probabilities in training.
    ///
    /// # Errors
    /// [`Error::Config`] unless the share is from 0 to below 1.
    pub fn dropping(self, dropout: f32) -> Result<Self> {
        super::dropout::check_rate(&self.name, dropout)?;
        Ok(Self { dropout, ..self })
    }

    fn new(name: String, width: usize, heads: usize, source: Source) -> Result<Self> {
        let fits = heads > 0 && width > 0 && width <= usize::MAX / 3;
        if !fits || !width.is_multiple_of(heads) {
            return Err(Error::Config(format!(
                "{name}: {heads} heads cannot share a width of {width}: use a divisor of the width"
            )));
        }
        // Xavier's bound for the three projections as one matrix, as PyTorch has it.
        let init = Init::Uniform((6.0 / (4.0 * width as f32)).sqrt());
        let weight = format!("{name}.in_proj_weight");
        let bias = format!("{name}.in_proj_bias");
        Ok(Self {
            weight: Param::new(weight, [3 * width, width], Kind::Matrix, init),
            bias: Param::new(bias, [3 * width], Kind::Vector, Init::Zeros),
            name,
            width,
            heads,
            source,
            dropout: 0.0,
        })
    }

    fn dropout(&self, cx: &PassContext) -> Option<ops::Dropout> {
        (cx.train && self.dropout > 0.0).then(|| ops::Dropout {
            rate: self.dropout,
            key: cx.key(&self.name),
            samples: cx.samples.clone(),
        })
    }

    /// Place of the tensor of which keys and values are made, of the segments of the queries, and of those of the
    /// keys.
    fn places(&self) -> [usize; 3] {
        match self.source {
            Source::Input { .. } => [0, 1, 1],
            Source::Memory => [1, 2, 3],
        }
    }

    /// (B, T, S) of these inputs.
    fn extents(&self, inputs: &[Flow]) -> Result<[u64; 3]> {
        let [memory, queries, keys] = self.places();
        let refused = || {
            let width = self.width;
            let dtype = self.weight.dtype;
            let expected = match self.source {
                Source::Input { .. } => {
                    format!(
                        "{dtype} of shape (batch, time, {width}), and segments of each position"
                    )
                }
                Source::Memory => format!(
                    "two tensors of {dtype} of shape (batch, time, {width}), and segments of each position"
                ),
            };
            unexpected(&self.name, expected, Flows(inputs))
        };
        if inputs.len() != self.arity() {
            return Err(refused());
        }
        let (x, memory) = (&inputs[0], &inputs[memory]);
        let rows = |x: &Flow| match x.shape.dims() {
            &[batch, time, width] if width == self.width && x.dtype == self.weight.dtype => {
                Some([batch, time])
            }
            _ => None,
        };
        let (Some([batch, time]), Some([of_memory, keys_time])) = (rows(x), rows(memory)) else {
            return Err(refused());
        };
        let segments = [(&inputs[queries], time), (&inputs[keys], keys_time)];
        let fits = |(segments, time): (&Flow, usize)| *segments == Flow::u32([batch, time]);
        if batch != of_memory || !segments.into_iter().all(fits) {
            return Err(refused());
        }
        checked(&self.name, &x.shape)?;
        Ok([batch, time, keys_time].map(|extent| extent as u64))
    }

    fn settings<'a>(
        &self,
        query_segments: &'a Tensor,
        key_segments: &'a Tensor,
        dropout: Option<&'a ops::Dropout>,
    ) -> ops::SegmentAttention<'a> {
        ops::SegmentAttention {
            heads: self.heads,
            causal: self.source == Source::Input { causal: true },
            query_segments,
            key_segments,
            dropout,
        }
    }

    fn check_count(&self, x: &[Tensor]) -> Result<()> {
        match x.len() == self.arity() {
            true => Ok(()),
            false => Err(unexpected(
                &self.name,
                format!("{} tensors", self.arity()),
                x.len(),
            )),
        }
    }

    /// x·Wᵀ + b with these rows of the parameters.
    fn project(&self, x: &Tensor, rows: std::ops::Range<usize>) -> Result<Tensor> {
        let bias = self.bias.value()?.rows(rows.clone());
        let weight = self.weight.value()?.rows(rows);
        let y = weight.and_then(|weight| ops::matmul(ops::Layout::Nt, x, &weight, Some(&bias?)));
        y.map_err(Error::within(&self.name))
    }

    /// The gradients of queries, keys and values, and what `weight_grad` needs beside them.
    fn scores_grad(&self, saved: &Saved, dy: &Tensor) -> Result<(Gradients, Tensors)> {
        let arity = self.arity();
        let foreign = || foreign(&self.name, arity + 4, saved.tensors.len());
        let (inputs, own) = saved.tensors.split_at_checked(arity).ok_or_else(foreign)?;
        let [q, kv, y, sums] = own else {
            return Err(foreign());
        };
        let [memory, queries, keys] = self.places();
        let dropout = saved.cx.as_ref().and_then(|cx| self.dropout(cx));
        let settings = self.settings(&inputs[queries], &inputs[keys], dropout.as_ref());
        let (dq, dkv) = ops::segment_attention_grad([q, kv], y, sums, dy, &settings)
            .map_err(Error::within(&self.name))?;
        let mut kept: Tensors = smallvec![inputs[0].clone()];
        if memory != 0 {
            kept.push(inputs[memory].clone());
        }
        Ok((Gradients { dq, dkv }, kept))
    }

    fn pending(gradients: Gradients, mut kept: Tensors) -> Pending {
        kept.extend([gradients.dq, gradients.dkv]);
        Pending::new(kept)
    }

    fn missing(&self, got: usize) -> Error {
        unexpected(&self.name, "a gradient for each tensor of floats", got)
    }
}

/// Gradients of the queries, and of keys and values.
struct Gradients {
    dq: Tensor,
    dkv: Tensor,
}

impl Layer for MultiHeadAttention {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        match self.source {
            Source::Input { .. } => 2,
            Source::Memory => 4,
        }
    }

    /// The three projections, and attention as [`CausalAttention`](super::CausalAttention) counts it, in full.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let [batch, time, keys] = self.extents(inputs)?;
        let (width, heads) = (self.width as u64, self.heads as u64);
        let x = &inputs[0];
        let y = output(&self.name, x.shape.clone(), x.dtype)?;
        let memory = &inputs[self.places()[0]];
        let q = y.bytes();
        let kv = times(&[2, memory.bytes()]);
        let projection = times(&[
            2,
            batch,
            time.saturating_add(times(&[2, keys])),
            width,
            width,
        ]);
        let product = times(&[2, batch, time, keys, width]);
        let probabilities = times(&[batch, heads, time, keys]);
        let sums = times(&[4, batch, heads, time]);
        let made = q.saturating_add(kv);
        let (pending_inputs, gradients) = match self.source {
            Source::Input { .. } => (vec![0], x.bytes()),
            Source::Memory => (vec![0, 1], x.bytes().saturating_add(memory.bytes())),
        };
        let mut outputs = inputs.to_vec();
        outputs[0] = y.clone();
        let mut origins: Vec<Origin> = (0..inputs.len()).map(Origin::Same).collect();
        origins[0] = Origin::New;
        let params = times(&[3, width, width.saturating_add(1)]);
        Ok(Cost {
            outputs,
            forward: projection
                .saturating_add(times(&[2, product]))
                .saturating_add(times(&[5, probabilities])),
            input_grad: projection
                .saturating_add(times(&[4, product]))
                .saturating_add(times(&[4, probabilities])),
            weight_grad: trained(&self.weight, projection),
            params,
            memory: Memory {
                outputs: origins,
                saved_inputs: TensorSet::All,
                saved_outputs: TensorSet::Only(vec![0]),
                saved_own: made.saturating_add(sums),
                pending_inputs: TensorSet::Only(pending_inputs),
                pending_own: made,
                forward_peak: y.bytes().saturating_add(made).saturating_add(sums),
                input_grad_peak: made.saturating_add(gradients),
                param_only_grad_peak: made,
                ..Memory::default()
            },
            // Operands of the products, forward and back, and the gradients of the parameters.
            traffic: times(&[6, made])
                .saturating_add(times(&[3, x.bytes().saturating_add(memory.bytes())]))
                .saturating_add(times(&[3, y.bytes()]))
                .saturating_add(times(&[2, 4, params])),
            ..Cost::default()
        })
    }

    /// Lingvo's `MultiHeadedAttention` without the projection behind it, which is a layer of its own here.
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let [batch, time, keys] = self.extents(inputs)?;
        let width = self.width as u64;
        let projections = times(&[
            2,
            batch,
            time.saturating_add(times(&[2, keys])),
            width,
            width,
        ]);
        Ok(times(&[15, batch, time, keys, width]).saturating_add(projections))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        self.check_count(&x)?;
        let [memory, queries, keys] = self.places();
        let q = self.project(&x[0], 0..self.width)?;
        let kv = self.project(&x[memory], self.width..3 * self.width)?;
        let dropout = self.dropout(cx);
        let settings = self.settings(&x[queries], &x[keys], dropout.as_ref());
        let (y, sums) =
            ops::segment_attention(&q, &kv, &settings).map_err(Error::within(&self.name))?;
        let mut outputs = x.clone();
        outputs[0] = y.clone();
        let own = [q, kv, y, sums];
        let saved = Saved {
            tensors: x.into_iter().chain(own).collect(),
            cx: Some(cx.clone()),
            ..Saved::default()
        };
        Ok((outputs, saved))
    }

    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        match self.source {
            // An encoder has all positions in one pass.
            Source::Input { causal: false } => Ok(self.forward(cx, x)?.0),
            _ => self.cached(x, span, cache),
        }
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let within = || Error::within(&self.name);
        let (gradients, kept) = match (self.source, dy.as_slice()) {
            (Source::Input { .. }, [dy]) | (Source::Memory, [dy, _]) => {
                self.scores_grad(&saved, dy)?
            }
            _ => return Err(self.missing(dy.len())),
        };
        let weight = self.weight.value()?;
        let of_queries = weight.rows(0..self.width).map_err(within())?;
        let of_keys = weight.rows(self.width..3 * self.width).map_err(within())?;
        let mut dx =
            ops::matmul(ops::Layout::Nn, &gradients.dq, &of_queries, None).map_err(within())?;
        let dx: Tensors = match dy.get(1) {
            None => {
                ops::matmul_accumulate(ops::Layout::Nn, &gradients.dkv, &of_keys, &mut dx)
                    .map_err(within())?;
                smallvec![dx]
            }
            Some(later) => {
                let d_memory = ops::matmul(ops::Layout::Nn, &gradients.dkv, &of_keys, None);
                let mut d_memory = d_memory.map_err(within())?;
                ops::add_assign(&mut d_memory, later).map_err(within())?;
                smallvec![dx, d_memory]
            }
        };
        Ok((dx, Self::pending(gradients, kept)))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let Some(dy) = dy.first() else {
            return Err(self.missing(0));
        };
        let (gradients, kept) = self.scores_grad(&saved, dy)?;
        Ok(Self::pending(gradients, kept))
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        let memory = match self.source {
            Source::Input { .. } => None,
            Source::Memory if pending.tensors.len() > 1 => Some(pending.tensors.remove(1)),
            Source::Memory => None,
        };
        let [x, dq, dkv] = unpack(&self.name, pending.tensors)?;
        let memory = memory.as_ref().unwrap_or(&x);
        let parts = [
            (0..self.width, &dq, &x),
            (self.width..3 * self.width, &dkv, memory),
        ];
        for (rows, dy, x) in parts {
            self.weight.add_grad(&self.name, |grad| {
                ops::matmul_accumulate_rows(ops::Layout::Tn, dy, x, grad, rows.clone())
            })?;
            self.bias.add_grad(&self.name, |grad| {
                ops::sum_rows_accumulate_in(dy, grad, rows.clone())
            })?;
        }
        Ok(())
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.weight);
        visit(&mut self.bias);
    }
}
