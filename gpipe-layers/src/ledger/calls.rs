//! Replay of the calls of one layer by the memory contract of its cost.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Buffer, Buffers, Ledger, PendingBuffers, SavedBuffers};
use crate::cost::Inside;
use crate::{Cost, Flow, Origin};

/// For each tensor that a call returns, the buffer that it reuses.
type Known = SmallVec<[Option<Buffer>; 2]>;

impl Ledger {
    /// [`Layer::forward`](crate::Layer::forward) of a layer of this cost.
    pub fn forward(&mut self, cost: &Cost, x: Buffers) -> (Buffers, SavedBuffers) {
        if let Some(inside) = &cost.inside {
            return self.forward_inside(inside, x);
        }
        let memory = &cost.memory;
        let gradients = self.gradients(&x);
        let bytes = cost.outputs.iter().map(Flow::bytes);
        let origins = bytes.enumerate().map(|(k, b)| (memory.output(k), b));
        let (known, written_over) = self.reuse(origins, &x);
        self.touch(memory.forward_peak.saturating_sub(written_over));
        let outputs = known.into_iter().zip(&cost.outputs);
        let y: Buffers = outputs
            .map(|(known, flow)| {
                known.unwrap_or_else(|| self.insert(flow.bytes(), flow.dtype.is_float()))
            })
            .collect();
        let mut rest = Buffers::new();
        for (k, buffer) in y.iter().enumerate() {
            if memory.saved_outputs.contains(k) {
                rest.push(self.hold(buffer));
            }
        }
        rest.extend(self.own(memory.saved_own));
        let saved = SavedBuffers {
            inputs: self.save_inputs(cost, x),
            rest,
            gradients,
            nested: Vec::new(),
        };
        (y, saved)
    }

    /// [`Layer::recompute`](crate::Layer::recompute).
    pub fn recompute(&mut self, cost: &Cost, x: Buffers) -> SavedBuffers {
        let of_inside = |inside: &Arc<Inside>| Some((inside.clone(), inside.last_recomputed?));
        if let Some((inside, last)) = cost.inside.as_ref().and_then(of_inside) {
            return self.recompute_inside(&inside, last, x);
        }
        let Some(peak) = cost.memory.recompute_peak.filter(|_| cost.inside.is_none()) else {
            let (y, saved) = self.forward(cost, x);
            self.release_all(y);
            return saved;
        };
        let gradients = self.gradients(&x);
        self.touch(peak);
        let rest = self.own(cost.memory.saved_own).into_iter().collect();
        SavedBuffers {
            inputs: self.save_inputs(cost, x),
            rest,
            gradients,
            nested: Vec::new(),
        }
    }

    /// The inputs that are saved, with their places; the others are released.
    fn save_inputs(&mut self, cost: &Cost, x: Buffers) -> SmallVec<[(usize, Buffer); 2]> {
        let mut inputs = SmallVec::new();
        for (i, buffer) in x.into_iter().enumerate() {
            match cost.memory.saved_inputs.contains(i) {
                true => inputs.push((i, buffer)),
                false => self.release(buffer),
            }
        }
        inputs
    }

    /// [`Layer::input_grad`](crate::Layer::input_grad).
    pub fn input_grad(
        &mut self,
        cost: &Cost,
        saved: SavedBuffers,
        dy: Buffers,
    ) -> (Buffers, PendingBuffers) {
        if let Some(inside) = &cost.inside {
            return self.input_grad_inside(inside, saved, dy);
        }
        let bytes = saved.gradients.clone();
        let (known, written_over) = self.reuse_gradients(cost, &bytes, &dy);
        let peak = cost.memory.input_grad_peak.saturating_sub(written_over);
        let pending = self.leave_pending(cost, saved, dy, peak);
        let dx = self.fill(known, &bytes);
        (dx, pending)
    }

    /// [`Layer::param_only_grad`](crate::Layer::param_only_grad).
    pub fn param_only_grad(
        &mut self,
        cost: &Cost,
        saved: SavedBuffers,
        dy: Buffers,
    ) -> PendingBuffers {
        if let Some(inside) = &cost.inside {
            return self.param_only_grad_inside(inside, saved, dy);
        }
        self.leave_pending(cost, saved, dy, cost.memory.param_only_grad_peak)
    }

