//! Low-rank adaptation of a linear layer (LoRA, arXiv:2106.09685).

use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{checked, floats, single, times, unexpected, unpack};
use super::linear::trained;
use super::{Dropout, Layout, Linear};
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// Rank, scale and dropout of a [`LoraLinear`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraSettings {
    /// The rank r, the width between the two maps; at least 1.
    pub rank: usize,
    /// α: the product of the two maps is scaled by α/r.
    pub alpha: f32,
    /// Share of the adapter's inputs that training drops, from 0 to below 1. The frozen map gets all of them.
    pub dropout: f32,
}

/// y = base(x) + α/r · (dropout(x)·Aᵀ)·Bᵀ, where `base` is frozen and A and B are trained.
///
/// The parameters of the base keep their names, and `{base}.lora_A.weight` (r, inputs) and
/// `{base}.lora_B.weight` (outputs, r) come after them, as in `peft`: A begins uniform within 1/√inputs (Kaiming
/// with a = √5), B as zeros, and so y begins as the base's. Whichever layout the base has, A and B have these shapes.
#[derive(Debug)]
pub struct LoraLinear {
    base: Linear,
    a: Param,
    b: Param,
    scale: f32,
    dropout: Dropout,
}

impl LoraLinear {
    /// An adapter of this layer, whose parameters it freezes.
    ///
    /// # Errors
    /// [`Error::Config`] if the rank is 0, α is not a finite number, or the dropout is not from 0 to below 1.
    pub fn new(mut base: Linear, settings: LoraSettings) -> Result<Self> {
        let name = base.name().to_owned();
        let LoraSettings { rank, alpha, .. } = settings;
        if rank == 0 {
            let error = format!("{name}: the rank of LoRA is 0: use at least 1");
            return Err(Error::Config(error));
        }
        if !alpha.is_finite() {
            let error = format!("{name}: LoRA's alpha is {alpha}: use a finite number");
            return Err(Error::Config(error));
        }
        base.params(&mut |param| param.frozen = true);
        let (inputs, outputs) = (base.inputs, base.outputs);
        let bound = (inputs.max(1) as f32).sqrt().recip();
        let matrix = |part: &str, shape: [usize; 2], init| {
            Param::new(format!("{name}.{part}.weight"), shape, Kind::Matrix, init)
        };
        Ok(Self {
            a: matrix("lora_A", [rank, inputs], Init::Uniform(bound)),
            b: matrix("lora_B", [outputs, rank], Init::Zeros),
            scale: alpha / rank as f32,
            dropout: Dropout::new(format!("{name}.lora_dropout"), settings.dropout)?,
            base,
        })
    }

    /// The weight, in the base's layout, of a linear layer that computes the same in evaluation:
    /// W + α/r · B·A. It agrees with this layer to rounding.
    ///
    /// # Errors
    /// If the parameters were not made.
    pub fn merged_weight(&self) -> Result<Tensor> {
        let within = || Error::within(self.name());
        let base = &self.base.weight;
        let weight = base.exact()?;
        let mut merged = weight.to_f32s().map_err(within())?;
        let a = self.a.exact()?.to_f32s().map_err(within())?;
        let b = self.b.exact()?.to_f32s().map_err(within())?;
        let (inputs, rank) = (self.base.inputs, self.rank());
        for (o, b) in b.chunks_exact(rank).enumerate() {
            for i in 0..inputs {
                let product: f32 = (b.iter().enumerate())
                    .map(|(r, b)| b * a[r * inputs + i])
                    .sum();
                let place = match self.base.layout {
                    Layout::InOut => i * self.base.outputs + o,
                    Layout::OutIn => o * inputs + i,
                };
                merged[place] += self.scale * product;
            }
        }
        Tensor::from_f32(weight.device(), base.shape.clone(), merged).map_err(within())
    }

    fn rank(&self) -> usize {
        self.a.shape.dims()[0]
    }

    /// α/r · dY·B, which dX and dA need, of shape (…, r).
    fn inner_grad(&self, dy: &Tensor) -> Result<Tensor> {
        let mut inner = ops::matmul(ops::Layout::Nn, dy, self.b.value()?, None)
            .map_err(Error::within(self.name()))?;
        ops::scale_assign(&mut inner, self.scale).map_err(Error::within(self.name()))?;
        Ok(inner)
    }
}

impl Layer for LoraLinear {
    fn name(&self) -> &str {
        self.base.name()
    }

