//! Check that predicted bytes are those that a device counts.

use gpipe_tensor::{Device, Tensor, Tensors};

use super::tensors::{
    CheckError, Result, clean, device_of, expect_flow, flows, gradients_like, random,
};
use crate::{Buffers, Cost, Flow, Layer, Ledger, PassContext, Saved, SavedBuffers, TensorSet};

/// Checks that the layer's [`Memory`](crate::Memory) predicts the bytes that are alive after each
/// call and at its peak, for every kind of forward and backward pass, while nothing, everything or any single one of
/// its arguments has another holder.
///
/// # Errors
/// [`CheckError::Bytes`] for the first call that differs, [`CheckError::Flow`] if a pass returns
/// other tensors than are described; and whatever error the layer returns.
pub fn bytes(layer: &mut dyn Layer, cx: &PassContext, inputs: &Tensors) -> Result<()> {
    let device = device_of(layer, inputs)?;
    let cost = layer.cost(&flows(inputs))?;
    clean(layer)?;
    let single = 0..inputs.len().max(cost.outputs.len());
    let mut holds = vec![TensorSet::None, TensorSet::All];
    if single.len() > 1 {
        holds.extend(single.map(|place| TensorSet::Only(vec![place])));
    }
    for way in [Way::Split, Way::Fused, Way::ParamsOnly, Way::None] {
        for (held, recomputes) in holds.iter().flat_map(|held| [(held, false), (held, true)]) {
            let mut run = Run {
                books: Books::open(layer, device.clone()),
                cost: &cost,
                what: format!("({way:?} way back, holding {held:?})"),
                held,
            };
            let left = run.first(layer, cx, inputs, recomputes)?;
            run.rest(layer, inputs, left, way)?;
        }
    }
    clean(layer)
}

/// The kind of backward pass.
#[derive(Clone, Copy, Debug)]
enum Way {
    Split,
    Fused,
    ParamsOnly,
    /// None: an evaluation, or a forward pass that will be recomputed.
    None,
}

/// A device and a ledger that have to agree.
struct Books {
    layer: String,
    device: Device,
    /// Bytes of the parameters and everything else outside of the ledger.
    base: u64,
    ledger: Ledger,
}

impl Books {
    fn open(layer: &dyn Layer, device: Device) -> Self {
        Self {
            layer: layer.name().to_owned(),
            base: device.live_bytes(),
            ledger: Ledger::new(),
            device,
        }
    }

    /// Runs one call on the device and in the ledger and compares the bytes.
    fn call<R, L>(
        &mut self,
        call: &str,
        really: impl FnOnce() -> crate::Result<R>,
        predicted: impl FnOnce(&mut Ledger) -> L,
    ) -> Result<(R, L)> {
        self.device.reset_peak();
        self.ledger.reset_peak();
        let real = really()?;
        let entry = predicted(&mut self.ledger);
        let (live, peak) = (self.device.live_bytes(), self.device.peak_bytes());
        for (moment, counted, predicted) in [
            ("alive after it", live, self.ledger.live()),
            ("at its peak", peak, self.ledger.peak()),
        ] {
            let counted = counted.saturating_sub(self.base);
            if counted != predicted {
                return Err(CheckError::Bytes {
                    layer: self.layer.clone(),
                    call: call.to_owned(),
                    moment,
                    predicted,
                    counted,
                });
            }
        }
        Ok((real, entry))
    }
}

/// What a layer saves.
type Left = (Saved, SavedBuffers);

/// Further claims on tensors.
type Claims = (Vec<Tensor>, Buffers);

/// A layer whose calls are run and replayed once.
struct Run<'a> {
    books: Books,
    cost: &'a Cost,
    what: String,
    /// Which arguments have another holder.
    held: &'a TensorSet,
}

