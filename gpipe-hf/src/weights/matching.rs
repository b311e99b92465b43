//! Which tensor of the files is which parameter of the model.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use gpipe_tensor::Shape;

use super::shard::{Located, Shard};
use crate::error::{Error, Result};

/// The head of a language model, where a file has it although it is tied.
const HEAD: &str = "lm_head.weight";
/// What it is tied to, in each family.
const TABLES: [&str; 2] = ["transformer.wte.weight", "model.embed_tokens.weight"];
/// What a file may leave out in front of names: the head-less models of `transformers` have none.
const BODIES: [&str; 2] = ["transformer.", "model."];

/// The mend for files of different models.
const MEND: &str = "take the weights of that model";

/// How PyTorch counts the steps of a batch norm, which decides nothing there.
const COUNTER: &str = ".num_batches_tracked";

/// Finds every parameter by its global name, or the first thing that does not fit the model that `described` describes. The
/// parameters of `head` are left out where it is one of another number of classes: where a file has them with another first
/// extent.
pub fn locate(
    (shapes, head): (&[(String, Shape)], &[String]),
    (folder, described): (&Path, &str),
    shards: &[Shard],
    entries: Vec<Located>,
) -> Result<HashMap<String, Located>> {
    let wanted = Wanted::new(shapes);
    let mut located: HashMap<String, Located> = HashMap::new();
    let mut tied_head = None;
    let mut has_other_head = false;
    for Located { shard, entry } in entries {
        let fault = |fault: String| Err(shards[shard].fault(fault));
        let stored = entry.name();
        let Some((name, shape)) = wanted.parameter(stored) else {
            if stored == HEAD && wanted.table().is_some() {
                tied_head = Some(Located { shard, entry });
            } else if !is_mask(stored) && !stored.ends_with(COUNTER) {
                return fault(format!(
                    "`{stored}` is no parameter of the model that {described} describes: {MEND}"
                ));
            }
            continue;
        };
        let is_of_head = head.iter().any(|of_head| of_head == name);
        if is_of_head && differs_in_first_extent(entry.shape(), shape) {
            has_other_head = true;
            continue;
        }
        if entry.shape() != shape {
            return fault(format!(
                "`{stored}` has shape {}, but {described} asks for {shape}: {MEND}",
                entry.shape()
            ));
        }
        if !entry.is_readable() || entry.dtype() == "U32" {
            return fault(format!(
                "`{stored}` holds {} elements: only F32, F16 and BF16 can be trained: save it in one of these",
                entry.dtype()
            ));
        }
        if located.contains_key(name) {
            return fault(format!(
                "`{stored}` is there twice, with and without a prefix, or in two files: remove one of them"
            ));
        }
        located.insert(name.to_owned(), Located { shard, entry });
    }
    let is_left_out = |name: &str| has_other_head && head.iter().any(|of_head| of_head == name);
    located.retain(|name, _| !is_left_out(name));
    let missing = wanted.0.keys().filter(|name| !located.contains_key(**name));
    let mut missing = missing.filter(|name| !is_left_out(name));
    if let Some(name) = missing.next() {
        let others = match missing.count() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        return Err(Error::Invalid {
            path: folder.to_owned(),
            fault: format!("no weights for `{name}`{others}, which {described} asks for: {MEND}"),
        });
    }
    let table = wanted.table().and_then(|table| located.get(table));
    if let (Some(head), Some(table)) = (tied_head, table) {
        check_tie(shards, &head, table)?;
    }
    Ok(located)
}

fn differs_in_first_extent(stored: &Shape, wanted: &Shape) -> bool {
    match (stored.dims(), wanted.dims()) {
        ([first, rest @ ..], [other_first, other_rest @ ..]) => {
            first != other_first && rest == other_rest
        }
        _ => false,
    }
}

/// The parameters of a model, by global name.
struct Wanted<'a>(BTreeMap<&'a str, &'a Shape>);

impl<'a> Wanted<'a> {
    fn new(shapes: &'a [(String, Shape)]) -> Self {
        let shapes = shapes.iter().map(|(name, shape)| (name.as_str(), shape));
        Self(shapes.collect())
    }

    /// The parameter that a tensor of a file is for.
    fn parameter(&self, stored: &str) -> Option<(&'a str, &'a Shape)> {
        let with = |body| self.0.get_key_value(format!("{body}{stored}").as_str());
        let known = self.0.get_key_value(stored);
        let known = known.or_else(|| BODIES.into_iter().find_map(with));
        known.map(|(name, shape)| (*name, *shape))
    }

    /// The table of tokens.
    fn table(&self) -> Option<&'static str> {
        let mut tables = TABLES.into_iter();
        tables.find(|&table| self.0.contains_key(table))
    }
}

/// A head that is tied and all the same there must be what it is tied to.
fn check_tie(shards: &[Shard], head: &Located, table: &Located) -> Result<()> {
    let alike =
        head.entry.shape() == table.entry.shape() && head.entry.dtype() == table.entry.dtype();
    let (of_head, of_table) = (&shards[head.shard], &shards[table.shard]);
    if alike && of_head.bytes(&head.entry)? == of_table.bytes(&table.entry)? {
        return Ok(());
    }
    Err(of_head.fault(format!(
        "`{HEAD}` differs from the table of tokens, but config.json ties them: set tie_word_embeddings to false"
    )))
}

/// Whether a tensor is one of those that older files keep beside the weights of a block: a causal mask, or
/// the frequencies of rotary positions.
fn is_mask(stored: &str) -> bool {
    if stored.ends_with(".self_attn.rotary_emb.inv_freq") {
        return true;
    }
    let inside = stored
        .strip_prefix(BODIES[0])
        .unwrap_or(stored)
        .strip_prefix("h.");
    inside
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(block, what)| {
            block.parse::<u32>().is_ok() && matches!(what, "attn.bias" | "attn.masked_bias")
        })
}
