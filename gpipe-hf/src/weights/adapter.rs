//! Which tensor of an adapter's file is which parameter of the model.

use std::collections::HashMap;
use std::path::Path;

use gpipe_tensor::Shape;

use super::found::Found;
use super::shard::{Located, Shard};
use crate::adapter::{ADAPTER_WEIGHTS, MEND, PREFIX, is_adapter, read_adapter};
use crate::error::Result;

/// Opens the file of an adapter and finds its tensors by their global names, or the first that does not fit those
/// among the parameters of the model.
pub fn open(
    folder: &Path,
    shapes: &[(String, Shape)],
) -> Result<(Vec<Shard>, HashMap<String, Located>)> {
    let base = read_adapter(folder)?.base;
    let mut found = Found::default();
    found.add(folder.join(ADAPTER_WEIGHTS), MEND)?;
    let Found { shards, entries } = found;
    let shapes = shapes.iter().filter(|(name, _)| is_adapter(name));
    let mut wanted: HashMap<&str, &Shape> = shapes.map(|(name, shape)| (&**name, shape)).collect();
    let misfit = |what: String| {
        let of = base.map_or(String::new(), |base| format!(", `{base}`"));
        shards[0].fault(format!(
            "{what}: it is an adapter for another model{of}: name one for this model"
        ))
    };
    let mut located = HashMap::new();
    for Located { shard, entry } in entries {
        let name = entry.name();
        let wanted = (name.strip_prefix(PREFIX)).and_then(|bare| wanted.remove_entry(bare));
        let Some((bare, shape)) = wanted else {
            return Err(misfit(format!("`{name}` fits no layer")));
        };
        if entry.shape() != shape {
            let found = entry.shape();
            return Err(misfit(format!(
                "`{name}` has shape {found}, but the layer asks for {shape}"
            )));
        }
        if !entry.is_readable() || entry.dtype() == "U32" {
            return Err(shards[0].fault(format!(
                "`{name}` holds {} elements: only F32, F16 and BF16 can be trained",
                entry.dtype()
            )));
        }
        located.insert(bare.to_owned(), Located { shard, entry });
    }
    match wanted.into_keys().min() {
        Some(name) => Err(misfit(format!("there is no `{PREFIX}{name}`"))),
        None => Ok((shards, located)),
    }
}
