//! The ways of tensors, and of their shapes, through a [`Graph`](super::Graph).

use gpipe_tensor::{DType, Device, Shape, Tensor, Tensors};
use smallvec::SmallVec;

use super::flow::{foreign, unexpected};
use crate::sum::sum;
use crate::wiring::{Value, Walker, Wiring};
use crate::{Error, Flow, Result, Saved};

/// A tensor of the forward pass, as far as its gradient depends on it.
pub(super) struct Known {
    shape: Shape,
    dtype: DType,
    device: Device,
}

impl Known {
    pub(super) fn of(tensor: &Tensor) -> Self {
        Self {
            shape: tensor.shape().clone(),
            dtype: tensor.dtype(),
            device: tensor.device().clone(),
        }
    }
}

/// The kinds of the tensors of each source.
pub(super) type KnownTensors = Vec<SmallVec<[Known; 2]>>;

/// Backward through a graph of this name; `step` handles one layer, whose flag says whether its input gradient is
/// needed.
pub(super) fn back(
    name: &str,
    wiring: &Wiring,
    mut saved: Saved,
    dy: Tensors,
    needs_dx: bool,
    mut step: impl FnMut(usize, bool, Saved, Tensors) -> Result<Tensors>,
) -> Result<Tensors> {
    let known: KnownTensors = saved.take_value(name)?;
    if saved.nested.len() != wiring.nodes.len() {
        return Err(foreign(name, wiring.nodes.len(), saved.nested.len()));
    }
    let floats = known.iter().map(|source| source.iter());
    let floats: Vec<SmallVec<[bool; 2]>> = floats
        .map(|source| source.map(|one| one.dtype.is_float()).collect())
        .collect();
    let outputs = wiring.outputs.iter();
    let expected = outputs.filter(|value| floats[value.source][value.place]);
    let expected = expected.count();
    if dy.len() != expected {
        return Err(unexpected(name, format!("{expected} gradients"), dy.len()));
    }
    let mut walk = OfTensors {
        name,
        known: &known,
    };
    wiring.backward(&mut walk, &floats, dy, needs_dx, |_, node, dy| {
        let own = saved.nested.pop().ok_or_else(|| foreign(name, 1, 0))?;
        let needs_dx = needs_dx || wiring.needs_gradient(node, &floats);
        step(node, needs_dx, own, dy)
    })
}

/// The ways of tensors through a graph of this name.
pub(super) struct OfTensors<'a> {
    pub name: &'a str,
    /// Those of the forward pass; empty before it.
    pub known: &'a [SmallVec<[Known; 2]>],
}

impl Walker for OfTensors<'_> {
    type Tensor = Tensor;
    type Error = Error;

    fn share(&mut self, tensor: &Tensor) -> Tensor {
        tensor.clone()
    }

    fn discard(&mut self, _tensor: Tensor) {}

    fn sum(&mut self, a: Tensor, b: Tensor) -> Result<Tensor> {
        let (a, b) = match !a.is_unique() && b.is_unique() {
            true => (b, a),
            false => (a, b),
        };
        sum(a, &b).map_err(Error::within(self.name))
    }

    fn zeros(&mut self, of: Value) -> Result<Tensor> {
        let known = &self.known[of.source][of.place];
        let zeros = Tensor::zeros_of(&known.device, known.shape.clone(), known.dtype);
        zeros.map_err(Error::within(self.name))
    }

    fn missing(&self, value: Value) -> Error {
        missing(self.name, value)
    }
}

/// The way of shapes and types through a graph of this name.
pub(super) struct OfFlows<'a>(pub &'a str);

impl Walker for OfFlows<'_> {
    type Tensor = Flow;
    type Error = Error;

    fn share(&mut self, flow: &Flow) -> Flow {
        flow.clone()
    }

    fn discard(&mut self, _flow: Flow) {}

    fn sum(&mut self, a: Flow, _b: Flow) -> Result<Flow> {
        Ok(a)
    }

    fn zeros(&mut self, of: Value) -> Result<Flow> {
        Err(missing(self.0, of))
    }

    fn missing(&self, value: Value) -> Error {
        missing(self.0, value)
    }
}

fn missing(name: &str, value: Value) -> Error {
    let of = match value.source {
        0 => "input".to_owned(),
        layer => format!("output of its layer {}", layer - 1),
    };
    let place = value.place;
    Error::Config(format!(
        "{name} has no {of} at place {place}: places count from 0"
    ))
}
