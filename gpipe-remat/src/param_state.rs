//! Reads the state of every parameter from a running pipeline and writes it back, by global name: the
//! content of a checkpoint, independent of the cut.
//!
//! A tied parameter has the name of its owner; putting values back ends with [`share_ties`].

use std::collections::HashMap;

use gpipe_sched::{LossStage, Pipeline, PipelineError, Reader, Writer};
use gpipe_tensor::safetensors::Stored;
use gpipe_tensor::{DType, Shape, Tensor, Tensors, ops};

use crate::stage::value_watch::first_in;
use crate::wire::{Flows, Wire, WireCodec};
use crate::{Error, LayerStage, Result, share_ties};

/// The value and optimizer state of one parameter, under its owner's name.
#[derive(Clone, Debug)]
pub struct ParamState<T = Tensor> {
    /// The global name.
    pub name: String,
    /// The value, as exactly as the optimizer knows it.
    pub value: T,
    /// The optimizer's state tensors, in its order; none for a statistic.
    pub state: Vec<T>,
}

impl From<ParamState> for ParamState<Stored> {
    fn from(param: ParamState) -> Self {
        let ParamState { name, value, state } = param;
        Self {
            name,
            value: value.into(),
            state: state.into_iter().map(Stored::from).collect(),
        }
    }
}

/// What replicas have of parameters with their places in their stages, in model order.
pub(crate) fn in_model_order<R>(replicas: Vec<Vec<Vec<(usize, R)>>>) -> Vec<R> {
    let stages = replicas
        .into_iter()
        .flat_map(|of| of.into_iter().enumerate());
    let places = stages.flat_map(|(stage, of_stage)| {
        let of_stage = of_stage.into_iter();
        of_stage.map(move |(place, one)| ((stage, place), one))
    });
    let mut all: Vec<_> = places.collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, one)| one).collect()
}

/// A parameter whose value or optimizer state is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFiniteState {
    /// The global name.
    pub name: String,
    /// Which tensor of the optimizer's state, in its order; `None` for the value.
    pub state: Option<usize>,
    /// NaN or infinite.
    pub found: f32,
}

impl Wire for NonFiniteState {
    fn put(self, out: &mut Writer, flows: &Flows) -> std::result::Result<(), String> {
        (self.name, (self.state, self.found.to_bits())).put(out, flows)
    }

    fn get(from: &mut Reader, flows: &Flows) -> std::result::Result<Self, String> {
        let (name, (state, found)) = Wire::get(from, flows)?;
        let found = f32::from_bits(found);
        Ok(Self { name, state, found })
    }
}

/// Looks for a value or an optimizer state that is not finite; the first in model order. An update can
/// make one of finite gradients, and [`optimizer_step`](crate::optimizer_step) looks at gradients only.
///
/// It costs a pass over the parameters and their states, on their devices; elements are searched only
/// where a norm is not finite.
///
/// # Errors
/// If a stage fails.
pub fn first_non_finite_state<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
) -> std::result::Result<Option<NonFiniteState>, PipelineError> {
    let codec = WireCodec::of(pipeline);
    let of_stages = pipeline.gather_replicas(&codec, |_, stage| {
        let _busy = stage.device().clone().cpu_slot();
        let (mut names, mut tensors): (Vec<_>, Vec<Tensor>) = Default::default();
        let mut place = 0;
        stage.try_owned(|param, _, is_own| {
            place += 1;
            if !param.tied && is_own {
                names.push((place, param.name.clone(), None));
                tensors.push(param.exact()?.clone());
                let states = 0..param.state.len();
                names.extend(states.map(|state| (place, param.name.clone(), Some(state))));
                tensors.extend(param.state.iter().cloned());
            }
            Ok(())
        })?;
        // In doubles, in which no sum of squares of single-precision numbers overflows.
        let squares = ops::sums_of_squares(&tensors.iter().collect::<Vec<_>>())?;
        for (((place, name, state), tensor), square) in names.into_iter().zip(&tensors).zip(squares)
        {
            if !square.is_finite()
                && let Some(found) = first_in(tensor)?
            {
                return Ok(vec![(place, NonFiniteState { name, state, found })]);
            }
        }
        Ok::<_, Error>(Vec::new())
    })?;
    Ok(in_model_order(of_stages).into_iter().next())
}

