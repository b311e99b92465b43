//! The files in a folder and in the folders in it, without those that gpipe writes.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gpipe_files::{Links, open_regular};

use crate::error::{Error, Result};

/// Files that only gpipe writes, and what stands at their beginnings: of a run, and of a checkpoint that lies by itself.
/// Files may have these names anywhere.
const MARKS: [(&str, &str); 4] = [
    ("run.json", "\"gpipe\""),
    ("events.jsonl", "\"kind\":\""),
    ("timeline.json", "\"gpipe\""),
    ("manifest.json", "\"gpipe checkpoint"),
];

/// The files in a folder and in the folders in it, each folder in the order of its names. Names that begin with a dot are
/// left out.
#[derive(Default)]
pub(crate) struct FolderWalk {
    /// The files, and whatever else is no folder.
    pub files: Vec<PathBuf>,
    pub passed: PassedOver,
}

/// Folders that are not read.
#[derive(Default)]
pub(crate) struct PassedOver {
    /// Folders of gpipe's runs or checkpoints, or with nothing else in them.
    pub runs: Vec<PathBuf>,
    /// Links to folders, which may lead in a circle.
    pub links: Vec<PathBuf>,
}

impl FolderWalk {
    /// Walks a folder, which may itself be one of a run or a link.
    ///
    /// # Errors
    /// [`Error::Unreadable`] for a folder that cannot be listed.
    pub fn of(folder: &Path) -> Result<Self> {
        let mut walk = Self::default();
        walk.collect(folder)?;
        Ok(walk)
    }

    fn collect(&mut self, folder: &Path) -> Result<()> {
        for entry in visible(folder).map_err(unreadable(folder))? {
            let path = entry.path();
            let kind = entry.file_type().map_err(unreadable(&path))?;
            if kind.is_symlink() && path.is_dir() {
                self.passed.links.push(path);
            } else if !kind.is_dir() {
                self.files.push(path);
            } else if is_of_runs(&path) {
                self.passed.runs.push(path);
            } else {
                self.collect(&path)?;
            }
        }
        Ok(())
    }
}

impl PassedOver {
    /// Adds what another walk passed over.
    pub fn extend(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.links.extend(other.links);
    }

    /// One line for each kind of folder that is not read. `setting` is the key with its value, `root` the folder.
    pub fn warnings(&self, setting: &str, root: &Path) -> Vec<String> {
        let told = |paths: &[PathBuf], what: &str, whats: &str, mend: &str| {
            let first = below(root, paths.first()?);
            Some(match paths.len() {
                1 => format!("`{setting}`: {what} is passed over: {first}{mend}"),
                count => {
                    format!("`{setting}`: {count} {whats} are passed over, the first {first}{mend}")
                }
            })
        };
        let runs = told(
            &self.runs,
            "a folder of runs of gpipe",
            "folders of runs of gpipe",
            "",
        );
        let links = told(
            &self.links,
            "a link to a folder",
            "links to folders",
            ": put the folder itself there to have it read",
        );
        runs.into_iter().chain(links).collect()
    }
}

/// The name of a path below a folder, its parts between slashes.
pub(crate) fn below(root: &Path, path: &Path) -> String {
    let below = path.strip_prefix(root).unwrap_or(path);
    let parts = below.components();
    let parts: Vec<_> = parts
        .map(|part| part.as_os_str().to_string_lossy())
        .collect();
    parts.join("/")
}

/// Whether a folder is that of a run or a checkpoint of gpipe, or holds folders of runs and nothing else, as `runs` does.
pub(crate) fn is_of_runs(folder: &Path) -> bool {
    let is_run_too = |entry: &fs::DirEntry| entry.path().is_dir() && is_run(&entry.path());
    let holds_runs = |entries: Vec<_>| !entries.is_empty() && entries.iter().all(is_run_too);
    is_run(folder) || visible(folder).is_ok_and(holds_runs)
}

/// Whether a folder is that of a run or a checkpoint, by a mark that no other program leaves.
fn is_run(folder: &Path) -> bool {
    MARKS.iter().any(|(name, mark)| {
        const BEGINNING: u64 = 256;
        let mut bytes = Vec::new();
        let file = open_regular(&folder.join(name), Links::Refused, "");
        let read = file.map(|(file, _)| file.take(BEGINNING).read_to_end(&mut bytes));
        let mut parts = bytes.windows(mark.len());
        matches!(read, Ok(Ok(_))) && parts.any(|part| part == mark.as_bytes())
    })
}

/// What a folder holds, in the order of names; those that begin with a dot are left out.
fn visible(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_cached_key(fs::DirEntry::file_name);
    Ok(entries)
}

pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Unreadable { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn walked(root: &Path) -> (Vec<String>, Vec<String>) {
        let walk = FolderWalk::of(root).unwrap();
        let names = |paths: &[PathBuf]| paths.iter().map(|path| below(root, path)).collect();
        (names(&walk.files), walk.passed.warnings("key", root))
    }

    #[test]
    fn runs_are_passed_over_by_their_marks_and_not_by_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "runs/a/events.jsonl", "{\"kind\":\"start\"}\n");
        write(root, "runs/b/run.json", "{\n  \"format\": \"gpipe\"\n}");
        write(root, "runs/b/checkpoints/step-00000001/state.json", "{}");
        write(root, "logs/events.jsonl", "{\"event\":1}\n");
        write(root, "logs/config.toml", "");
        let (files, warnings) = walked(root);
        assert_eq!(files, ["logs/config.toml", "logs/events.jsonl"]);
        assert_eq!(
            warnings,
            ["`key`: a folder of runs of gpipe is passed over: runs"]
        );
        // Beside text, each run is passed over by itself; and what is named is read.
        write(root, "runs/c.txt", "text");
        let (files, warnings) = walked(root);
        assert_eq!(
            files,
            ["logs/config.toml", "logs/events.jsonl", "runs/c.txt"]
        );
        assert_eq!(
            warnings,
            ["`key`: 2 folders of runs of gpipe are passed over, the first runs/a"]
        );
        assert_eq!(walked(&root.join("runs/a")).0, ["events.jsonl"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_to_folders_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "a/b.txt", "x");
        for (to, name) in [("a", "z"), (".", "circle"), ("a/b.txt", "file")] {
            std::os::unix::fs::symlink(root.join(to), root.join(name)).unwrap();
        }
        let (files, warnings) = walked(root);
        assert_eq!(files, ["a/b.txt", "file"]);
        let told = "`key`: 2 links to folders are passed over, the first circle: put the folder itself there to have it \
                    read";
        assert_eq!(warnings, [told]);
    }
}