    /// [`Layer::weight_grad`](crate::Layer::weight_grad).
    pub fn weight_grad(&mut self, cost: &Cost, pending: PendingBuffers) {
        if let Some(inside) = &cost.inside {
            for (cost, pending) in inside.costs.iter().rev().zip(pending.nested) {
                self.weight_grad(cost, pending);
            }
            return;
        }
        self.touch(cost.memory.weight_grad_peak);
        self.release_all(pending.own);
    }

    /// [`Layer::backward`](crate::Layer::backward).
    pub fn backward(&mut self, cost: &Cost, saved: SavedBuffers, dy: Buffers) -> Buffers {
        if let Some(inside) = &cost.inside {
            return self.backward_inside(inside, saved, dy);
        }
        let Some(peak) = cost.memory.backward_peak else {
            let (dx, pending) = self.input_grad(cost, saved, dy);
            self.weight_grad(cost, pending);
            return dx;
        };
        self.touch(peak);
        let bytes = saved.gradients.clone();
        let (known, _) = self.reuse_gradients(cost, &bytes, &dy);
        self.release_saved(saved);
        self.release_all(dy);
        self.fill(known, &bytes)
    }

    /// A buffer for the bytes that only the layer itself holds, if any.
    fn own(&mut self, bytes: u64) -> Option<Buffer> {
        (bytes > 0).then(|| self.alloc(bytes))
    }

    fn gradients(&self, x: &[Buffer]) -> SmallVec<[u64; 2]> {
        x.iter()
            .map(|buffer| &self.entries[buffer.0])
            .filter(|entry| entry.has_gradient)
            .map(|entry| entry.bytes)
            .collect()
    }

    /// Claims on the buffers of `given` that tensors of these origins and bytes come from, and the
    /// bytes of those that are written over.
    fn reuse(
        &mut self,
        tensors: impl Iterator<Item = (Origin, u64)>,
        given: &[Buffer],
    ) -> (Known, u64) {
        let mut written_over = 0_u64;
        let mut known = Known::new();
        for (origin, bytes) in tensors {
            let source = match origin {
                Origin::New => None,
                Origin::Same(place) => given.get(place),
                Origin::Over(place) => {
                    let source = given.get(place).filter(|buffer| self.is_unique(buffer));
                    if source.is_some() {
                        written_over = written_over.saturating_add(bytes);
                    }
                    source
                }
            };
            known.push(source.map(|buffer| self.hold(buffer)));
        }
        (known, written_over)
    }

    fn reuse_gradients(&mut self, cost: &Cost, bytes: &[u64], dy: &[Buffer]) -> (Known, u64) {
        let bytes = bytes.iter().copied().enumerate();
        let origins = bytes.map(|(j, bytes)| (cost.memory.gradient(j), bytes));
        self.reuse(origins, dy)
    }

    /// The claims, with a new buffer for each missing one.
    fn fill(&mut self, known: Known, bytes: &[u64]) -> Buffers {
        let tensors = known.into_iter().zip(bytes);
        tensors
            .map(|(known, &bytes)| known.unwrap_or_else(|| self.alloc(bytes)))
            .collect()
    }

    /// Makes the pending buffers from the saved ones. Buffers may move from one to the other, so the saved
    /// ones are released first; the call's own peak covers the overlap.
    fn leave_pending(
        &mut self,
        cost: &Cost,
        saved: SavedBuffers,
        dy: Buffers,
        peak: u64,
    ) -> PendingBuffers {
        let memory = &cost.memory;
        self.touch(peak);
        let mut kept = Buffers::new();
        for (i, buffer) in &saved.inputs {
            if memory.pending_inputs.contains(*i) {
                kept.push(self.hold(buffer));
            }
        }
        for (k, buffer) in dy.iter().enumerate() {
            if memory.pending_grads.contains(k) {
                kept.push(self.hold(buffer));
            }
        }
        self.release_saved(saved);
        self.release_all(dy);
        kept.extend(self.own(memory.pending_own));
        PendingBuffers {
            own: kept,
            nested: Vec::new(),
        }
    }
}
