//! The first value that is not finite: where it came from.
//!
//! A training loop looks at the loss and the gradient norm of each step, which costs nothing. Only
//! when one of them is not finite does it ask [`first_non_finite`], which runs the same batch again
//! with a look at every layer. Values are a function of parameters, batch, seed and step, so the
//! second run meets the very value that spoiled the first, as long as no update came between.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use gpipe_layers::{Layer, try_params};
use gpipe_sched::{ItemOf, Pipeline, PipelineError, Turn};
use gpipe_tensor::{Tensor, Tensors, ops};

use crate::{Error, LayerStage, Result};

/// On which way through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// From inputs to the loss.
    Forward,
    /// From the loss back.
    Backward,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// Which value of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// What the layer hands on. For the loss, that is the loss itself.
    Output,
    /// What it hands back.
    InputGradient,
    /// What it has summed for one of its parameters, named here, up to this micro-batch.
    Gradient(String),
    /// A parameter, named here, that was not finite before the step began.
    Parameter(String),
}

/// The first value of a step that is no finite number.
///
/// First in the order of one stage: micro-batches ascending, each forward and then back. That is
/// the same value for every cut, schedule and policy.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// In which micro-batch.
    pub micro_batch: usize,
    /// The layer's global name; `loss` after the last one.
    pub layer: String,
    /// On which way.
    pub pass: Pass,
    /// Of what.
    pub value: Value,
    /// The value: not a number, or infinite.
    pub found: f32,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            micro_batch,
            layer,
            pass,
            value,
            found,
        } = self;
        write!(f, "micro-batch {micro_batch}, layer {layer}, {pass}: ")?;
        match value {
            Value::Output => write!(f, "the output is {found}"),
            Value::InputGradient => write!(f, "the gradient of the input is {found}"),
            Value::Gradient(name) => write!(f, "the gradient of {name} is {found}"),
            Value::Parameter(name) => write!(f, "{name} was {found} before the step"),
        }
    }
}

/// Runs `batch` again and finds the first value in it that is no finite number. `None` if there is
/// none: each value is finite, and only sums over layers are not.
///
/// `batch` is that of the step whose loss or gradient norm was not finite, and parameters have not
/// changed since. Gradients are those of the batch afterwards, as after any step; what layers with
/// state of their own recorded is discarded, so that nothing of the batch is left in them.
///
/// # Errors
/// If a stage fails.
pub fn first_non_finite<T: Turn<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    batch: Vec<ItemOf<LayerStage, T>>,
) -> std::result::Result<Option<NonFinite>, PipelineError> {
    let last = pipeline.schedule().stages() - 1;
    pipeline.each(move |index, stage| {
        stage.watch(Some(Watch::new(index == last)));
        Ok::<_, Error>(())
    })?;
    let ran = pipeline.step(batch);
    let of_stages = pipeline.gather(|_, stage| Ok::<_, Error>(stage.seen()));
    // The step was run to be looked at: nothing of it may be committed.
    pipeline.each(|_, stage| {
        stage.watch(None);
        stage.discard()
    })?;
    let of_loss = ran?.losses.into_iter().enumerate();
    let of_loss = of_loss.filter(|(_, loss)| !loss.is_finite());
    let of_loss = of_loss.map(|(micro_batch, loss)| NonFinite {
        micro_batch,
        layer: LOSS.into(),
        pass: Pass::Forward,
        value: Value::Output,
        found: loss as f32,
    });
    // Each part tells the first of each micro-batch in its own order. What is bad in a micro-batch
    // goes with it through the loss and back, and into no other, so the first part on the way is
    // where it came from.
    let mut down = of_stages?;
    let mut back: Vec<NonFinite> = Vec::new();
    for stage in down.iter_mut().rev() {
        let (of_back, of_down) = stage
            .drain(..)
            .partition(|found| found.pass == Pass::Backward);
        *stage = of_down;
        back.extend::<Vec<_>>(of_back);
    }
    let path = down.into_iter().flatten().chain(of_loss).chain(back);
    // The least micro-batch; of its values the first, as the minimum of equals is.
    let Some(first) = path.min_by_key(|found| found.micro_batch) else {
        return Ok(None);
    };
    let name = first.layer.clone();
    let culprits = pipeline.gather(move |_, stage| stage.broken_parameter(&name))?;
    Ok(Some(match culprits.into_iter().flatten().next() {
        Some((parameter, found)) => NonFinite {
            value: Value::Parameter(parameter),
            found,
            ..first
        },
        None => first,
    }))
}