    /// The base's, without gradients of its parameters, and those of two more products. An element costs 1 FLOP where it is
    /// scaled, dropped or added.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(self.name(), inputs, Some(self.base.inputs))?;
        if x.dtype != self.a.dtype {
            let expected = format!("elements of {:?}, as the weights", self.a.dtype);
            return Err(unexpected(self.name(), expected, x));
        }
        let base = self.base.cost(inputs)?;
        let y = &base.outputs[0];
        let a = checked(self.name(), &self.a.shape)?;
        let b = checked(self.name(), &self.b.shape)?;
        let rows = x.elements() / (self.base.inputs as u64).max(1);
        let inner = Flow {
            shape: x.shape.with_last(self.rank()),
            dtype: x.dtype,
        };
        let drops = self.dropout.rate() > 0.0;
        let (dropped, dropped_bytes) = match drops {
            true => (x.elements(), x.bytes()),
            false => (0, 0),
        };
        let products = times(&[2, rows, a]).saturating_add(times(&[2, rows, b]));
        let own = inner.bytes();
        let total = |parts: &[u64]| parts.iter().fold(0u64, |a, &b| a.saturating_add(b));
        Ok(Cost {
            forward: total(&[
                base.forward,
                products,
                dropped,
                inner.elements(),
                y.elements(),
            ]),
            input_grad: total(&[
                base.input_grad,
                products,
                dropped,
                inner.elements(),
                x.elements(),
            ]),
            weight_grad: total(&[
                base.weight_grad,
                trained(&self.a, times(&[2, rows, a]).saturating_add(dropped)),
                trained(&self.b, times(&[2, rows, b])),
            ]),
            params: total(&[base.params, a, b]),
            memory: Memory {
                saved_inputs: TensorSet::All,
                saved_own: own,
                pending_inputs: TensorSet::All,
                pending_own: times(&[2, own]),
                pending_grads: TensorSet::All,
                // The inner tensor beside the dropped input, or beside both summands of y.
                forward_peak: own.saturating_add(dropped_bytes.max(times(&[2, y.bytes()]))),
                // Both summands of dX.
                input_grad_peak: own.saturating_add(times(&[2, x.bytes()])),
                param_only_grad_peak: own,
                weight_grad_peak: trained(&self.a, dropped_bytes),
                ..Memory::default()
            },
            // Of each of the six products two operands and a result; two sums; three times dropout.
            traffic: total(&[
                base.traffic,
                times(&[6, x.bytes()]),
                times(&[6, y.bytes()]),
                times(&[10, own]),
                times(&[6, dropped_bytes]),
                times(&[16, a.saturating_add(b)]),
            ]),
            outputs: base.outputs,
            ..Cost::default()
        })
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let within = || Error::within(self.name());
        let x = single(self.name(), x)?;
        let dropped = self.dropout.apply(cx, x.clone())?;
        let mut inner =
            ops::matmul(ops::Layout::Nt, &dropped, self.a.value()?, None).map_err(within())?;
        drop(dropped);
        ops::scale_assign(&mut inner, self.scale).map_err(within())?;
        let (y, _) = self.base.forward(cx, smallvec![x.clone()])?;
        let mut y = single(self.name(), y)?;
        let update =
            ops::matmul(ops::Layout::Nt, &inner, self.b.value()?, None).map_err(within())?;
        ops::add_assign(&mut y, &update).map_err(within())?;
        let saved = Saved {
            cx: Some(cx.clone()),
            ..Saved::new([x, inner])
        };
        Ok((smallvec![y], saved))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let Some(cx) = saved.cx else {
            return Err(super::flow::foreign(self.name(), 1, 0));
        };
        let [x, inner] = unpack(self.name(), saved.tensors)?;
        let dy = single(self.name(), dy)?;
        let inner_grad = self.inner_grad(&dy)?;
        let of_base = Saved::new([x.clone()]);
        let (dx, _) = self.base.input_grad(of_base, smallvec![dy.clone()])?;
        let mut dx = single(self.name(), dx)?;
        let within = || Error::within(self.name());
        let update =
            ops::matmul(ops::Layout::Nn, &inner_grad, self.a.value()?, None).map_err(within())?;
        let update = self.dropout.apply(&cx, update)?;
        ops::add_assign(&mut dx, &update).map_err(within())?;
        let pending = Pending::new([x, inner, dy, inner_grad]).with_value(cx);
        Ok((smallvec![dx], pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let Some(cx) = saved.cx else {
            return Err(super::flow::foreign(self.name(), 1, 0));
        };
        let [x, inner] = unpack(self.name(), saved.tensors)?;
        let dy = single(self.name(), dy)?;
        let inner_grad = self.inner_grad(&dy)?;
        Ok(Pending::new([x, inner, dy, inner_grad]).with_value(cx))
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        let name = self.base.name();
        let cx: PassContext = pending.take_value(name)?;
        let [x, inner, dy, inner_grad] = unpack(name, pending.tensors)?;
        if !self.a.frozen {
            let dropped = self.dropout.apply(&cx, x.clone())?;
            let add = |grad: &mut Tensor| {
                ops::matmul_accumulate(ops::Layout::Tn, &inner_grad, &dropped, grad)
            };
            self.a.add_grad(name, add)?;
        }
        self.b.add_grad(name, |grad| {
            ops::matmul_accumulate(ops::Layout::Tn, &dy, &inner, grad)
        })
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.base.params(visit);
        visit(&mut self.a);
        visit(&mut self.b);
    }
}
