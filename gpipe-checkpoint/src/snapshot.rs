//! A run between two steps, and the files that it becomes.

use std::error::Error as StdError;

use gpipe_layers::Optimizer;
use gpipe_remat::ParamState;
use gpipe_tensor::safetensors::{self, FileContents, Stored};

use super::error::{Error, Result};
use super::names;
use super::run_state::RunState;

/// Makes the files of the model of all parameters, by their names below the checkpoint's
/// folder, such as `model/config.json`. It is called in the
/// saver's thread, so that the model's files need no second copy of the parameters.
pub type ModelFiles = Box<
    dyn FnOnce(
            &[(String, Stored)],
        )
            -> std::result::Result<Vec<(String, FileContents)>, Box<dyn StdError + Send + Sync>>
        + Send,
>;

/// A run between two steps, in buffers of its own: what training changes next, it does not see. The buffers may be those
/// of other ranks: their contents are fetched while they are written.
pub struct Snapshot {
    /// Where the run is.
    pub state: RunState,
    /// Every parameter and its optimizer state, as [`gpipe_remat::lend_owned`] gives them.
    pub params: Vec<ParamState<Stored>>,
    /// Names the tensors of the optimizer's state.
    pub optimizer: Optimizer,
    /// The text of `config.toml`, with which the run goes on.
    pub config: String,
    /// Makes the model's files; safetensors files among them should have all parameters by name,
    /// to be given to [`Checkpoint::restore`](crate::Checkpoint::restore).
    pub model: ModelFiles,
}

impl Snapshot {
    /// The files of the checkpoint, by their names in the manifest.
    pub(crate) fn files(self) -> Result<Vec<(String, FileContents)>> {
        let kinds = self.optimizer.state_names();
        let mut values = Vec::with_capacity(self.params.len());
        let mut states = Vec::new();
        for ParamState { name, value, state } in self.params {
            let named = kinds.iter().map(|kind| format!("{name}.{kind}"));
            states.extend(named.zip(state));
            values.push((name, value));
        }
        let optimizer =
            safetensors::contents(&states, &[]).map_err(|error| Error::Files(error.into()))?;
        let state = serde_json::to_string_pretty(&self.state)
            .map_err(|error| Error::Files(error.into()))?;
        let mut files = vec![
            (names::CONFIG.to_owned(), self.config.into_bytes().into()),
            (names::STATE.to_owned(), (state + "\n").into_bytes().into()),
            (names::OPTIMIZER.to_owned(), optimizer),
        ];
        let model = (self.model)(&values).map_err(Error::Files)?;
        files.extend(model);
        Ok(files)
    }
}