impl Run<'_> {
    /// Further claims on some tensors.
    fn hold(&mut self, tensors: &[Tensor], entries: &[crate::Buffer]) -> Claims {
        let places = (0..tensors.len()).filter(|&place| self.held.contains(place));
        let ledger = &mut self.books.ledger;
        places
            .map(|place| (tensors[place].clone(), ledger.hold(&entries[place])))
            .unzip()
    }

    /// What the first pass saves, and further claims on its inputs.
    fn first(
        &mut self,
        layer: &dyn Layer,
        cx: &PassContext,
        inputs: &Tensors,
        recomputes: bool,
    ) -> Result<(Left, Claims)> {
        let device = &self.books.device;
        let copies = inputs.iter().map(|tensor| Ok(tensor.copy_to(device)?));
        let x = copies.collect::<Result<Tensors>>()?;
        let x_entry = self.books.ledger.alloc_flow(&flows(inputs));
        let claims = self.hold(&x, &x_entry);
        if recomputes {
            let left = self.books.call(
                &format!("recompute {}", self.what),
                || layer.recompute(cx, x),
                |ledger| ledger.recompute(self.cost, x_entry),
            )?;
            return Ok((left, claims));
        }
        let ((y, saved), (y_entry, saved_entry)) = self.books.call(
            &format!("forward {}", self.what),
            || layer.forward(cx, x),
            |ledger| ledger.forward(self.cost, x_entry),
        )?;
        expect_flow(layer, "forward", &self.cost.outputs, &y)?;
        drop(y);
        self.books.ledger.release_all(y_entry);
        Ok(((saved, saved_entry), claims))
    }

    /// The passes after the first.
    fn rest(
        &mut self,
        layer: &mut dyn Layer,
        inputs: &Tensors,
        ((saved, saved_entry), (mut holder, mut holder_entry)): (Left, Claims),
        way: Way,
    ) -> Result<()> {
        let device = self.books.device.clone();
        if let Way::None = way {
            let forget = format!("dropping what was saved {}", self.what);
            self.books.call(
                &forget,
                || {
                    drop(saved);
                    Ok(())
                },
                |ledger| ledger.release_saved(saved_entry),
            )?;
            return Ok(());
        }
        let dy_flow: Vec<Flow> = gradients_like(&self.cost.outputs);
        let dy = dy_flow.iter().map(|flow| random(&device, flow, "gradient"));
        let dy = dy.collect::<Result<Tensors>>()?;
        let dy_entry = self.books.ledger.alloc_flow(&dy_flow);
        let (tensors, entries) = self.hold(&dy, &dy_entry);
        holder.extend(tensors);
        holder_entry.extend(entries);
        let (dx, dx_entry) = self.back(layer, way, (saved, dy), (saved_entry, dy_entry))?;
        if !matches!(way, Way::ParamsOnly) {
            expect_flow(layer, "the way back", &gradients_like(&flows(inputs)), &dx)?;
        }
        let end = format!("dropping everything {}", self.what);
        self.books.call(
            &end,
            || {
                drop((dx, holder));
                Ok(())
            },
            |ledger| {
                ledger.release_all(dx_entry);
                ledger.release_all(holder_entry);
            },
        )?;
        Ok(())
    }

    fn back(
        &mut self,
        layer: &mut dyn Layer,
        way: Way,
        (saved, dy): (Saved, Tensors),
        (saved_entry, dy_entry): (SavedBuffers, Buffers),
    ) -> Result<(Tensors, Buffers)> {
        let (cost, what) = (self.cost, &self.what);
        let books = &mut self.books;
        let (dx, dx_entry, pending, pending_entry) = match way {
            Way::None | Way::Fused => {
                return books.call(
                    &format!("backward {what}"),
                    || layer.backward(saved, dy),
                    |ledger| ledger.backward(cost, saved_entry, dy_entry),
                );
            }
            Way::ParamsOnly => {
                let (pending, entry) = books.call(
                    &format!("param_only_grad {what}"),
                    || layer.param_only_grad(saved, dy),
                    |ledger| ledger.param_only_grad(cost, saved_entry, dy_entry),
                )?;
                (Tensors::new(), Buffers::new(), pending, entry)
            }
            Way::Split => {
                let ((dx, pending), (dx_entry, entry)) = books.call(
                    &format!("input_grad {what}"),
                    || layer.input_grad(saved, dy),
                    |ledger| ledger.input_grad(cost, saved_entry, dy_entry),
                )?;
                (dx, dx_entry, pending, entry)
            }
        };
        books.call(
            &format!("weight_grad {what}"),
            || layer.weight_grad(pending),
            |ledger| ledger.weight_grad(cost, pending_entry),
        )?;
        Ok((dx, dx_entry))
    }
}
