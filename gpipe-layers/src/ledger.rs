//! Replay of layer calls without tensors: the holders of each buffer, and the peak of live bytes.

mod calls;
mod inside;

use smallvec::SmallVec;

use crate::Flow;

/// Counts live bytes as a device does: every buffer has holders and is freed with the last.
///
/// The methods named after those of [`Layer`](crate::Layer) replay one call each, from the layer's
/// [`Cost`](crate::Cost) alone, under the memory contract. Replaying the calls of a run before it begins
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

/// The buffers of a [`Saved`](crate::Saved).
#[derive(Debug, Default)]
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
}

impl PendingBuffers {
    /// All claims.
    pub fn into_buffers(self) -> Buffers {
        let nested = self.nested.into_iter().flat_map(Self::into_buffers);
        self.own.into_iter().chain(nested).collect()
    }
}
