//! The weights of a folder: checked by their headers, then read one tensor at a time.

mod adapter;
mod found;
mod matching;
mod shard;

use std::collections::HashMap;
use std::error::Error as StdError;
use std::ops::Range;
use std::path::Path;

use gpipe_layers::Layer;
use gpipe_remat::{LayerStage, share_ties};
use gpipe_sched::{LossStage, Pipeline};
use gpipe_tensor::{Device, Shape, Tensor, Tensors};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::gguf::{Gguf, GgufWeights, is_gguf};
use crate::layout::{from_file_layout, shape_in_file};
use crate::names::{CONFIG, INDEX, MEND, MEND_OF_FILE, WEIGHTS};
use crate::tensor_file::TensorFile;
use found::Found;
use shard::{Located, Shard};

/// Bytes at each end of a tensor that tell models apart.
const SAMPLE: u64 = 4096;

/// Every tensor of a model in the files of a folder. That all of them are there, each of the right
/// shape and of a type that can be read, was checked.
#[derive(Debug)]
pub struct Weights(Source);

#[derive(Debug)]
enum Source {
    Folder {
        shards: Vec<Shard>,
        /// By global name.
        located: HashMap<String, Located>,
    },
    Gguf(GgufWeights),
}

impl Weights {
    /// Opens the weights of a folder, or of a GGUF file, and checks them against the parameters of a model, by global
    /// name. Nothing but headers is read.
    ///
    /// Names may lack the prefix `transformer.`; causal masks, a copy of a tied head and PyTorch's counters of
    /// batch norms are passed over.
    ///
    /// # Errors
    /// [`Error::File`] for files that cannot be read, [`Error::Invalid`] for damaged ones, and for
    /// tensors that are missing, foreign, twice there, or of another shape or type.
    pub fn open(folder: &Path, shapes: &[(String, Shape)]) -> Result<Self> {
        if is_gguf(folder) {
            let weights = Gguf::open(folder)?.weights(shapes)?;
            return Ok(Self(Source::Gguf(weights)));
        }
        let single = folder.join(WEIGHTS);
        let index = folder.join(INDEX);
        let mut found = Found::default();
        // Transformers prefers the single file, too.
        if single.exists() || !index.exists() {
            found.add(single, MEND)?;
        } else {
            found.add_listed(folder, &index)?;
        }
        Self::of(found, (folder, CONFIG), (shapes, &[]))
    }

