//! The bytes that a [`Residual`](super::Residual) holds, from those of the layers inside it.

use smallvec::smallvec;

use crate::{Buffer, Buffers, Cost, Flow, Ledger, Memory, SavedBuffers};

/// The memory of x + f(x), where the layers of f cost `inner`, of which a recomputation runs the first ones, `recomputed`.
pub(super) fn memory(x: &Flow, inner: &[Cost], recomputed: &[Cost]) -> Memory {
    let (forward_peak, saved_own, replay) = Replay::forward(x, inner);
    let saves_input = replay.ledger.holders(&replay.x) > 1;
    let param_only_grad_peak = Replay::forward(x, inner).2.param_only_grad();
    let backward_peak = Replay::forward(x, inner).2.backward();
    Memory {
        recompute_peak: Some(recompute_peak(x, recomputed)),
        saved_inputs: saves_input.into(),
        saved_own,
        forward_peak,
        param_only_grad_peak,
        backward_peak: Some(backward_peak),
        ..replay.split()
    }
}

/// The peak of the forward pass through these layers without the outputs of the last one.
fn recompute_peak(x: &Flow, recomputed: &[Cost]) -> u64 {
    let mut ledger = Ledger::new();
    let x = ledger.alloc_flow(std::slice::from_ref(x));
    let begin = ledger.live();
    if let Some((last, layers)) = recomputed.split_last() {
        let mut flow = ledger.hold_all(&x);
        for cost in layers {
            let (y, _saved) = ledger.forward(cost, flow);
            flow = y;
        }
        let _saved = ledger.recompute(last, flow);
    }
    ledger.peak().saturating_sub(begin)
}

/// The moment between the passes.
struct Replay<'a> {
    inner: &'a [Cost],
    ledger: Ledger,
    /// A claim of the caller's, so that x outlives the calls.
    x: Buffer,
    /// The claim of the skip connection.
    dy: Buffer,
    saved: Vec<SavedBuffers>,
}

impl<'a> Replay<'a> {
    /// Replays the forward pass: its peak, the bytes saved besides x, and the state after it.
    fn forward(x: &Flow, inner: &'a [Cost]) -> (u64, u64, Self) {
        let mut ledger = Ledger::new();
        let bytes = x.bytes();
        let x = ledger.alloc(bytes);
        let skip = ledger.hold(&x);
        let mut flow: Buffers = smallvec![ledger.hold(&skip)];
        let mut saved = Vec::with_capacity(inner.len());
        for cost in inner {
            let (y, left) = ledger.forward(cost, flow);
            saved.push(left);
            flow = y;
        }
        let y = add(&mut ledger, flow, bytes);
        ledger.release(skip);
        let peak = ledger.peak().saturating_sub(bytes);
        ledger.release_all(y);
        let own = ledger.live().saturating_sub(bytes);
        let dy = ledger.alloc(bytes);
        ledger.reset_peak();
        let replay = Self {
            inner,
            ledger,
            x,
            dy,
            saved,
        };
        (peak, own, replay)
    }

    /// Replays the input gradient and then the weight gradient: their peaks and the pending bytes between.
    fn split(mut self) -> Memory {
        let bytes = self.ledger.bytes(&self.x);
        let begin = self.ledger.live();
        let mut pending = Vec::with_capacity(self.inner.len());
        let mut flow: Buffers = smallvec![self.ledger.hold(&self.dy)];
        for (cost, saved) in self.inner.iter().zip(self.saved).rev() {
            let (dx, left) = self.ledger.input_grad(cost, saved, flow);
            pending.push(left);
            flow = dx;
        }
        let dx = add(&mut self.ledger, flow, bytes);
        let input_grad_peak = self.ledger.peak().saturating_sub(begin);
        self.ledger.release_all(dx);
        let between = self.ledger.live();
        let memory = Memory {
            pending_inputs: (self.ledger.holders(&self.x) > 1).into(),
            pending_grads: (self.ledger.holders(&self.dy) > 1).into(),
            pending_own: between.saturating_sub(bytes).saturating_sub(bytes),
            input_grad_peak,
            ..Memory::default()
        };
        self.ledger.reset_peak();
        for (cost, pending) in self.inner.iter().rev().zip(pending) {
            self.ledger.weight_grad(cost, pending);
        }
        Memory {
            weight_grad_peak: self.ledger.peak().saturating_sub(between),
            ..memory
        }
    }

    /// The peak of the gradient without dX.
    fn param_only_grad(mut self) -> u64 {
        let begin = self.ledger.live();
        let mut flow: Buffers = smallvec![self.ledger.hold(&self.dy)];
        let steps = self.inner.iter().zip(self.saved).enumerate().rev();
        for (i, (cost, saved)) in steps {
            if i == 0 {
                let _pending = self.ledger.param_only_grad(cost, saved, flow);
                break;
            }
            let (dx, _pending) = self.ledger.input_grad(cost, saved, flow);
            flow = dx;
        }
        self.ledger.peak().saturating_sub(begin)
    }

    /// The peak of both gradients in one.
    fn backward(mut self) -> u64 {
        let bytes = self.ledger.bytes(&self.x);
        let begin = self.ledger.live();
        let mut flow: Buffers = smallvec![self.ledger.hold(&self.dy)];
        for (cost, saved) in self.inner.iter().zip(self.saved).rev() {
            flow = self.ledger.backward(cost, saved, flow);
        }
        let _dx = add(&mut self.ledger, flow, bytes);
        self.ledger.peak().saturating_sub(begin)
    }
}

/// The sum with the skip connection, in the buffer of the layers' output if nothing else holds it.
fn add(ledger: &mut Ledger, inner: Buffers, bytes: u64) -> Buffers {
    if inner.iter().all(|buffer| ledger.is_unique(buffer)) {
        return inner;
    }
    let sum = ledger.alloc(bytes);
    ledger.release_all(inner);
    smallvec![sum]
}
