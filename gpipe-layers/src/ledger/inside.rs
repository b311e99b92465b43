//! Replay of the calls of layers inside a layer.

use super::{Buffer, Buffers, Ledger, PendingBuffers, SavedBuffers};
use crate::Flow;
use crate::cost::Inside;
use crate::wiring::{Value, Walker};

impl Ledger {
    pub(super) fn forward_inside(
        &mut self,
        inside: &Inside,
        x: Buffers,
    ) -> (Buffers, SavedBuffers) {
        let mut nested = Vec::with_capacity(inside.costs.len());
        let mut walker = Walk {
            ledger: self,
            inside,
        };
        let y = inside.wiring.forward(&mut walker, x, |walker, layer, x| {
            let (y, saved) = walker.ledger.forward(&inside.costs[layer], x);
            nested.push(saved);
            Ok(y)
        });
        let saved = SavedBuffers {
            nested,
            ..SavedBuffers::default()
        };
        (y.unwrap_or_default(), saved)
    }

    /// The layers up to `last`, one after the other, while their input is held for the layer around them.
    pub(super) fn recompute_inside(
        &mut self,
        inside: &Inside,
        last: usize,
        x: Buffers,
    ) -> SavedBuffers {
        let (before, behind) = inside.costs.split_at(last);
        let mut nested = Vec::with_capacity(inside.costs.len());
        let mut flow = self.hold_all(&x);
        for cost in before {
            let (y, saved) = self.forward(cost, flow);
            nested.push(saved);
            flow = y;
        }
        nested.push(self.recompute(&behind[0], flow));
        self.release_all(x);
        for values in &inside.wiring.nodes[last + 1..] {
            let flows = values
                .iter()
                .map(|value| &inside.flow(value.source)[value.place]);
            let floats = flows.filter(|flow| flow.dtype.is_float());
            nested.push(SavedBuffers {
                gradients: floats.map(Flow::bytes).collect(),
                ..SavedBuffers::default()
            });
        }
        SavedBuffers {
            nested,
            ..SavedBuffers::default()
        }
    }

    fn back_inside(
        &mut self,
        inside: &Inside,
        mut saved: SavedBuffers,
        dy: Buffers,
        needs_dx: bool,
        mut step: impl FnMut(&mut Self, usize, SavedBuffers, Buffers) -> Buffers,
    ) -> Buffers {
        let mut walker = Walk {
            ledger: self,
            inside,
        };
        let floats = inside.floats();
        let dx = inside
            .wiring
            .backward(&mut walker, &floats, dy, needs_dx, |walker, layer, dy| {
                let saved = saved.nested.pop().ok_or(NoSuchValue)?;
                Ok(step(walker.ledger, layer, saved, dy))
            });
        dx.unwrap_or_default()
    }

    pub(super) fn input_grad_inside(
        &mut self,
        inside: &Inside,
        saved: SavedBuffers,
        dy: Buffers,
    ) -> (Buffers, PendingBuffers) {
        let mut nested = Vec::new();
        let dx = self.back_inside(inside, saved, dy, true, |ledger, layer, saved, dy| {
            let (dx, pending) = ledger.input_grad(&inside.costs[layer], saved, dy);
            nested.push(pending);
            dx
        });
        (dx, pending(nested))
    }

    pub(super) fn param_only_grad_inside(
        &mut self,
        inside: &Inside,
        saved: SavedBuffers,
        dy: Buffers,
    ) -> PendingBuffers {
        let (mut nested, floats) = (Vec::new(), inside.floats());
        self.back_inside(inside, saved, dy, false, |ledger, layer, saved, dy| {
            let cost = &inside.costs[layer];
            if !inside.wiring.needs_gradient(layer, &floats) {
                nested.push(ledger.param_only_grad(cost, saved, dy));
                return Buffers::new();
            }
            let (dx, pending) = ledger.input_grad(cost, saved, dy);
            nested.push(pending);
            dx
        });
        pending(nested)
    }

    pub(super) fn backward_inside(
        &mut self,
        inside: &Inside,
        saved: SavedBuffers,
        dy: Buffers,
    ) -> Buffers {
        self.back_inside(inside, saved, dy, true, |ledger, layer, saved, dy| {
            ledger.backward(&inside.costs[layer], saved, dy)
        })
    }
}

/// The pending buffers of layers inside, last to first.
fn pending(nested: Vec<PendingBuffers>) -> PendingBuffers {
    PendingBuffers {
        own: Buffers::new(),
        nested,
    }
}

/// The way through the layers inside a layer, replayed.
struct Walk<'a> {
    ledger: &'a mut Ledger,
    inside: &'a Inside,
}

/// A value that a graph does not have; the cost of such a graph is an error, so that none is replayed.
struct NoSuchValue;

impl Walker for Walk<'_> {
    type Tensor = Buffer;
    type Error = NoSuchValue;

    fn share(&mut self, buffer: &Buffer) -> Buffer {
        self.ledger.hold(buffer)
    }

    fn discard(&mut self, buffer: Buffer) {
        self.ledger.release(buffer);
    }

    fn sum(&mut self, a: Buffer, b: Buffer) -> Result<Buffer, NoSuchValue> {
        let ledger = &mut *self.ledger;
        let (kept, other) = match (ledger.is_unique(&a), ledger.is_unique(&b)) {
            (true, _) => (a, b),
            (false, true) => (b, a),
            (false, false) => {
                let sum = ledger.alloc(ledger.bytes(&a));
                ledger.release(a);
                (sum, b)
            }
        };
        ledger.release(other);
        Ok(kept)
    }

    fn zeros(&mut self, of: Value) -> Result<Buffer, NoSuchValue> {
        let flow = self.inside.flow(of.source).get(of.place);
        Ok(self.ledger.alloc(flow.map_or(0, Flow::bytes)))
    }

    fn missing(&self, _value: Value) -> NoSuchValue {
        NoSuchValue
    }
}
