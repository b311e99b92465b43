//! The layers, input and optimizer of a configuration.

use std::ops::Range;

use gpipe_data::{DIGITS, SIDE};
use gpipe_layers::{
    Flow, Kind, Layer, Optimizer, OptimizerKind, compute_in, freeze, round_to_tf32,
};
use gpipe_remat::ModelCosts;

use crate::config::{OptimizerName, TrainConfig};
use crate::error::{Error, Result};
use crate::precision;

/// The layers of the configured model.
///
/// # Errors
/// [`Error::Input`] if its sizes do not fit together; [`Error::Invalid`] for a precision that its devices
/// do not share.
pub fn layers(config: &TrainConfig) -> Result<Vec<Box<dyn Layer>>> {
    let stored = precision::stored(config)?;
    let mut layers = config.model.config().layers().map_err(Error::input)?;
    adapt(&mut layers, config)?;
    for layer in &mut layers {
        compute_in(layer.as_mut(), stored);
        if config.run.tf32 && precision::on_gpus(config) {
            round_to_tf32(layer.as_mut());
        }
    }
    freeze_parameters(&mut layers, config)?;
    Ok(layers)
}

/// Names of an error about parameters that do not exist.
const EXAMPLES: usize = 4;

/// Adds the adapters of `[lora]`, and freezes everything else.
fn adapt(layers: &mut [Box<dyn Layer>], config: &TrainConfig) -> Result<()> {
    let Some(settings) = config.lora.settings() else {
        return Ok(());
    };
    let targets = &config.lora.targets;
    let (mut others, mut adapted) = (Vec::new(), 0);
    for layer in layers {
        let added = layer.adapt(&mut |name| match targets.matches(name) {
            true => {
                adapted += 1;
                Some(settings)
            }
            false => {
                others.push(name.to_owned());
                None
            }
        });
        added.map_err(Error::input)?;
        freeze(layer.as_mut(), |param| !gpipe_hf::is_adapter(&param.name));
    }
    if let (Some(folder), 0) = (config.lora.folder(), adapted) {
        return Err(Error::invalid(format!(
            "`lora.adapter = {}`: adapts layers that the model {} lacks: name adapters for this model",
            folder.display(),
            config.model.name
        )));
    }
    match (adapted, others.is_empty()) {
        (0, true) => Err(Error::invalid(format!(
            "the model {} has no linear layers that can be adapted: leave `lora.rank` out",
            config.model.name
        ))),
        (0, false) => Err(Error::invalid(format!(
            "`lora.targets = {targets}` matches no linear layer: use a pattern that is found in names such as {}",
            different(&others).join(", ")
        ))),
        _ => Ok(()),
    }
}

/// The first of the names of some ends, such as `c_attn`.
fn different(names: &[String]) -> Vec<&str> {
    fn end(name: &str) -> Option<&str> {
        name.rsplit('.').next()
    }
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if found.len() < EXAMPLES && found.iter().all(|other| end(other) != end(name)) {
            found.push(name);
        }
    }
    found
}

/// Freezes the parameters that `optimizer.freeze` names.
fn freeze_parameters(layers: &mut [Box<dyn Layer>], config: &TrainConfig) -> Result<()> {
    let pattern = &config.optimizer.freeze;
    if pattern.is_none() {
        return Ok(());
    }
    let mut others = Vec::new();
    let mut frozen = 0;
    for layer in layers {
        layer.params(&mut |param| {
            param.frozen |= pattern.matches(&param.name);
            match param.kind {
                _ if param.frozen => frozen += 1,
                // It follows the data, whatever is trained.
                Kind::Statistic => {}
                Kind::Matrix | Kind::Vector => others.push(param.name.clone()),
            }
        });
    }
    if others.is_empty() {
        return Err(Error::invalid(format!(
            "`optimizer.freeze = {pattern}` matches every parameter, so that nothing is trained: use a \
             pattern that matches fewer"
        )));
    }
    if frozen == 0 {
        // Some of all places of the model.
        let step = others.len().div_ceil(EXAMPLES);
        let some: Vec<String> = others.into_iter().step_by(step).collect();
        return Err(Error::invalid(format!(
            "`optimizer.freeze = {pattern}` matches no parameter: use a pattern that is found in names such \
             as {}",
            some.join(", ")
        )));
    }
    Ok(())
}

/// The input of the first layer, as a function of the number of samples.
pub fn input(config: &TrainConfig) -> impl Fn(usize) -> Vec<Flow> + use<> {
    let (model, size) = (config.model.config(), config.sample_size());
    move |samples| model.input(samples, size)
}

/// The error of layers that do not fit each other: for images with the nearest size that fits, if one does.
pub(crate) fn misfit(
    config: &TrainConfig,
    layers: &[Box<dyn Layer>],
    samples: &[Range<usize>],
    error: gpipe_remat::Error,
) -> Error {
    /// Networks halve images a few times.
    const FARTHEST: usize = 64;
    let (model, size) = (config.model.config(), config.sample_size());
    let fits = |size: &usize| {
        let input = |samples| model.input(samples, *size);
        ModelCosts::new(layers, samples, input).is_ok()
    };
    let near = (1..=FARTHEST).flat_map(|off| [size + off, size.saturating_sub(off)]);
    let near: Vec<usize> = match (config.data.image_size, config.data.source.as_str()) {
        (None, _) => Vec::new(),
        (Some(_), DIGITS) => vec![SIDE],
        (Some(_), _) => near.filter(|&size| size > 0).collect(),
    };
    match near.into_iter().find(fits) {
        Some(size) => Error::invalid(format!("{error}: `data.image_size = {size}` fits")),
        None => Error::input(error),
    }
}

/// The configured optimizer.
pub fn optimizer(config: &TrainConfig) -> Optimizer {
    let optimizer = &config.optimizer;
    let (eps, momentum) = (optimizer.eps.get(), optimizer.momentum.get());
    let kind = match *optimizer.name {
        OptimizerName::AdamW => OptimizerKind::AdamW {
            beta1: optimizer.beta1.get(),
            beta2: optimizer.beta2.get(),
            eps,
        },
        OptimizerName::Sgd => OptimizerKind::Sgd {
            momentum,
            nesterov: optimizer.nesterov,
        },
        OptimizerName::RmsProp => OptimizerKind::RmsProp {
            alpha: optimizer.alpha.get(),
            eps,
            momentum,
        },
    };
    Optimizer {
        kind,
        weight_decay: optimizer.weight_decay.get(),
        decay: *optimizer.decay,
    }
}

/// The numbers of values that can be trained, and of those that are not frozen: those of tied parameters count once,
/// statistics are not among them.
pub fn parameters(layers: &mut [Box<dyn Layer>]) -> [u64; 2] {
    let [mut parameters, mut trained] = [0_u64; 2];
    for layer in layers {
        layer.params(&mut |param| {
            if !param.tied && param.kind != Kind::Statistic {
                parameters = parameters.saturating_add(param.elements());
                if !param.frozen {
                    trained = trained.saturating_add(param.elements());
                }
            }
        });
    }
    [parameters, trained]
}
