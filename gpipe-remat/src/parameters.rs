//! The parameters of an assembly: their names, and what is allocated for them.

use std::collections::HashMap;

use gpipe_layers::{Layer, Optimizer, try_params};
use gpipe_sched::Groups;
use gpipe_tensor::Device;

use crate::memory::StateShards;
use crate::{Error, Result};

/// Every parameter has one place that is updated, and by whose name it is saved. Others are tied to it: they have its shape,
/// and begin as it does.
pub(crate) fn settle_places(layers: &mut [Box<dyn Layer>]) -> Result<()> {
    let mut owned = HashMap::new();
    for layer in &mut *layers {
        try_params(layer.as_mut(), |param| {
            if param.tied {
                return Ok(());
            }
            let beginning = (param.shape.clone(), param.init.clone());
            match owned.insert(param.name.clone(), beginning) {
                Some(_) => Err(Error::Assembly(format!(
                    "two parameters are named `{}`: give each layer a name of its own",
                    param.name
                ))),
                None => Ok(()),
            }
        })?;
    }
    for layer in layers {
        try_params(layer.as_mut(), |param| {
            if !param.tied {
                return Ok(());
            }
            let (name, shape) = (&param.name, &param.shape);
            let message = match owned.get(name) {
                Some((of_owner, init)) if of_owner == shape => {
                    param.init = init.clone();
                    return Ok(());
                }
                Some((of_owner, _)) => format!(
                    "parameter `{name}` is of shape {of_owner}, but a place tied to it of {shape}: give both one shape"
                ),
                None => format!(
                    "no parameter `{name}` that another place could be tied to: tie it to the name of one"
                ),
            };
            Err(Error::Assembly(message))
        })?;
    }
    Ok(())
}

/// Allocates values, gradients and optimizer states: those that are not another replica's, if `shards` divide them. Returns
/// the replica that alone has the state of each parameter with a gradient, by layer.
pub(crate) fn make_parameters(
    layers: &mut [Box<dyn Layer>],
    device: &Device,
    optimizer: Option<&Optimizer>,
    seed: u64,
    shards: Option<Groups>,
) -> Result<Vec<Vec<Option<usize>>>> {
    let own = shards.map(Groups::replica);
    let mut shards = shards.map(|groups| StateShards::new(groups.replicas()));
    let mut owners = Vec::with_capacity(layers.len());
    for layer in layers {
        let mut of_layer = Vec::new();
        try_params(layer.as_mut(), |param| {
            param.make(device, seed)?;
            let bytes = optimizer.map_or(0, |optimizer| optimizer.state_bytes(param));
            let owner = match (&mut shards, param.tied) {
                (Some(shards), false) => shards.of(bytes),
                _ => None,
            };
            if param.grad.is_some() {
                of_layer.push(owner);
            }
            match optimizer {
                Some(_) if owner.is_some() && owner != own => param.master = None,
                Some(optimizer) if !param.tied => optimizer.make_state(param)?,
                Some(_) => {}
                // Without an optimizer no state is needed.
                None => param.master = None,
            }
            Ok::<_, Error>(())
        })?;
        owners.push(of_layer);
    }
    Ok(owners)
}
