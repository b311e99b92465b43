//! The learned weights, and the first term of the weighted sum.

use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::mean::{grown, grown_bytes, taken, weighted};
use crate::layers::dropout::{Dropout, check_rate};
use crate::layers::flow::{Flows, checked, times, trained, unexpected, unpack};
use crate::sum::sum;
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, Memory, Origin, Param, PassContext, Pending, Result,
    Saved, TensorSet,
};

/// The weights w of an encoder's outputs: from activations x and segments to those, w₀·x and w.
///
/// w = softmax(dropout(s·scale + 1/n))·(1 − n·least) + least of a parameter s of n numbers, zeros at first. The
/// dropout draws one mask a step, never one a micro-batch.
#[derive(Debug)]
pub struct TransparentWeights {
    name: String,
    weights: Param,
    dropout: Dropout,
    scale: f32,
    least: f32,
}

impl TransparentWeights {
    /// `count` weights by the parameter `{name}.weight`, with a dropout of the share `rate`, a scale of 1 and no
    /// least weight.
    ///
    /// # Errors
    /// [`Error::Config`] for no weights, and unless the share is from 0 to below 1.
    pub fn new(name: impl Into<String>, count: usize, rate: f32) -> Result<Self> {
        let name = name.into();
        if count == 0 {
            return Err(Error::Config(format!("{name}: 0 weights: use 1 or more")));
        }
        check_rate(&name, rate)?;
        let weights = format!("{name}.weight");
        Ok(Self {
            weights: Param::new(weights, [count], Kind::Vector, Init::Zeros),
            dropout: Dropout::new(format!("{name}.dropout"), rate)?,
            scale: 1.0,
            least: 0.0,
            name,
        })
    }

    /// The same with another factor of the parameter and a least weight.
    ///
    /// # Errors
    /// [`Error::Config`] unless the factor is finite and all least weights together are from 0 to below 1.
    pub fn scaled(self, scale: f32, least: f32) -> Result<Self> {
        let all = least * self.count() as f32;
        if !scale.is_finite() || !(0.0..1.0).contains(&all) {
            return Err(Error::Config(format!(
                "{}: a scale of {scale} and a least weight of {least}: use a finite scale, and from 0 to below 1 / {}",
                self.name,
                self.count()
            )));
        }
        Ok(Self {
            scale,
            least,
            ..self
        })
    }

    fn count(&self) -> usize {
        self.weights.shape.rows()
    }

    /// The softmax, and the factor of each number by dropout.
    fn probabilities(&self, cx: &PassContext, like: &Tensor) -> Result<State> {
        let within = || Error::within(&self.name);
        let count = self.count();
        let ones = Tensor::from_f32(like.device(), [1, count], vec![1.0; count]);
        let once = PassContext::new(cx.seed, cx.step, 0..1, cx.train);
        let factors = self.dropout.apply(&once, ones.map_err(within())?)?;
        let factors = factors.to_f32s().map_err(within())?.to_vec();
        let values = self.weights.value()?.to_f32s().map_err(within())?;
        let equal = 1.0 / count as f64;
        let scores: Vec<f64> = values
            .iter()
            .zip(&factors)
            .map(|(&s, &factor)| (f64::from(s * self.scale) + equal) * f64::from(factor))
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f64 = powers.iter().sum();
        Ok(State {
            probabilities: powers.iter().map(|power| power / total).collect(),
            factors,
        })
    }

    /// The share of the softmax beside the least weights.
    fn rest(&self) -> f64 {
        1.0 - self.count() as f64 * f64::from(self.least)
    }

    /// The gradient of w with what w₀ adds to it.
    fn pending(&self, x: &Tensor, dsum: &Tensor, dw: &Tensor, state: State) -> Result<Pending> {
        let own = grown(x, dsum, 0, self.count()).map_err(Error::within(&self.name))?;
        let dw = ops::add(dw, &own).map_err(Error::within(&self.name))?;
        Ok(Pending::new([dw]).with_value(state))
    }
}

/// What the gradient of the parameter needs of the forward pass.
struct State {
    probabilities: Vec<f64>,
    factors: Vec<f32>,
}

impl Layer for TransparentWeights {
    fn name(&self) -> &str {
        &self.name
    }

