//! Finding the model in the folder of a run, a checkpoint or a model.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gpipe_files::Links;

use crate::error::{Error, Result};
use crate::machine;

/// A model and the configuration of the run that trained it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelSource {
    /// The folder of the model, with `config.json`.
    pub model: PathBuf,
    /// The folder of its adapters, if it has any.
    pub adapter: Option<PathBuf>,
    /// The `config.toml` of the run; `None` for a folder without a run.
    pub run: Option<PathBuf>,
    /// One line for each newer checkpoint that is damaged.
    pub warnings: Vec<String>,
    /// The digest of the data that the checkpoint was trained on.
    pub(crate) data_digest: Option<String>,
}

/// The folder of the adapters, in a checkpoint's folder.
pub(crate) const ADAPTER: &str = "adapter";

/// Finds the model in the folder of a run (its newest intact checkpoint), in a checkpoint, or in a
/// folder with `config.json`, where adapters may lie beside it; or a GGUF file.
///
/// # Errors
/// [`Error::Invalid`] if there is no model; [`Error::Input`] if no checkpoint is intact.
pub fn find(folder: &Path) -> Result<ModelSource> {
    if folder.to_str().is_none() {
        return Err(Error::invalid(format!(
            "{}: its name is not UTF-8: rename it",
            folder.display()
        )));
    }
    if gpipe_hf::is_gguf(folder) || folder.join(gpipe_hf::CONFIG).is_file() {
        // Beside their model, where `peft` saves them into its folder, they belong to it, as for `transformers`.
        let adapter = folder.join(gpipe_hf::ADAPTER_CONFIG).is_file();
        return Ok(ModelSource {
            model: folder.to_owned(),
            adapter: adapter.then(|| folder.to_owned()),
            run: None,
            warnings: Vec::new(),
            data_digest: None,
        });
    }
    if folder.join(gpipe_hf::ADAPTER_CONFIG).is_file() {
        return Err(Error::invalid(format!(
            "{}: holds adapters and no model: name the model, and them by `lora.adapter = {}`",
            folder.display(),
            folder.display()
        )));
    }
    if gpipe_checkpoint::locate(folder).is_err() {
        if folder.join(gpipe_checkpoint::CONFIG).is_file() {
            return Err(unsaved(folder));
        }
        if folder
            .read_dir()
            .is_err_and(|fault| fault.kind() == ErrorKind::PermissionDenied)
        {
            return Err(Error::invalid(format!(
                "{}: cannot be read by this user: change its permissions, or name another one",
                folder.display()
            )));
        }
        return Err(Error::invalid(format!(
            "{}: no model is there: name a run's folder, a checkpoint, a folder with config.json, or a .gguf file",
            folder.display()
        )));
    }
    let memory = machine::memory().unwrap_or(u64::MAX);
    let (checkpoint, warnings) = gpipe_checkpoint::find(folder, memory)?;
    let folder = checkpoint.folder();
    let data_digest = Some(checkpoint.state()?.text);
    Ok(ModelSource {
        model: folder.join(gpipe_checkpoint::MODEL),
        adapter: Some(folder.join(ADAPTER)).filter(|adapter| adapter.is_dir()),
        run: Some(folder.join(gpipe_checkpoint::CONFIG)),
        warnings,
        data_digest,
    })
}

/// The error of a run without a checkpoint: it keeps none, or it has not come to its first save.
fn unsaved(run: &Path) -> Error {
    const LARGEST: u64 = 1 << 20;
    // The key alone: the whole configuration needs the model, which is found here.
    let file = run.join(gpipe_checkpoint::CONFIG);
    let text = gpipe_files::read_capped(&file, LARGEST, Links::Followed, "").ok();
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    let table = text.and_then(|text| text.parse::<toml::Table>().ok());
    let keep = table.and_then(|table| table.get("run")?.get("keep")?.as_integer());
    let (fault, mend) = match keep == Some(0) {
        true => (
            "keeps no checkpoint (`run.keep` is 0)",
            "train it again with `run.keep = 3`",
        ),
        false => (
            "has saved no checkpoint yet",
            "if it is still training, wait for its first save, else train it again with `run.save_every = 10`",
        ),
    };
    Error::invalid(format!(
        "{}: the run {fault}: name another one, or {mend}",
        run.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_no_text_is_told() {
        use std::os::unix::ffi::OsStrExt;
        let name = Path::new(std::ffi::OsStr::from_bytes(b"run\xff"));
        let error = find(name).unwrap_err().to_string();
        assert!(error.contains("is not UTF-8: rename it"), "{error}");
    }

    #[test]
    fn a_run_without_checkpoints_is_told_from_other_folders() {
        let folder = tempfile::tempdir().unwrap();
        let said = |words: &str| {
            let error = find(folder.path()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        said("no model is there");
        let write = |keep: u64| {
            let text = format!("[run]\nkeep = {keep}\n");
            std::fs::write(folder.path().join(gpipe_checkpoint::CONFIG), text).unwrap();
        };
        write(3);
        said(
            "the run has saved no checkpoint yet: name another one, or if it is still training, wait",
        );
        write(0);
        said(
            "the run keeps no checkpoint (`run.keep` is 0): name another one, or train it again with `run.keep = 3`",
        );
    }
}
