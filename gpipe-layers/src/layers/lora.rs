//! Low-rank adaptation of a linear layer (LoRA, arXiv:2106.09685).

use gpipe_tensor::{Tensor, ops};

use super::Dropout;
use super::flow::{checked, times, trained, unexpected};
use crate::lora_settings::LoraSettings;
use crate::{
    Cost, Error, Flow, Init, Kind, Memory, Param, PassContext, Pending, Result, TensorSet,
};

/// The adapter inside a linear layer: α/r · (dropout(x)·Aᵀ)·Bᵀ, which is added to its output.
#[derive(Debug)]
pub struct Lora {
    /// The name of the linear layer.
    name: String,
    pub a: Param,
    pub b: Param,
    scale: f32,
    dropout: Dropout,
}

impl Lora {
    /// The adapter of a linear layer of this name and these sizes.
    pub fn new(name: &str, inputs: usize, outputs: usize, settings: LoraSettings) -> Result<Self> {
        let LoraSettings { rank, alpha, .. } = settings;
        if rank == 0 {
            let error = format!("{name}: the rank of LoRA is 0: use at least 1");
            return Err(Error::Config(error));
        }
        if !alpha.is_finite() {
            let error = format!("{name}: LoRA's alpha is {alpha}: use a finite number");
            return Err(Error::Config(error));
        }
        let bound = (inputs.max(1) as f32).sqrt().recip();
        let matrix = |part: &str, shape: [usize; 2], init| {
            Param::new(format!("{name}.{part}.weight"), shape, Kind::Matrix, init)
        };
        Ok(Self {
            name: name.to_owned(),
            a: matrix("lora_A", [rank, inputs], Init::Uniform(bound)),
            b: matrix("lora_B", [outputs, rank], Init::Zeros),
            scale: settings.scale(),
            dropout: Dropout::new(format!("{name}.lora_dropout"), settings.dropout)?,
        })
    }

    /// The cost of the linear layer with the adapter, from its own, which keeps one input x. An element costs 1
    /// FLOP where it is scaled, dropped or added.
    pub fn cost(&self, x: &Flow, base: Cost) -> Result<Cost> {
        if x.dtype != self.a.dtype {
            let expected = format!("elements of {:?}, as the weights", self.a.dtype);
            return Err(unexpected(&self.name, expected, x));
        }
        let y = &base.outputs[0];
        let a = checked(&self.name, &self.a.shape)?;
        let b = checked(&self.name, &self.b.shape)?;
        let [rank, inputs] = [0, 1].map(|extent| self.a.shape.dims()[extent]);
        let rows = x.elements() / (inputs as u64).max(1);
        let inner = Flow {
            shape: x.shape.with_last(rank),
            dtype: x.dtype,
        };
        let (dropped, dropped_bytes) = match self.dropout.rate() > 0.0 {
            true => (x.elements(), x.bytes()),
            false => (0, 0),
        };
        let products = times(&[2, rows, a]).saturating_add(times(&[2, rows, b]));
        let own = inner.bytes();
        let total = |parts: &[u64]| parts.iter().fold(0u64, |a, &b| a.saturating_add(b));
        let both = total(&[products, dropped, inner.elements()]);
        let again = times(&[2, rows, a]).saturating_add(dropped);
        Ok(Cost {
            forward: total(&[base.forward, both, y.elements()]),
            recompute: Some(again),
            input_grad: total(&[base.input_grad, both, x.elements()]),
            weight_grad: total(&[
                base.weight_grad,
                trained(&self.a, again),
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
                recompute_peak: Some(own.saturating_add(dropped_bytes)),
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

    /// α/r · dropout(x)·Aᵀ, of shape (…, r).
    pub fn inner(&self, cx: &PassContext, x: &Tensor) -> Result<Tensor> {
        let dropped = self.dropout.apply(cx, x.clone())?;
        self.scaled(ops::Layout::Nt, &dropped, &self.a)
    }

    /// Adds inner·Bᵀ to y.
    pub fn add_output(&self, inner: &Tensor, y: &mut Tensor) -> Result<()> {
        let update = ops::matmul(ops::Layout::Nt, inner, self.b.value()?, None)
            .map_err(Error::within(&self.name))?;
        ops::add_assign(y, &update).map_err(Error::within(&self.name))
    }

    /// α/r · dY·B, which dX and dA need, of shape (…, r).
    pub fn inner_grad(&self, dy: &Tensor) -> Result<Tensor> {
        self.scaled(ops::Layout::Nn, dy, &self.b)
    }

    fn scaled(&self, layout: ops::Layout, x: &Tensor, weight: &Param) -> Result<Tensor> {
        let mut product =
            ops::matmul(layout, x, weight.value()?, None).map_err(Error::within(&self.name))?;
        ops::scale_assign(&mut product, self.scale).map_err(Error::within(&self.name))?;
        Ok(product)
    }

    /// Adds dropout(inner_grad·A) to dX.
    pub fn add_input_grad(
        &self,
        cx: &PassContext,
        inner_grad: &Tensor,
        dx: &mut Tensor,
    ) -> Result<()> {
        let update = ops::matmul(ops::Layout::Nn, inner_grad, self.a.value()?, None)
            .map_err(Error::within(&self.name))?;
        let update = self.dropout.apply(cx, update)?;
        ops::add_assign(dx, &update).map_err(Error::within(&self.name))
    }

    /// Adds dA and dB to the gradients; `pending` is that of the linear layer.
    pub fn weight_grad(&mut self, pending: &mut Pending) -> Result<()> {
        let cx: PassContext = pending.take_value(&self.name)?;
        let [x, dy, inner, inner_grad] = &pending.tensors[..] else {
            return Err(super::flow::foreign(&self.name, 4, pending.tensors.len()));
        };
        if !self.a.frozen {
            let dropped = self.dropout.apply(&cx, x.clone())?;
            self.a.add_grad(&self.name, |grad| {
                ops::matmul_accumulate(ops::Layout::Tn, inner_grad, &dropped, grad)
            })?;
        }
        self.b.add_grad(&self.name, |grad| {
            ops::matmul_accumulate(ops::Layout::Tn, dy, inner, grad)
        })
    }
}
