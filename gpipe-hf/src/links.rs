//! Links among the files of a model.

use std::path::Path;

use gpipe_files::{Error as FileError, Fault};

use crate::error::Result;

/// Fails for a link to a file outside of the model's folder, for files that another one names or whose text is handed on.
/// In the cache of Hugging Face files are links into `blobs`, two folders above.
pub fn check_link(path: &Path) -> Result<()> {
    if !path.is_symlink() {
        return Ok(());
    }
    let outside = "it leads out of the model's folder: put the file itself in its place";
    let unreadable = |path| FileError::read(path, "put the file itself in its place");
    let target = path.canonicalize().map_err(unreadable(path))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().map_err(unreadable(path))?;
    let blobs = folder.ancestors().nth(2).map(|cache| cache.join("blobs"));
    let parent = target.parent();
    if target.starts_with(&folder) || parent.is_some() && parent == blobs.as_deref() {
        return Ok(());
    }
    Err(FileError::new(path, Fault::Link, outside).into())
}