    fn arity(&self) -> usize {
        2
    }

    fn handed_on(&self) -> Vec<(usize, usize)> {
        vec![(1, 1)]
    }

    /// A product an element forward, and two and a sum back.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let (x, segments) = match inputs {
            [x, segments] if x.dtype == self.weights.dtype => (x, segments),
            _ => {
                let expected = format!("{} activations and segments", self.weights.dtype);
                return Err(unexpected(&self.name, expected, Flows(inputs)));
            }
        };
        let elements = checked(&self.name, &x.shape)?;
        let w = Flow {
            shape: [1, self.count()].into(),
            dtype: x.dtype,
        };
        let grown = grown_bytes(&w);
        Ok(Cost {
            forward: elements,
            input_grad: times(&[4, elements]),
            weight_grad: trained(&self.weights, times(&[5, w.elements()])),
            params: w.elements(),
            memory: Memory {
                outputs: vec![Origin::Same(0), Origin::Same(1), Origin::New, Origin::New],
                gradients: vec![Origin::Over(0)],
                saved_inputs: TensorSet::Only(vec![0]),
                saved_outputs: TensorSet::Only(vec![3]),
                pending_own: w.bytes(),
                forward_peak: x.bytes().saturating_add(w.bytes()),
                input_grad_peak: grown.max(w.bytes().saturating_add(times(&[2, x.bytes()]))),
                param_only_grad_peak: grown,
                weight_grad_peak: trained(&self.weights, w.bytes()),
                ..Memory::default()
            },
            traffic: times(&[8, x.bytes()]),
            outputs: vec![x.clone(), segments.clone(), x.clone(), w],
            ..Cost::default()
        })
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let within = || Error::within(&self.name);
        let [x, segments] = taken(&self.name, x)?;
        let state = self.probabilities(cx, &x)?;
        let rest = self.rest();
        let weights = state.probabilities.iter();
        let weights = weights.map(|p| (p * rest + f64::from(self.least)) as f32);
        let w = Tensor::from_f32(x.device(), [1, self.count()], weights.collect::<Vec<_>>());
        let w = w.and_then(|w| w.to_dtype(x.dtype())).map_err(within())?;
        let first = weighted(&x, &w, 0).map_err(within())?;
        let saved = Saved::new([x.clone(), w.clone()]).with_value(state);
        Ok((smallvec![x, segments, first, w], saved))
    }

    fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let state = saved.take_value(&self.name)?;
        let [x, w] = unpack(&self.name, saved.tensors)?;
        let [dx, dsum, dw] = taken(&self.name, dy)?;
        let pending = self.pending(&x, &dsum, &dw, state)?;
        let own = weighted(&dsum, &w, 0).map_err(Error::within(&self.name))?;
        let dx = sum(dx, &own).map_err(Error::within(&self.name))?;
        Ok((smallvec![dx], pending))
    }

    fn param_only_grad(&self, mut saved: Saved, dy: Tensors) -> Result<Pending> {
        let state = saved.take_value(&self.name)?;
        // Arguments are held until the end.
        let [x, _w] = unpack(&self.name, saved.tensors)?;
        let [_dx, dsum, dw] = taken(&self.name, dy)?;
        self.pending(&x, &dsum, &dw, state)
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        let State {
            probabilities,
            factors,
        } = pending.take_value(&self.name)?;
        let [dw] = unpack(&self.name, pending.tensors)?;
        if self.weights.frozen {
            return Ok(());
        }
        let dw = dw.to_f32s().map_err(Error::within(&self.name))?.to_vec();
        let mean: f64 = probabilities
            .iter()
            .zip(&dw)
            .map(|(p, &d)| p * f64::from(d))
            .sum();
        let factor = self.rest() * f64::from(self.scale);
        let gradient = probabilities
            .iter()
            .zip(&dw)
            .zip(&factors)
            .map(|((p, &d), &kept)| (factor * f64::from(kept) * p * (f64::from(d) - mean)) as f32);
        let gradient: Vec<f32> = gradient.collect();
        self.weights.add_grad(&self.name, |sum| {
            let gradient = Tensor::from_f32(sum.device(), sum.shape().clone(), gradient)?;
            ops::add_assign(sum, &gradient)
        })
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.weights);
    }
}