/// The name of what comes after the last layer.
const LOSS: &str = "loss";

/// What was found so far in one part of a pipeline: of each micro-batch and pass, the first on the
/// way.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    found: RefCell<BTreeMap<(usize, Pass), (Place, NonFinite)>>,
    /// Sums that were spoiled by an earlier micro-batch, as layer and parameter.
    spoiled: RefCell<HashSet<(String, String)>>,
    /// Whether this is the last stage, to which the loss hands its gradient.
    is_last: bool,
}

/// How far along the way: layers first, then what belongs to each.
type Place = (usize, usize);

impl Watch {
    /// Looks at every value of a stage; `is_last` if the loss follows it.
    pub fn new(is_last: bool) -> Self {
        Self {
            is_last,
            ..Self::default()
        }
    }

    /// Looks at the gradient that comes into the stage: the last stage has it from the loss, the
    /// others from a stage that has looked at it.
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

    /// Everything found, and forgets it.
    pub fn take(&self) -> Vec<NonFinite> {
        self.spoiled.take();
        self.found
            .take()
            .into_values()
            .map(|(_, first)| first)
            .collect()
    }

    /// A look at the layers from `first` on, while they work on a micro-batch.
    pub fn look(&self, micro_batch: usize, first: usize) -> Look<'_> {
        Look {
            watch: self,
            micro_batch,
            first,
        }
    }

    pub fn note(&self, place: Place, new: NonFinite) {
        let mut found = self.found.borrow_mut();
        let key = (new.micro_batch, new.pass);
        if found.get(&key).is_none_or(|(known, _)| place < *known) {
            found.insert(key, (place, new));
        }
    }
}

/// One run of layers at work on one micro-batch, under watch.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    watch: &'a Watch,
    micro_batch: usize,
    /// Where in the stage the run begins.
    first: usize,
}

impl Look<'_> {
    /// Looks at what the layer of this index in the run hands on.
    pub fn outputs(self, index: usize, layer: &dyn Layer, y: &[Tensor]) -> Result<()> {
        let place = (self.first + index, 0);
        self.tensors(place, layer, Pass::Forward, Value::Output, y)
    }

    /// Looks at what the layer hands back.
    pub fn input_gradients(self, index: usize, layer: &dyn Layer, dx: &[Tensor]) -> Result<()> {
        let place = (usize::MAX - self.first - index, 0);
        self.tensors(place, layer, Pass::Backward, Value::InputGradient, dx)
    }

    /// Looks at what the layer has summed up to this micro-batch.
    pub fn gradients(self, index: usize, layer: &mut dyn Layer) -> Result<()> {
        let name = layer.name().to_owned();
        let mut sums = Vec::new();
        try_params(layer, |param| {
            sums.push((param.name.clone(), param.grad()?.clone()));
            Ok(())
        })?;
        for (order, (parameter, sum)) in sums.into_iter().enumerate() {
            let Some(found) = first_in(&sum)? else {
                continue;
            };
            // Once spoiled, a sum stays so.
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
        place: Place,
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

    fn note(self, place: Place, layer: &str, pass: Pass, value: Value, found: f32) {
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

/// The first element that is no finite number.
pub(crate) fn first_in(tensor: &Tensor) -> Result<Option<f32>> {
    if ops::all_finite(tensor)? {
        return Ok(None);
    }
    let mut elements = tensor.to_f32s()?.into_iter();
    Ok(elements.find(|element| !element.is_finite()))
}
