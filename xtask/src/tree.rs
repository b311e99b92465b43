//! The files of the repository, read once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;

/// The names in the root, and the text of every source, manifest, page and licence of the crates.
#[derive(Default)]
pub struct Tree {
    /// Names in the root that git does not ignore; folders end in a slash.
    pub root: Vec<String>,
    /// Texts by their path from the root, with slashes.
    pub files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the repository.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let ignored: Vec<&str> = ignored
            .lines()
            .filter_map(|line| line.strip_prefix('/'))
            .collect();
        let mut tree = Self::default();
        for entry in entries(root)? {
            let mut name = file_name(&entry);
            if name == ".git" || ignored.contains(&name.as_str()) {
                continue;
            }
            if entry.is_dir() {
                if is_crate(&name) {
                    tree.read_folder(&entry, &name)?;
                }
                name.push('/');
            } else if name == "Cargo.toml" || name.ends_with(".md") {
                tree.read_file(&entry, &name)?;
            }
            tree.root.push(name);
        }
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> anyhow::Result<()> {
        for entry in entries(folder)? {
            let path = format!("{prefix}/{}", file_name(&entry));
            if entry.is_dir() {
                self.read_folder(&entry, &path)?;
            } else if [".rs", ".toml", ".md"]
                .iter()
                .any(|end| path.ends_with(end))
                || file_name(&entry).starts_with("LICENSE-")
            {
                self.read_file(&entry, &path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, file: &Path, path: &str) -> anyhow::Result<()> {
        let text = fs::read_to_string(file).with_context(|| format!("reading {path}"))?;
        self.files.insert(path.to_owned(), text);
        Ok(())
    }

    /// The names of the crates, in order.
    pub fn crates(&self) -> impl Iterator<Item = &str> {
        let folders = self.root.iter().filter_map(|name| name.strip_suffix('/'));
        folders.filter(|name| is_crate(name))
    }

    /// Paths and texts of the Rust sources.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self
            .files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(|(path, _)| path.ends_with(".rs"))
    }
}

/// The root of the workspace that this program was built in.
pub fn root() -> Option<PathBuf> {
    Some(Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.to_owned())
}

/// Whether a folder of the root is a crate.
pub fn is_crate(name: &str) -> bool {
    name == "xtask" || name.starts_with("gpipe-")
}

/// The paths in a folder, in order.
pub fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    };
    let mut paths = read().with_context(|| format!("reading {}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
