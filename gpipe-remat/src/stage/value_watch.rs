//! Checks of every value of a step that is run again to find one that is not finite.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

use gpipe_layers::{Layer, try_params};
use gpipe_tensor::{Tensor, ops};

use crate::{Error, NonFinite, Pass, Result, Value};

/// The name of the stage after the last layer.
pub(crate) const LOSS: &str = "loss";

/// Findings in one part of a pipeline: the first non-finite value of each micro-batch and pass.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    found: RefCell<BTreeMap<(usize, Pass), (Position, NonFinite)>>,
    /// Gradient sums that an earlier micro-batch made non-finite, as layer and parameter.
    spoiled: RefCell<HashSet<(String, String)>>,
    /// Whether this is the last stage, which receives the gradient of the loss.
    is_last: bool,
}

/// Position in the order of a pass: by layer, then by kind of value.
type Position = (usize, usize);

impl Watch {
    /// Checks of every value of a stage; `is_last` if the loss follows it.
    pub fn new(is_last: bool) -> Self {
        Self {
            is_last,
            ..Self::default()
        }
    }

    /// Checks the incoming gradient of the last stage, which comes from the loss. Those of other stages
    /// were checked by the stage that computed them.
    pub fn gradient_of_loss(&self, micro_batch: usize, dy: &[Tensor]) -> Result<()> {
        for tensor in dy.iter().filter(|_| self.is_last) {
            if let Some(found) = first_in(tensor)? {
                let new = NonFinite {
                    micro_batch,
                    layer: LOSS.into(),
                    pass: Pass::Backward,
                    value: Value::InputGradient,
                    found,
                };
                self.note((0, 0), new);
                break;
            }
        }
        Ok(())
    }

    /// Takes all findings.
    pub fn take(&self) -> Vec<NonFinite> {
        self.spoiled.take();
        self.found
            .take()
            .into_values()
            .map(|(_, first)| first)
            .collect()
    }

    /// The check of the layers from `first` on while they process a micro-batch.
    pub fn look(&self, micro_batch: usize, first: usize) -> Look<'_> {
        Look {
            watch: self,
            micro_batch,
            first,
        }
    }

    pub fn note(&self, place: Position, new: NonFinite) {
        let mut found = self.found.borrow_mut();
        let key = (new.micro_batch, new.pass);
        if found.get(&key).is_none_or(|(known, _)| place < *known) {
            found.insert(key, (place, new));
        }
    }
}

/// The check of one run of layers on one micro-batch.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    watch: &'a Watch,
    micro_batch: usize,
    /// Index in the stage of the run's first layer.
    first: usize,
}

impl Look<'_> {
    /// The check of the layers of this run from the one of this index on.
    pub fn behind(self, index: usize) -> Self {
        Self {
            first: self.first + index,
            ..self
        }
    }

    /// Checks the outputs of the layer of this index in the run.
    pub fn outputs(self, index: usize, layer: &dyn Layer, y: &[Tensor]) -> Result<()> {
        let place = (self.first + index, 0);
        self.tensors(place, layer, Pass::Forward, Value::Output, y)
    }

    /// Checks the input gradients of the layer.
    pub fn input_gradients(self, index: usize, layer: &dyn Layer, dx: &[Tensor]) -> Result<()> {
        let place = (usize::MAX - self.first - index, 0);
        self.tensors(place, layer, Pass::Backward, Value::InputGradient, dx)
    }

    /// Checks the layer's gradients, summed up to this micro-batch.
    pub fn gradients(self, index: usize, layer: &mut dyn Layer) -> Result<()> {
        let name = layer.name().to_owned();
        let mut sums = Vec::new();
        try_params(layer, |param| {
            if !param.frozen {
                sums.push((param.name.clone(), param.grad()?.clone()));
            }
            Ok::<_, Error>(())
        })?;
        for (order, (parameter, sum)) in sums.into_iter().enumerate() {
            let Some(found) = first_in(&sum)? else {
                continue;
            };
            // A sum that was non-finite before is not reported again.
            let key = (name.clone(), parameter.clone());
            if self.watch.spoiled.borrow_mut().insert(key) {
                let place = (usize::MAX - self.first - index, 1 + order);
                self.note(
                    place,
                    &name,
                    Pass::Backward,
                    Value::Gradient(parameter),
                    found,
                );
            }
        }
        Ok(())
    }

    fn tensors(
        self,
        place: Position,
        layer: &dyn Layer,
        pass: Pass,
        value: Value,
        tensors: &[Tensor],
    ) -> Result<()> {
        for tensor in tensors.iter().filter(|tensor| tensor.dtype().is_float()) {
            if let Some(found) = first_in(tensor)? {
                self.note(place, layer.name(), pass, value, found);
                break;
            }
        }
        Ok(())
    }

    fn note(self, place: Position, layer: &str, pass: Pass, value: Value, found: f32) {
        let new = NonFinite {
            micro_batch: self.micro_batch,
            layer: layer.to_owned(),
            pass,
            value,
            found,
        };
        self.watch.note(place, new);
    }
}

/// The first element that is not finite.
pub(crate) fn first_in(tensor: &Tensor) -> Result<Option<f32>> {
    if ops::all_finite(tensor)? {
        return Ok(None);
    }
    let mut elements = tensor.to_f32s()?.into_iter();
    Ok(elements.find(|element| !element.is_finite()))
}
