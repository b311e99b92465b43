//! The costs of an argument: a list of whole numbers, or the name of a file.

use std::path::Path;

use gpipe_remat::planner::Described;

use super::cost_file::CostFile;
use crate::error::{Error, Result};

/// Whole costs of layers, for a cut, and what they are made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WholeCosts {
    /// One for each layer: the numbers of a list, or nanoseconds of a file.
    pub costs: Vec<u64>,
    /// The layers.
    pub layers: Vec<Described>,
    /// What is known of backward passes, as text.
    pub backward: String,
}

/// Reads a file, or a list of total costs, of which a third is the forward pass.
///
/// # Errors
/// Those of [`read`](super::read) and [`parse_list`].
pub fn read_argument(text: &str) -> Result<CostFile> {
    if is_file(text) {
        let read = super::read(Path::new(text));
        return read.map_err(|error| Error::invalid(format!("--costs {error}")));
    }
    let layer = |(index, cost): (usize, u64)| {
        let third = cost as f64 / 3.0;
        Described {
            name: format!("layer {index}"),
            forward: third,
            input_grad: third,
            weight_grad: third,
            ..Described::default()
        }
    };
    let layers = parse_list(text)?.into_iter().enumerate().map(layer);
    Ok(CostFile::from_layers(layers.collect()))
}

/// Whole costs from those that [`read_argument`] has read from this text.
///
/// # Errors
/// Those of [`parse_list`], and [`Error::Invalid`] for a file whose seconds are too many for nanoseconds.
pub fn whole(text: &str, read: CostFile) -> Result<WholeCosts> {
    let layers = read.layers;
    if !is_file(text) {
        return Ok(WholeCosts {
            costs: parse_list(text)?,
            layers,
            backward: "backward passes cost twice as much as forward passes".to_owned(),
        });
    }
    let work = |layer: &Described| layer.forward + layer.input_grad + layer.weight_grad;
    let all: f64 = layers.iter().map(work).sum();
    if !(all.is_finite() && all < 1e9) {
        return Err(Error::invalid(format!(
            "--costs {text}: {all:e} s in all: scale the costs down to less than 1e9"
        )));
    }
    Ok(WholeCosts {
        costs: layers
            .iter()
            .map(|layer| (work(layer) * 1e9) as u64)
            .collect(),
        layers,
        backward: format!("forward and backward passes as in {text}, costs in nanoseconds"),
    })
}

/// Parses a list of whole costs.
///
/// # Errors
/// [`Error::Invalid`] that names the first entry that is not a whole number from 0 up.
pub fn parse_list(list: &str) -> Result<Vec<u64>> {
    let cost = |text: &str| {
        text.trim().parse::<u64>().map_err(|_| {
            let fault = "is not a cost: use whole numbers from 0 up, such as 10,40,30";
            Error::invalid(format!("--costs {list}: `{}` {fault}", text.trim()))
        })
    };
    list.split(',').map(cost).collect()
}

/// Whether a text names a file: it has a letter or a slash, and no comma unless the file exists. `1,NaN` is an invalid list.
fn is_file(text: &str) -> bool {
    let path = text.contains(|c: char| c.is_alphabetic() || c == '/');
    path && (!text.contains(',') || Path::new(text).exists())
}