    /// [`open`](Self::open) of one safetensors file. The parameters named in `head`, those of a classifier, are left out where
    /// the file has them for another number of classes: they [`have`](Self::has) no value then.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_file(file: &Path, shapes: &[(String, Shape)], head: &[String]) -> Result<Self> {
        let mut found = Found::default();
        found.add(file.to_owned(), MEND_OF_FILE)?;
        Self::of(found, (file, "the configuration"), (shapes, head))
    }

    /// Opens the adapters in a folder of `peft` and checks them against those among the parameters of a model, by global
    /// name. Nothing but the header is read.
    ///
    /// # Errors
    /// As `open`, where tensors do not fit with the name of the model that the adapters are for, if the folder has it.
    pub fn open_adapter(folder: &Path, shapes: &[(String, Shape)]) -> Result<Self> {
        let (shards, located) = adapter::open(folder, shapes)?;
        Ok(Self(Source::Folder { shards, located }))
    }

    fn of(
        found: Found,
        place: (&Path, &str),
        (shapes, head): (&[(String, Shape)], &[String]),
    ) -> Result<Self> {
        let Found { shards, entries } = found;
        let shapes = shapes.iter();
        let stored: Vec<_> = shapes
            .map(|(name, shape)| (name.clone(), shape_in_file(shape)))
            .collect();
        let located = matching::locate((&stored, head), place, &shards, entries)?;
        Ok(Self(Source::Folder { shards, located }))
    }

    /// Whether there is a value for the parameter of this global name.
    pub fn has(&self, name: &str) -> bool {
        match &self.0 {
            Source::Folder { located, .. } => located.contains_key(name),
            Source::Gguf(weights) => weights.has(name),
        }
    }

    /// Reads the value of a parameter by its global name. Half floats and quantized numbers become single
    /// ones.
    ///
    /// # Errors
    /// [`Error::UnknownParameter`]; [`Error::File`] or [`Error::Invalid`] if the file cannot be read
    /// or holds values that are not finite.
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        let (shards, located) = match &self.0 {
            Source::Folder { shards, located } => (shards, located),
            Source::Gguf(weights) => return weights.tensor(name, device),
        };
        let Some(Located { shard, entry }) = located.get(name) else {
            return Err(Error::UnknownParameter(name.to_owned()));
        };
        let shard = &shards[*shard];
        let bytes = shard.bytes(entry)?;
        let tensor = entry
            .tensor(&bytes, device)
            .map_err(|error| shard.fault(error))?;
        let finite = tensor
            .to_f32s()
            .is_ok_and(|values| values.iter().all(|value| value.is_finite()));
        match finite {
            true => from_file_layout(tensor).map_err(|error| shard.fault(error)),
            false => Err(shard.fault(format!(
                "`{}` holds values that are not finite: take the weights of an earlier checkpoint",
                entry.name()
            ))),
        }
    }

    /// A SHA-256 digest, in hexadecimal digits, of the names and lengths of all tensors and of the first and last 4,096
    /// bytes of each: tells models apart that were trained apart, of any size, in a moment.
    ///
    /// # Errors
    /// [`Error::File`] if a file cannot be read.
    pub fn sampled_digest(&self) -> Result<String> {
        let mut tensors: Vec<(&String, (&TensorFile, Range<u64>))> = match &self.0 {
            Source::Folder { shards, located } => {
                let located = located.iter();
                let placed = located.map(|(name, at)| (name, shards[at.shard].place(&at.entry)));
                placed.collect()
            }
            Source::Gguf(weights) => weights.tensors().collect(),
        };
        tensors.sort_unstable_by_key(|(name, ..)| *name);
        let mut digest = Sha256::new();
        for (name, (file, Range { start, end })) in tensors {
            digest.update(name);
            digest.update((end - start).to_le_bytes());
            digest.update(file.bytes(name, start..end.min(start + SAMPLE))?);
            digest.update(file.bytes(name, start.max(end.saturating_sub(SAMPLE))..end)?);
        }
        let bytes = digest.finalize();
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Gives the parameters of a pipeline their values, tied ones included, but for those that the files were not
    /// opened for ([`open`](Self::open)). The stages read theirs at the same time.
    ///
    /// # Errors
    /// [`Error::Load`] for what [`tensor`](Self::tensor) refuses, or a parameter of another shape.
    pub fn load<T: LossStage<Tensors> + 'static>(
        self,
        pipeline: &mut Pipeline<LayerStage, T>,
    ) -> Result<()> {
        let loaded = pipeline.each(move |_, stage| {
            let device = stage.device().clone();
            let mut result = Ok(());
            stage.params(|param| {
                if result.is_ok() && !param.tied && self.has(&param.name) {
                    result = self
                        .tensor(&param.name, &device)
                        .map_err(Box::<dyn StdError + Send + Sync>::from)
                        .and_then(|value| Ok(param.set_value(&value)?));
                }
            });
            result
        });
        loaded.map_err(Error::Load)?;
        share_ties(pipeline).map_err(Error::ShareTies)
    }
}

/// Global names and shapes of the parameters of layers, a tied one once: what [`Weights::open`] looks
/// for. The parameters need not be made.
pub fn parameter_shapes(layers: &mut [Box<dyn Layer>]) -> Vec<(String, Shape)> {
    let mut shapes = Vec::new();
    for layer in layers {
        layer.params(&mut |param| {
            if !param.tied {
                shapes.push((param.name.clone(), param.shape.clone()));
            }
        });
    }
    shapes
}
