//! The weights of a folder: checked by their headers, then read one tensor at a time.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gpipe_remat::{LayerStage, share_ties};
use gpipe_sched::{Pipeline, Turn};
use gpipe_tensor::safetensors::{Entry, Header, PREFIX};
use gpipe_tensor::{Device, Shape, Tensor, Tensors};

use super::file::{self, Links, MEND};
use super::{INDEX, WEIGHTS, index};
use crate::fail::{Fail, Result};

/// The largest index that is read.
const LARGEST_INDEX: u64 = 16 << 20;

/// Every tensor of a model, where it lies. That all of them are there, each of the right shape and
/// of a type that can be read, was checked.
pub struct Weights {
    shards: Vec<Shard>,
    /// By global name.
    places: HashMap<String, Place>,
}

/// A safetensors file.
struct Shard {
    path: PathBuf,
    /// Workers read it one at a time.
    file: Mutex<File>,
    /// Where its data begin.
    data: u64,
}

struct Place {
    shard: usize,
    entry: Entry,
}

impl Weights {
    /// Opens the weights of a folder and checks them against the parameters that a model has, by
    /// global name. Nothing but headers is read.
    pub fn open(folder: &Path, wanted: &[(String, Shape)]) -> Result<Self> {
        let single = folder.join(WEIGHTS);
        let index = folder.join(INDEX);
        let mut found = Found::default();
        // Transformers prefers the single file, too.
        if single.exists() || !index.exists() {
            found.add(single, Links::Followed)?;
        } else {
            found.add_listed(folder, &index)?;
        }
        let Found { shards, entries } = found;
        Names::new(wanted)
            .sort(folder, &shards, entries)
            .map(|places| Self { shards, places })
    }

    /// The value of a parameter.
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(Place { shard, entry }) = self.places.get(name) else {
            return Err(Fail::asked(format!(
                "no weights for {name}: it is no parameter of the model"
            )));
        };
        let shard = &self.shards[*shard];
        let bytes = shard.bytes(entry)?;
        let tensor = entry
            .tensor(&bytes, device)
            .map_err(|error| shard.fault(&error))?;
        let finite = tensor
            .to_f32s()
            .is_ok_and(|values| values.iter().all(|value| value.is_finite()));
        match finite {
            true => Ok(tensor),
            false => Err(shard.fault(&format!(
                "`{}` holds values that are not finite",
                entry.name()
            ))),
        }
    }
}

/// Gives every parameter of a pipeline its value, each stage reading its own.
pub fn fill<T: Turn<Tensors> + 'static>(
    pipeline: &mut Pipeline<LayerStage, T>,
    weights: Weights,
) -> Result<()> {
    let filled = pipeline.each(move |_, stage| {
        let device = stage.device().clone();
        let mut result = Ok(());
        stage.params(|param| {
            if result.is_ok() && !param.tied {
                result = weights
                    .tensor(&param.name, &device)
                    .map_err(Fail::into_error)
                    .and_then(|value| Ok(param.set_value(&value)?));
            }
        });
        result
    });
    filled.map_err(Fail::usage)?;
    share_ties(pipeline).map_err(Fail::run)
}

impl Shard {
    fn fault(&self, fault: &dyn std::fmt::Display) -> Fail {
        Fail::asked(format!("{}: {fault}", self.path.display()))
    }

    /// The bytes of a tensor, which the length of the file has room for.
    fn bytes(&self, entry: &Entry) -> Result<Vec<u8>> {
        let range = entry.range();
        let mut bytes = Vec::new();
        let length = usize::try_from(range.end - range.start).ok();
        let room = length.map(|length| bytes.try_reserve_exact(length));
        let (Some(length), Some(Ok(()))) = (length, room) else {
            return Err(self.fault(&format!(
                "no memory for the {} bytes of `{}`",
                range.end - range.start,
                entry.name()
            )));
        };
        bytes.resize(length, 0);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file
            .seek(SeekFrom::Start(self.data + range.start))
            .and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|error| file::unreadable(&self.path, &error, MEND))?;
        Ok(bytes)
    }
}

/// What the files hold, before it is known whether that is what the model needs.
#[derive(Default)]
struct Found {
    shards: Vec<Shard>,
    entries: Vec<(usize, Entry)>,
}

impl Found {
    fn add(&mut self, path: PathBuf, links: Links) -> Result<()> {
        let fault =
            |error: &dyn std::fmt::Display| Fail::asked(format!("{}: {error}", path.display()));
        let (mut file, length) = file::open(&path, links, MEND)?;
        let mut prefix = [0; PREFIX];
        if length < PREFIX as u64 {
            return Err(fault(&format!("{length} bytes are too few for weights")));
        }
        let unreadable = |error: std::io::Error| file::unreadable(&path, &error, MEND);
        file.read_exact(&mut prefix).map_err(unreadable)?;
        let header_length = Header::length(prefix, length).map_err(|error| fault(&error))?;
        let mut header = Vec::new();
        (&mut file)
            .take(header_length)
            .read_to_end(&mut header)
            .map_err(unreadable)?;
        let data = PREFIX as u64 + header_length;
        let header = Header::parse(&header, length - data).map_err(|error| fault(&error))?;
        let number = self.shards.len();
        self.entries
            .extend(header.entries().iter().map(|entry| (number, entry.clone())));
        self.shards.push(Shard {
            path,
            file: Mutex::new(file),
            data,
        });
        Ok(())
    }

