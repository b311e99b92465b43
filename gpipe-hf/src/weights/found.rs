//! What the files of a folder hold, before it is known whether that is what the model needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpipe_files::{Links, read_capped};

use super::shard::{Located, Shard};
use crate::error::{Error, Result};
use crate::index;
use crate::links::check_link;
use crate::names::MEND;

/// The largest index that is read.
const LARGEST_INDEX: u64 = 16 << 20;

/// Files, and all tensors in them.
#[derive(Default)]
pub struct Found {
    pub shards: Vec<Shard>,
    pub entries: Vec<Located>,
}

impl Found {
    /// Adds a file. Errors of reading it end with the mend.
    pub fn add(&mut self, path: PathBuf, mend: &'static str) -> Result<()> {
        let (opened, header) = Shard::open(path, mend)?;
        let shard = self.shards.len();
        let entries = header.entries().iter().cloned();
        self.entries
            .extend(entries.map(|entry| Located { shard, entry }));
        self.shards.push(opened);
        Ok(())
    }

    /// Adds the files that an index lists, each of which must hold what the index says and nothing
    /// else.
    pub fn add_listed(&mut self, folder: &Path, path: &Path) -> Result<()> {
        let fault = |fault: String| Error::Invalid {
            path: path.to_owned(),
            fault,
        };
        let bytes = read_capped(path, LARGEST_INDEX, Links::Followed, MEND)?;
        let listed = index::parse(&bytes).map_err(fault)?.weight_map;
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (tensor, file) in &listed {
            files.entry(file).or_default().push(tensor);
        }
        for (file, tensors) in files {
            let before = self.entries.len();
            let path = folder.join(file);
            check_link(&path)?;
            self.add(path, MEND)?;
            let mut there: Vec<&str> = self.entries[before..]
                .iter()
                .map(|located| located.entry.name())
                .collect();
            there.sort_unstable();
            if let Some(name) = tensors
                .iter()
                .find(|name| there.binary_search(name).is_err())
            {
                return Err(fault(format!("`{name}` is not in {file}")));
            }
            if let Some(name) = there
                .iter()
                .find(|name| tensors.binary_search(name).is_err())
            {
                return Err(fault(format!("`{name}` in {file} is not listed as there")));
            }
        }
        Ok(())
    }
}
