//! The gated feed-forward nets of Llama and Gemma (arXiv:2002.05202).

use gpipe_tensor::ops::Gate;
use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::Linear;
use super::flow::{floats, foreign, single, times, unexpected, unpack};
use crate::{
    Cost, Error, Flow, Layer, LoraSettings, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// down(f(gate·x) ⊙ up·x) of three linear maps, with f = SiLU (SwiGLU) or another [`Gate`]. The product of gate and up is not kept: it is computed
/// again where its slopes are computed, which takes the same exponential, over the tensors that are there.
#[derive(Debug)]
pub struct Glu {
    name: String,
    function: Gate,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Glu {
    /// A net of these maps: `gate` and `up` to the inner width, `down` from it.
    pub fn new(name: impl Into<String>, gate: Linear, up: Linear, down: Linear) -> Self {
        Self {
            name: name.into(),
            function: Gate::Silu,
            gate,
            up,
            down,
        }
    }

    /// The same with this function of the gate.
    #[must_use]
    pub fn with_gate(self, function: Gate) -> Self {
        Self { function, ..self }
    }

    /// The state of the forward pass but for that of `down`.
    fn project(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        let x = single(&self.name, x)?;
        let (gate, of_gate) = self.gate.forward(cx, smallvec![x.clone()])?;
        let (up, of_up) = self.up.forward(cx, smallvec![x])?;
        Ok(Saved {
            nested: vec![of_gate, of_up],
            ..Saved::new([single(&self.name, gate)?, single(&self.name, up)?])
        })
    }

    /// The input of `down`.
    fn product(&self, saved: &Saved) -> Result<Tensor> {
        let [gate, up] = &saved.tensors[..] else {
            return Err(foreign(&self.name, 2, saved.tensors.len()));
        };
        ops::glu(self.function, gate, up).map_err(Error::within(&self.name))
    }

    fn saved(&self, saved: Saved) -> Result<([Saved; 3], [Tensor; 2])> {
        let inner = unpack(&self.name, saved.tensors)?;
        let count = saved.nested.len();
        let nested: std::result::Result<[Saved; 3], _> = saved.nested.try_into();
        Ok((nested.map_err(|_| foreign(&self.name, 3, count))?, inner))
    }

    /// The pending state of `down`, and the gradients of gate and up from that of their product.
    fn split(
        &self,
        mut of_down: Saved,
        [mut gate, mut up]: [Tensor; 2],
        dy: Tensors,
    ) -> Result<(Pending, [Tensor; 2])> {
        // The linear layer only moves its input to `Pending`: the gate stands in for the product until
        // that is computed below.
        of_down.tensors.insert(0, gate.clone());
        let (dx, mut pending) = self.down.input_grad(of_down, dy)?;
        let mut dy = single(&self.name, dx)?;
        pending.tensors.remove(0);
        ops::glu_with_grad(self.function, &mut gate, &mut up, &mut dy)
            .map_err(Error::within(&self.name))?;
        pending.tensors.insert(0, dy);
        Ok((pending, [gate, up]))
    }
}

/// The state of `down` without its input, which `split` puts back.
fn without_product(mut of_down: Saved) -> Saved {
    of_down.tensors.remove(0);
    of_down
}

impl Layer for Glu {
    fn name(&self) -> &str {
        &self.name
    }

    /// The sum of the three products, and for each element of the inner width 6 FLOPs forward (the
    /// exponential, a sum, a quotient, three products) and 10 back.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let gate = self.gate.cost(inputs)?;
        let up = self.up.cost(inputs)?;
        let down = self.down.cost(&gate.outputs)?;
        let inner = &gate.outputs[0];
        if up.outputs != gate.outputs || down.outputs[0].dtype != inner.dtype {
            let expected = format!("maps to {inner} and from it");
            return Err(unexpected(&self.name, expected, &up.outputs[0]));
        }
        let parts = [&gate, &up, &down];
        let total = |part: fn(&Cost) -> u64| {
            let parts = parts.iter().map(|cost| part(cost));
            parts.fold(0, u64::saturating_add)
        };
        let (bytes, elements) = (inner.bytes(), inner.elements());
        let sum = |parts: &[u64]| parts.iter().fold(0u64, |a, &b| a.saturating_add(b));
        let [of_gate, of_up, of_down] = parts.map(|cost| &cost.memory);
        // What is there when gate, and when up computes its gradient: that of the product, and dX of gate.
        let at_gate = bytes.saturating_add(of_down.grown());
        let at_up = at_gate.saturating_add(of_gate.grown());
        Ok(Cost {
            outputs: down.outputs.clone(),
            forward: total(|cost| cost.forward).saturating_add(times(&[6, elements])),
            recompute: Some(sum(&match self.down.is_adapted() {
                true => [
                    gate.forward,
                    up.forward,
                    times(&[6, elements]),
                    down.recomputed(),
                ],
                false => [gate.forward, up.forward, 0, 0],
            })),
            input_grad: total(|cost| cost.input_grad)
                .saturating_add(times(&[10, elements]))
                .saturating_add(x.elements()),
            weight_grad: total(|cost| cost.weight_grad),
            params: total(|cost| cost.params),
            memory: Memory {
                saved_inputs: of_gate.saved_inputs.clone(),
                saved_own: sum(&[total(|cost| cost.memory.saved_own), bytes, bytes]),
                pending_inputs: of_gate.pending_inputs.clone(),
                pending_own: sum(&[total(|cost| cost.memory.pending_own), bytes, bytes, bytes]),
                pending_grads: TensorSet::All,
                forward_peak: [
                    of_gate.forward_peak,
                    sum(&[of_gate.saved_own, bytes, of_up.forward_peak]),
                    sum(&[
                        of_gate.saved_own,
                        of_up.saved_own,
                        times(&[3, bytes]),
                        of_down.forward_peak,
                    ]),
                ]
                .into_iter()
                .fold(0, u64::max),
                recompute_peak: Some(
                    [
                        of_gate.forward_peak,
                        sum(&[of_gate.saved_own, bytes, of_up.forward_peak]),
                        match self.down.is_adapted() {
                            true => sum(&[
                                of_gate.saved_own,
                                of_up.saved_own,
                                times(&[3, bytes]),
                                of_down.recompute_peak.unwrap_or(of_down.forward_peak),
                            ]),
                            false => 0,
                        },
                    ]
                    .into_iter()
                    .fold(0, u64::max),
                ),
                input_grad_peak: [
                    of_down.input_grad_peak,
                    sum(&[at_gate, of_gate.input_grad_peak]),
                    sum(&[at_up, x.bytes(), of_up.input_grad_peak]),
                ]
                .into_iter()
                .fold(0, u64::max),
                param_only_grad_peak: [
                    of_down.input_grad_peak,
                    sum(&[at_gate, of_gate.param_only_grad_peak]),
                    sum(&[at_up, of_up.param_only_grad_peak]),
                ]
                .into_iter()
                .fold(0, u64::max),
                // The gradients of gate, then of up are given free; `down` needs less than these.
                weight_grad_peak: of_gate.weight_grad_peak.max(
                    of_up
                        .weight_grad_peak
                        .saturating_sub(bytes.saturating_add(of_gate.pending_own)),
                ),
                ..Memory::default()
            },
            // Two operands and a product; three read and written; the sum of dX.
            traffic: total(|cost| cost.traffic)
                .saturating_add(times(&[9, bytes]))
                .saturating_add(times(&[3, x.bytes()])),
            ..Cost::default()
        })
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let mut saved = self.project(cx, x)?;
        let product = smallvec![self.product(&saved)?];
        let (y, of_down) = self.down.forward(cx, product)?;
        saved.nested.push(without_product(of_down));
        Ok((y, saved))
    }

    fn recompute(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        let mut saved = self.project(cx, x)?;
        let of_down = match self.down.is_adapted() {
            true => {
                let product = smallvec![self.product(&saved)?];
                without_product(self.down.recompute(cx, product)?)
            }
            false => Saved::default(),
        };
        saved.nested.push(of_down);
        Ok(saved)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let ([of_gate, of_up, of_down], inner) = self.saved(saved)?;
        let (down, [dgate, dup]) = self.split(of_down, inner, dy)?;
        let (dx, gate) = self.gate.input_grad(of_gate, smallvec![dgate])?;
        let (other, up) = self.up.input_grad(of_up, smallvec![dup])?;
        let (mut dx, other) = (single(&self.name, dx)?, single(&self.name, other)?);
        ops::add_assign(&mut dx, &other).map_err(Error::within(&self.name))?;
        let pending = Pending {
            nested: vec![down, gate, up],
            ..Pending::default()
        };
        Ok((smallvec![dx], pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let ([of_gate, of_up, of_down], inner) = self.saved(saved)?;
        let (down, [dgate, dup]) = self.split(of_down, inner, dy)?;
        let gate = self.gate.param_only_grad(of_gate, smallvec![dgate])?;
        let up = self.up.param_only_grad(of_up, smallvec![dup])?;
        Ok(Pending {
            nested: vec![down, gate, up],
            ..Pending::default()
        })
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        let count = pending.nested.len();
        let parts: std::result::Result<[Pending; 3], _> = pending.nested.try_into();
        let [down, gate, up] = parts.map_err(|_| foreign(&self.name, 3, count))?;
        self.gate.weight_grad(gate)?;
        self.up.weight_grad(up)?;
        self.down.weight_grad(down)
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        self.gate.params(visit);
        self.up.params(visit);
        self.down.params(visit);
    }
    fn adapt(&mut self, which: &mut dyn FnMut(&str) -> Option<LoraSettings>) -> Result<()> {
        let mut maps = [&mut self.gate, &mut self.up, &mut self.down].into_iter();
        maps.try_for_each(|map| map.adapt(which))
    }
}