    /// The files that an index lists, each of which must hold what the index says and nothing else.
    fn add_listed(&mut self, folder: &Path, path: &Path) -> Result<()> {
        let fault = |fault: String| Fail::asked(format!("{}: {fault}", path.display()));
        let listed = index::parse(&file::read(path, LARGEST_INDEX, MEND)?)
            .map_err(fault)?
            .0;
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (tensor, file) in &listed {
            files.entry(file).or_default().push(tensor);
        }
        for (file, tensors) in files {
            let before = self.entries.len();
            self.add(folder.join(file), Links::Refused)?;
            let mut there: Vec<&str> = self.entries[before..]
                .iter()
                .map(|(_, entry)| entry.name())
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

/// The head of a language model, where a file has it although it is tied.
const HEAD: &str = "lm_head.weight";
/// What it is tied to.
const TABLE: &str = "transformer.wte.weight";
/// What a file may leave out in front of names: the head-less model of `transformers` has none.
const BODY: &str = "transformer.";

/// The parameters of a model, to be found in files.
struct Names<'a> {
    wanted: BTreeMap<&'a str, &'a Shape>,
}

impl<'a> Names<'a> {
    fn new(wanted: &'a [(String, Shape)]) -> Self {
        Self {
            wanted: wanted
                .iter()
                .map(|(name, shape)| (name.as_str(), shape))
                .collect(),
        }
    }

    /// The parameter that a tensor of a file is for.
    fn of(&self, stored: &str) -> Option<&'a str> {
        let full = format!("{BODY}{stored}");
        let known = self
            .wanted
            .get_key_value(stored)
            .or_else(|| self.wanted.get_key_value(full.as_str()));
        known.map(|(name, _)| *name)
    }

    /// Finds the place of every parameter, or the first thing that does not fit.
    fn sort(
        &self,
        folder: &Path,
        shards: &[Shard],
        entries: Vec<(usize, Entry)>,
    ) -> Result<HashMap<String, Place>> {
        let mut places: HashMap<String, Place> = HashMap::new();
        let mut head = None;
        for (shard, entry) in entries {
            let fault = |fault: String| Err(shards[shard].fault(&fault));
            let stored = entry.name();
            let Some(name) = self.of(stored) else {
                if stored == HEAD && self.wanted.contains_key(TABLE) {
                    head = Some(Place { shard, entry });
                } else if !is_mask(stored) {
                    return fault(format!(
                        "`{stored}` is no parameter of the model that config.json describes"
                    ));
                }
                continue;
            };
            let wanted = self.wanted[name];
            if entry.shape() != wanted {
                return fault(format!(
                    "`{stored}` has shape {}, but config.json asks for {wanted}",
                    entry.shape()
                ));
            }
            if !entry.is_readable() || entry.dtype() == "U32" {
                return fault(format!(
                    "`{stored}` holds {} elements: only F32, F16 and BF16 can be trained",
                    entry.dtype()
                ));
            }
            if places.contains_key(name) {
                return fault(format!(
                    "`{stored}` is there twice, with and without `{BODY}`, or in two files"
                ));
            }
            places.insert(name.to_owned(), Place { shard, entry });
        }
        let mut missing = self
            .wanted
            .keys()
            .filter(|name| !places.contains_key(**name));
        if let Some(name) = missing.next() {
            let others = match missing.count() {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            return Err(Fail::asked(format!(
                "{}: no weights for `{name}`{others}, which config.json asks for",
                folder.display()
            )));
        }
        if let (Some(head), Some(table)) = (head, places.get(TABLE)) {
            check_tie(shards, &head, table)?;
        }
        Ok(places)
    }
}

/// A head that is tied and all the same there must be what it is tied to.
fn check_tie(shards: &[Shard], head: &Place, table: &Place) -> Result<()> {
    let alike =
        head.entry.shape() == table.entry.shape() && head.entry.dtype() == table.entry.dtype();
    let (of_head, of_table) = (&shards[head.shard], &shards[table.shard]);
    if alike && of_head.bytes(&head.entry)? == of_table.bytes(&table.entry)? {
        return Ok(());
    }
    Err(of_head.fault(&format!(
        "`{HEAD}` differs from the table of tokens, but config.json ties them: set tie_word_embeddings to false"
    )))
}

/// Whether a tensor is the causal mask that older files keep beside the weights of a block.
fn is_mask(stored: &str) -> bool {
    let inside = stored
        .strip_prefix(BODY)
        .unwrap_or(stored)
        .strip_prefix("h.");
    inside
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(block, what)| {
            block.parse::<u32>().is_ok() && matches!(what, "attn.bias" | "attn.masked_bias")
        })
}
