//! Replay of layer calls without tensors: the holders of each buffer, and the peak of live bytes.

mod inside;

use smallvec::SmallVec;

use crate::{Cost, Flow, Origin};

/// Counts live bytes as a device does: every buffer has holders and is freed with the last.
///
/// The methods named after those of [`Layer`](crate::Layer) replay one call each, from the layer's
/// [`Cost`] alone, under the memory contract. Replaying the calls of a run before it begins
/// predicts its live and peak bytes exactly:
///
/// ```
/// use gpipe_layers::layers::{Activation, Function};
/// use gpipe_layers::{Flow, Gelu, Layer, Ledger};
///
/// let x = [Flow::f32([8, 32])];
/// let bytes = x[0].bytes();
/// let gelu = Activation::new("gelu", Function::Gelu(Gelu::Tanh)).cost(&x)?;
///
/// let mut ledger = Ledger::new();
/// let x = ledger.alloc_flow(&x);
/// let (y, saved) = ledger.forward(&gelu, x);
/// assert_eq!(ledger.live(), 2 * bytes); // y, and x for the backward pass
/// let dx = ledger.backward(&gelu, saved, y); // the loss wrote dy over y
/// assert_eq!(ledger.live(), bytes);
/// assert_eq!(ledger.peak(), 3 * bytes); // x, dy, dx
/// ledger.release_all(dx);
/// # Ok::<_, gpipe_layers::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    /// Indices in `entries` of freed buffers.
    free: Vec<usize>,
    live: u64,
    peak: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    /// Whether it is a flow of floats, whose gradient is as large.
    has_gradient: bool,
    holders: usize,
    /// The buffer of which it is a part; its bytes are counted there.
    whole: Option<Buffer>,
}

/// One holder's claim on a buffer of a [`Ledger`]. Release it with [`Ledger::release`]; a claim that
/// is dropped instead keeps its buffer alive.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Buffer(usize);

/// The buffers of a flow, one per tensor.
pub type Buffers = SmallVec<[Buffer; 2]>;

/// For each tensor that a call returns, the buffer that it reuses.
type Known = SmallVec<[Option<Buffer>; 2]>;

/// The buffers of a [`Saved`](crate::Saved).
#[derive(Debug)]
#[must_use]
pub struct SavedBuffers {
    /// Inputs, with their places.
    inputs: SmallVec<[(usize, Buffer); 2]>,
    rest: Buffers,
    /// Bytes of each tensor of dX.
    gradients: SmallVec<[u64; 2]>,
    /// Those of the layers inside, first to last.
    nested: Vec<SavedBuffers>,
}

/// The buffers of a [`Pending`](crate::Pending).
#[derive(Debug)]
#[must_use]
pub struct PendingBuffers {
    own: Buffers,
    /// Those of the layers inside, last to first.
    nested: Vec<PendingBuffers>,
}

impl Ledger {
    /// A ledger without buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Live bytes.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Peak of the live bytes.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Resets the peak to the live bytes.
    pub fn reset_peak(&mut self) {
        self.peak = self.live;
    }

    /// A new buffer, with one holder.
    pub fn alloc(&mut self, bytes: u64) -> Buffer {
        self.insert(bytes, true)
    }

    /// New buffers for the tensors of a flow.
    pub fn alloc_flow(&mut self, flow: &[Flow]) -> Buffers {
        flow.iter()
            .map(|f| self.insert(f.bytes(), f.dtype.is_float()))
            .collect()
    }

    /// A buffer without bytes in place of a tensor that is handed on ([`Layer::handed_on`](crate::Layer::handed_on))
    /// and was not kept.
    pub fn stand_in(&mut self, flow: &Flow) -> Buffer {
        self.insert(0, flow.dtype.is_float())
    }

    /// A part of a buffer, such as some rows of a batch: it has no bytes of its own, holds the whole, and is never
    /// written over.
    pub fn view(&mut self, whole: &Buffer, flow: &Flow) -> Buffer {
        let whole = self.hold(whole);
        let view = self.insert(0, flow.dtype.is_float());
        let entry = &mut self.entries[view.0];
        entry.bytes = flow.bytes();
        entry.whole = Some(whole);
        view
    }

    /// Another claim on the same buffer.
    pub fn hold(&mut self, buffer: &Buffer) -> Buffer {
        self.entries[buffer.0].holders += 1;
        Buffer(buffer.0)
    }

    /// Another claim on each buffer of a flow: what cloning its tensors does.
    pub fn hold_all(&mut self, buffers: &[Buffer]) -> Buffers {
        buffers.iter().map(|buffer| self.hold(buffer)).collect()
    }

    /// Releases a claim; the buffer is freed with the last.
    pub fn release(&mut self, buffer: Buffer) {
        let entry = &mut self.entries[buffer.0];
        entry.holders -= 1;
        if entry.holders > 0 {
            return;
        }
        self.free.push(buffer.0);
        match entry.whole.take() {
            Some(whole) => self.release(whole),
            None => self.live = self.live.saturating_sub(entry.bytes),
        }
    }

    /// Releases the claims on a flow.
    pub fn release_all(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        buffers.into_iter().for_each(|buffer| self.release(buffer));
    }

    /// Releases the saved buffers of a forward pass without gradients.
    pub fn release_saved(&mut self, saved: SavedBuffers) {
        self.release_all(saved.inputs.into_iter().map(|(_, buffer)| buffer));
        self.release_all(saved.rest);
        for nested in saved.nested {
            self.release_saved(nested);
        }
    }

    /// Whether the buffer has a single holder, so that it may be changed in place.
    pub fn is_unique(&self, buffer: &Buffer) -> bool {
        let entry = &self.entries[buffer.0];
        entry.holders == 1 && entry.whole.is_none()
    }

    /// Number of holders of the buffer.
    pub fn holders(&self, buffer: &Buffer) -> usize {
        self.entries[buffer.0].holders
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, buffer: &Buffer) -> u64 {
        self.entries[buffer.0].bytes
    }

    /// Raises the peak to the live bytes plus these.
    pub fn touch(&mut self, bytes: u64) {
        self.peak = self.peak.max(self.live.saturating_add(bytes));
    }

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
        let mut inputs = SmallVec::new();
        for (i, buffer) in x.into_iter().enumerate() {
            match memory.saved_inputs.contains(i) {
                true => inputs.push((i, buffer)),
                false => self.release(buffer),
            }
        }
        let saved = SavedBuffers {
            inputs,
            rest,
            gradients,
            nested: Vec::new(),
        };
        (y, saved)
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

    fn insert(&mut self, bytes: u64, has_gradient: bool) -> Buffer {
        self.live = self.live.saturating_add(bytes);
        self.peak = self.peak.max(self.live);
        let entry = Entry {
            bytes,
            has_gradient,
            holders: 1,
            whole: None,
        };
        match self.free.pop() {
            Some(place) => {
                self.entries[place] = entry;
                Buffer(place)
            }
            None => {
                self.entries.push(entry);
                Buffer(self.entries.len() - 1)
            }
        }
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

impl PendingBuffers {
    /// All claims.
    pub fn into_buffers(self) -> Buffers {
        let nested = self.nested.into_iter().flat_map(Self::into_buffers);
        self.own.into_iter().chain(nested).collect()
    }
}