/// Sets every parameter, tied places included, to the value of its name; one that is not in memory is fetched by the
/// stage that has the parameter, and let go. Nothing is changed unless names and shapes are those of the model.
///
/// # Errors
/// [`Error::Parameter`] for the first name that is missing, unknown or a duplicate, or whose value
/// has another shape or element type.
pub fn put_values<T: LossStage<Tensors> + 'static, V: Into<Stored>>(
    pipeline: &mut Pipeline<LayerStage, T>,
    values: Vec<(String, V)>,
) -> Result<()> {
    let values = values.into_iter();
    let values = values.map(|(name, value)| (name, vec![value.into()]));
    let values = by_name(pipeline, values.collect(), |_| 1, "value")?;
    pipeline.each(move |_, stage| {
        stage.try_params(|param| {
            if let (false, Some([value])) = (param.tied, values.get(&param.name).map(Vec::as_slice))
            {
                param.set_value(&value.get()?)?;
            }
            Ok(())
        })
    })?;
    Ok(share_ties(pipeline)?)
}

/// Sets the optimizer state of every parameter, by its owner's name; fetched as by [`put_values`]. Nothing is changed
/// unless names, shapes and the number of tensors are those of the optimizer.
///
/// # Errors
/// As [`put_values`], and if a parameter's state has more or fewer tensors.
pub fn put_states<T: LossStage<Tensors> + 'static, V: Into<Stored>>(
    pipeline: &mut Pipeline<LayerStage, T>,
    states: Vec<(String, Vec<V>)>,
) -> Result<()> {
    let stored = |of_param: Vec<V>| of_param.into_iter().map(V::into).collect();
    let states = states.into_iter();
    let states = states.map(|(name, of_param)| (name, stored(of_param)));
    let states = by_name(
        pipeline,
        states.collect(),
        |owner| owner.states,
        "optimizer state",
    )?;
    pipeline
        .each(move |_, stage| {
            stage.try_params(|param| {
                if let (false, Some(state)) = (param.tied, states.get(&param.name)) {
                    for (old, new) in param.state.iter_mut().zip(state) {
                        old.copy_from(&new.get()?)?;
                    }
                }
                Ok(())
            })
        })
        .map_err(Error::from)
}

/// The owner of a parameter in a pipeline.
struct Owner {
    name: String,
    shape: Shape,
    states: usize,
}

/// The tensors by name; an error unless they are exactly those of the pipeline's owners.
fn by_name<T: LossStage<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    tensors: Vec<(String, Vec<Stored>)>,
    count: impl Fn(&Owner) -> usize,
    what: &str,
) -> Result<HashMap<String, Vec<Stored>>> {
    let codec = WireCodec::of(pipeline);
    let replica = pipeline.replica();
    let owners = pipeline.gather_replicas(&codec, move |_, stage| {
        let (mut owners, mut place) = (Vec::new(), 0);
        stage.try_owned(|param, owner, _| {
            if !param.tied && owner.unwrap_or(0) == replica {
                let extents = param.shape.dims().to_vec();
                let owner = (param.name.clone(), (extents, param.state.len()));
                owners.push((place, owner));
            }
            place += 1;
            Ok(())
        })?;
        Ok::<_, Error>(owners)
    })?;
    let owner = |(name, (extents, states)): (String, (Vec<usize>, usize))| Owner {
        name,
        shape: Shape::from(extents.as_slice()),
        states,
    };
    let owners = in_model_order(owners).into_iter();
    let owners: Vec<Owner> = owners.map(owner).collect();
    let fault = |name: &str, message: String| Error::Parameter {
        name: name.to_owned(),
        message,
    };
    let mut named = HashMap::with_capacity(tensors.len());
    for (name, tensors) in tensors {
        if named.contains_key(&name) {
            return Err(fault(&name, format!("its {what} is there twice")));
        }
        named.insert(name, tensors);
    }
    let mut known = 0;
    for owner in &owners {
        let Some(tensors) = named.get(&owner.name) else {
            return Err(fault(&owner.name, format!("its {what} is missing")));
        };
        known += 1;
        if tensors.len() != count(owner) {
            let message = format!(
                "its {what} is {} tensors, not {}",
                tensors.len(),
                count(owner)
            );
            return Err(fault(&owner.name, message));
        }
        for tensor in tensors {
            if *tensor.shape() != owner.shape || tensor.dtype() != DType::F32 {
                let message = format!(
                    "its {what} is {} of shape {}, not {} of shape {}",
                    tensor.dtype(),
                    tensor.shape(),
                    DType::F32,
                    owner.shape
                );
                return Err(fault(&owner.name, message));
            }
        }
    }
    if known < named.len() {
        let known_names: Vec<&str> = owners.iter().map(|p| p.name.as_str()).collect();
        let mut strange: Vec<&String> = named.keys().collect();
        strange.retain(|name| !known_names.contains(&name.as_str()));
        strange.sort();
        if let Some(name) = strange.first() {
            return Err(fault(name, "the model has no such parameter".into()));
        }
    }
    Ok(named)
}
