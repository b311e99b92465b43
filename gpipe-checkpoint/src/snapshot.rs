//! A run between two steps, and the files that it becomes.

use std::collections::BTreeMap;
use std::fmt;

use gpipe_layers::Optimizer;
use gpipe_remat::{Lent, Others, ParamState};
use gpipe_tensor::safetensors::{self, FileContents, Stored};

use super::error::{BoxedError, Error, Result};
use super::files::Placed;
use super::identity::Identity;
use super::manifest::check_names;
use super::names;
use super::run_state::RunState;
use super::shards;

/// Makes the files of the model of all parameters, by their names below the checkpoint's
/// folder, such as `model/config.json`. It is called in the
/// saver's thread, so that the model's files need no second copy of the parameters.
///
/// A name has at most four components between slashes, of at most 255 bytes each, without `\\`, `:` and control
/// characters, and neither empty nor `.` nor `..`; it is not that of another file of the checkpoint. With any other name
/// nothing is saved ([`Error::Names`]).
pub type ModelFiles = Box<
    dyn FnOnce(&[(String, Stored)]) -> std::result::Result<Vec<(String, FileContents)>, BoxedError>
        + Send,
>;

/// Makes a file of some of the parameters.
type MakeFile = fn(&[(String, Stored)]) -> std::result::Result<FileContents, BoxedError>;

/// The file of the model's weights, which the ranks that have them write in parts.
#[derive(Clone, Copy, Debug)]
pub struct ModelWeights {
    /// Its name among the model's files.
    pub name: &'static str,
    /// Makes it of some of the parameters.
    pub contents: MakeFile,
}

/// A run between two steps, in buffers of its own: what training changes next, it does not see. The buffers may be those
/// of other ranks, which write them where they find the folder; else they are fetched while they are written.
pub struct Snapshot {
    /// Where the run is.
    pub state: RunState,
    /// Every parameter and its optimizer state, as [`gpipe_remat::lend_owned`] gives them.
    pub lent: Lent,
    /// Names the tensors of the optimizer's state.
    pub optimizer: Optimizer,
    /// The text of `config.toml`, with which the run goes on.
    pub config: String,
    /// Makes the model's files; safetensors files among them should have all parameters by name,
    /// to be given to [`Checkpoint::restore`](crate::Checkpoint::restore).
    pub model: ModelFiles,
    /// Which of them other ranks write parts of.
    pub weights: ModelWeights,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("state", &self.state)
            .field("optimizer", &self.optimizer)
            .field("weights", &self.weights)
            .finish_non_exhaustive()
    }
}

/// The files of a checkpoint, by their names in the manifest.
pub(crate) struct Files {
    /// As rank 0 writes them alone.
    pub whole: Vec<(String, FileContents)>,
    /// As all ranks write them, if others have tensors of them.
    pub placed: Option<(Vec<Placed>, Others)>,
}

impl Snapshot {
    /// The files of the checkpoint of this run.
    pub(crate) fn files(self, identity: Option<&Identity>) -> Result<Files> {
        let Lent {
            params,
            ranks,
            others,
            ..
        } = self.lent;
        let optimizer = optimizer_file(&params, &self.optimizer).map_err(Error::Files)?;
        let state = serde_json::to_string_pretty(&self.state)
            .map_err(|error| Error::Files(error.into()))?;
        let mut whole = vec![
            (names::CONFIG.to_owned(), self.config.into_bytes().into()),
            (names::STATE.to_owned(), (state + "\n").into_bytes().into()),
            (names::OPTIMIZER.to_owned(), optimizer),
        ];
        let model = (self.model)(&values_of(&params)).map_err(Error::Files)?;
        whole.extend(model);
        if let Some(identity) = identity {
            whole.push((names::RUN.to_owned(), identity.to_bytes()?.into()));
        }
        check_names(whole.iter().map(|(name, _)| &**name)).map_err(Error::Names)?;
        let others = others.filter(|_| ranks.iter().any(|&rank| rank > 0));
        let Some(others) = others else {
            return Ok(Files {
                whole,
                placed: None,
            });
        };
        let mut of_ranks: BTreeMap<usize, Vec<ParamState<Stored>>> = BTreeMap::new();
        for (param, rank) in params.into_iter().zip(ranks) {
            of_ranks.entry(rank).or_default().push(param);
        }
        let placed = place(&whole, &of_ranks, &self.optimizer, self.weights);
        let placed = placed.map_err(Error::Files)?;
        check_names(placed.iter().map(|file| &*file.name)).map_err(Error::Names)?;
        let placed = Some((placed, others));
        Ok(Files { whole, placed })
    }
}

/// The files as the ranks write them that have their tensors: of weights and optimizer states, each rank its part.
fn place(
    whole: &[(String, FileContents)],
    of_ranks: &BTreeMap<usize, Vec<ParamState<Stored>>>,
    optimizer: &Optimizer,
    weights: ModelWeights,
) -> std::result::Result<Vec<Placed>, BoxedError> {
    let mut placed = Vec::new();
    for (name, contents) in whole {
        let is_optimizer = name == names::OPTIMIZER;
        let mut parts = Vec::new();
        for (&rank, params) in of_ranks {
            let part = match is_optimizer {
                true => optimizer_file(params, optimizer)?,
                false if name == weights.name => (weights.contents)(&values_of(params))?,
                false => continue,
            };
            // A rank without any writes none.
            if !part.names().is_empty() {
                parts.push((rank, part));
            }
        }
        let here = |name: &String, contents: FileContents| Placed {
            rank: 0,
            name: name.clone(),
            whole: name.clone(),
            contents,
        };
        let count = parts.len();
        if count == 0 {
            placed.push(here(name, contents.clone()));
            continue;
        }
        let parts = parts
            .into_iter()
            .enumerate()
            .map(|(part, (rank, contents))| Placed {
                rank,
                name: match count {
                    1 => name.clone(),
                    _ => shards::part_name(name, part + 1, count),
                },
                whole: name.clone(),
                contents,
            });
        let parts: Vec<Placed> = parts.collect();
        if count > 1 {
            let files = parts.iter().map(|part| (part.name.clone(), &part.contents));
            let index = shards::index(&files.collect::<Vec<_>>())?;
            placed.push(here(&shards::index_name(name), index.into()));
        }
        placed.extend(parts);
    }
    Ok(placed)
}

/// The optimizer states of some parameters.
pub(crate) fn optimizer_file(
    params: &[ParamState<Stored>],
    optimizer: &Optimizer,
) -> std::result::Result<FileContents, BoxedError> {
    let kinds = optimizer.state_names();
    let states = params.iter().flat_map(|ParamState { name, state, .. }| {
        let named = kinds.iter().map(move |kind| format!("{name}.{kind}"));
        named.zip(state.iter().cloned())
    });
    Ok(safetensors::contents(&states.collect::<Vec<_>>(), &[])?)
}

/// The values of some parameters, by their names.
pub(crate) fn values_of(params: &[ParamState<Stored>]) -> Vec<(String, Stored)> {
    let values = params.iter();
    let values = values.map(|param| (param.name.clone(), param.value.clone()));
    values.collect()
}
