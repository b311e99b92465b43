//! Causal self-attention (arXiv:1706.03762), without its projections.

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{Flows, floats, output, single, times, unexpected, unpack};
use crate::{
    Cost, Error, Flow, Layer, LayerCache, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// softmax(q·kᵀ/√(width/heads))·v over the positions up to each position's own: from (B, T, 3·width),
/// which holds q, k and v in this order with the heads side by side in each, to (B, T, width). With fewer
/// heads of keys and values ([`grouped`](Self::grouped)) the input has as many columns fewer.
///
/// No T² tensor is kept: the gradient computes the probabilities again from the logarithm of each
/// row's sum (B, heads, T), as FlashAttention does (arXiv:2205.14135).
#[derive(Debug)]
pub struct CausalAttention {
    name: String,
    width: usize,
    heads: ops::Heads,
    dropout: f32,
}

impl CausalAttention {
    /// Attention with `heads` heads of `width / heads` columns each; of its probabilities the share
    /// `dropout` is dropped in training.
    ///
    /// # Errors
    /// [`Error::Config`] unless the heads divide the width and the share is from 0 to below 1.
    pub fn new(name: impl Into<String>, width: usize, heads: usize, dropout: f32) -> Result<Self> {
        let name = name.into();
        super::dropout::check_rate(&name, dropout)?;
        let fits = heads > 0 && width > 0 && width <= usize::MAX / 3;
        if !fits || !width.is_multiple_of(heads) {
            return Err(Error::Config(format!(
                "{name}: {heads} heads cannot share a width of {width}: use a divisor of the width"
            )));
        }
        Ok(Self {
            name,
            width,
            heads: heads.into(),
            dropout,
        })
    }

    /// The same with `groups` heads of keys and values, each for as many heads of queries
    /// (arXiv:2305.13245).
    ///
    /// # Errors
    /// [`Error::Config`] unless the groups divide the heads.
    pub fn grouped(mut self, groups: usize) -> Result<Self> {
        let queries = self.heads.queries;
        if groups == 0 || !queries.is_multiple_of(groups) {
            return Err(Error::Config(format!(
                "{}: {groups} heads of keys and values cannot serve {queries} heads: use a divisor of the \
                 heads",
                self.name
            )));
        }
        self.heads.groups = groups;
        Ok(self)
    }

    /// The same where a position sees only the `window` positions up to its own, or all for none
    /// (arXiv:2004.05150).
    ///
    /// # Errors
    /// [`Error::Config`] for a window of 0.
    pub fn within(mut self, window: Option<usize>) -> Result<Self> {
        if window == Some(0) {
            let name = &self.name;
            return Err(Error::Config(format!(
                "{name}: a window of 0: use 1 or more"
            )));
        }
        self.heads.window = window;
        Ok(self)
    }

    /// Columns of the input.
    fn columns(&self) -> usize {
        self.width / self.heads.queries * (self.heads.queries + 2 * self.heads.groups)
    }

    /// The input, which has to have these columns: the operation takes the size of heads from them.
    fn queries_keys_and_values(&self, x: Tensors) -> Result<Tensor> {
        let qkv = single(&self.name, x)?;
        if qkv.shape().last() == self.columns() {
            return Ok(qkv);
        }
        let expected = format!("floats of shape (batch, time, {})", self.columns());
        Err(unexpected(&self.name, expected, qkv.shape()))
    }

    fn dropout(&self, cx: &PassContext) -> Option<ops::Dropout> {
        (cx.train && self.dropout > 0.0).then(|| ops::Dropout {
            rate: self.dropout,
            key: cx.key(&self.name),
            samples: cx.samples.clone(),
        })
    }

    /// (B, T) of these inputs.
    fn extents(&self, inputs: &[Flow]) -> Result<[u64; 2]> {
        let qkv = floats(&self.name, inputs, Some(self.columns()))?;
        match qkv.shape.dims() {
            &[batch, time, _] => Ok([batch as u64, time as u64]),
            _ => {
                let expected = format!("floats of shape (batch, time, {})", self.columns());
                Err(unexpected(&self.name, expected, Flows(inputs)))
            }
        }
    }
}

impl Layer for CausalAttention {
    fn name(&self) -> &str {
        &self.name
    }

    /// Two products of 2·B·T²·width FLOPs each forward and four in the gradient, in full, as the
    /// literature counts them, although the masked half is skipped and q·kᵀ computed a second time;
    /// a probability takes 5 FLOPs (scale, maximum, difference, exponential, quotient) and 4 back. With a window each of
    /// the T positions sees as many as that has.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let [batch, time] = self.extents(inputs)?;
        let (width, heads) = (self.width as u64, self.heads.queries as u64);
        let shape = inputs[0].shape.with_last(self.width);
        let y = output(&self.name, shape, inputs[0].dtype)?;
        let seen = self
            .heads
            .window
            .map_or(time, |window| time.min(window as u64));
        let product = times(&[2, batch, time, seen, width]);
        let probabilities = times(&[batch, heads, time, seen]);
        // Of single precision.
        let sums = times(&[4, batch, heads, time]);
        Ok(Cost {
            forward: times(&[2, product]).saturating_add(times(&[5, probabilities])),
            input_grad: times(&[4, product]).saturating_add(times(&[4, probabilities])),
            weight_grad: 0,
            params: 0,
            memory: Memory {
                saved_inputs: TensorSet::All,
                saved_outputs: TensorSet::All,
                saved_own: sums,
                forward_peak: y.bytes().saturating_add(sums),
                input_grad_peak: inputs[0].bytes(),
                ..Memory::default()
            },
            // qkv and y; qkv, y, dy and dqkv.
            traffic: times(&[3, inputs[0].bytes()]).saturating_add(times(&[3, y.bytes()])),
            outputs: vec![y],
            ..Cost::default()
        })
    }

    /// 15·B·T²·width: Lingvo's `MultiHeadedAttention` without its projections, which are layers of
    /// their own here.
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let [batch, time] = self.extents(inputs)?;
        Ok(times(&[15, batch, time, time, self.width as u64]))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let qkv = self.queries_keys_and_values(x)?;
        let (y, sums) = ops::attention(&qkv, self.heads, self.dropout(cx).as_ref())
            .map_err(Error::within(&self.name))?;
        let saved = Saved {
            tensors: smallvec![qkv, y.clone(), sums],
            cx: Some(cx.clone()),
            ..Saved::default()
        };
        Ok((smallvec![y], saved))
    }

    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let qkv = self.queries_keys_and_values(x)?;
        let within = || Error::within(&self.name);
        let kept = self.width / self.heads.queries * self.heads.groups;
        let (keys, values) = ((&qkv, self.width), (&qkv, self.width + kept));
        let cache = &mut cache.attention;
        cache.store(span, keys, values, kept).map_err(within())?;
        if span.past().iter().all(|&past| past == 0) {
            // A prompt: faster in blocks.
            return Ok(self.forward(cx, smallvec![qkv])?.0);
        }
        let y = cache.attend(span, (&qkv, 0), self.heads);
        Ok(smallvec![y.map_err(within())?])
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dropout = saved.cx.as_ref().and_then(|cx| self.dropout(cx));
        let [qkv, y, sums] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        let dqkv = ops::attention_grad(&qkv, &y, &sums, &dy, self.heads, dropout.as_ref())
            .map_err(Error::within(&self.name))?;
        Ok((smallvec![dqkv], Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
