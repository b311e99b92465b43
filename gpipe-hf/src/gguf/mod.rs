//! Models in a file of the format GGUF, as llama.cpp writes them.

mod header;
mod kind;
mod model;
mod rope;
#[cfg(test)]
mod tests;
mod tokenizer;

use std::collections::{HashMap, HashSet};
use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

use gpipe_files::{Links, open_regular};
use gpipe_tensor::{Device, Shape, Tensor};

use crate::description::Description;
use crate::error::{Error, Result};
use crate::names::{MEND, SETTINGS, TOKENIZER};
use crate::tensor_file::TensorFile;
use header::{Entry, Header};

/// The mend where tensors are not those of the metadata.
const MEND_OF_WEIGHTS: &str = "take a file that llama.cpp reads";

/// Whether a path is that of a GGUF file, by its ending.
pub fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

/// A file, and its header, which was checked against its length.
pub struct Gguf {
    file: TensorFile,
    pub header: Header,
}

impl Gguf {
    /// Opens a file; nothing but its header is read.
    pub fn open(path: &Path) -> Result<Self> {
        let (file, length) = open_regular(path, Links::Followed, MEND)?;
        let header = Header::parse(BufReader::new(&file), length);
        let file = TensorFile::new(path.to_owned(), file, MEND);
        match header {
            Ok(header) => Ok(Self { file, header }),
            Err(fault) => Err(file.fault(fault)),
        }
    }

    /// The model that the metadata describe.
    fn describe(&self) -> Result<Description> {
        let fault = |fault| self.file.fault(fault);
        let entry = self.header.frequency_factors().map_err(fault)?;
        let bytes = entry.map(|entry| self.file.bytes(&entry.name, range(entry)));
        let factors = entry.zip(bytes.transpose()?);
        let factors = factors.map(|(entry, bytes)| entry.kind.floats(&bytes));
        self.header.describe(factors.as_deref()).map_err(fault)
    }

    /// The weights, if they are all those of a model.
    pub fn weights(self, shapes: &[(String, Shape)]) -> Result<GgufWeights> {
        let fault = |fault| self.file.fault(fault);
        let located = self.header.located().map_err(fault)?;
        for (name, shape) in shapes {
            let Some((entry, heads)) = located.get(name) else {
                return Err(fault(format!(
                    "no weights for `{name}`, which its metadata ask for: {MEND_OF_WEIGHTS}"
                )));
            };
            let rows = entry.shape.first().copied().unwrap_or(0);
            let halves = heads.is_none_or(|heads| {
                rows > 0 && rows.checked_rem(heads) == Some(0) && rows / heads % 2 == 0
            });
            if entry.shape != shape.dims() || !halves {
                return Err(fault(format!(
                    "`{}` has shape {:?}, but its metadata ask for {shape}: {MEND_OF_WEIGHTS}",
                    entry.name, entry.shape
                )));
            }
        }
        let wanted: HashSet<&String> = shapes.iter().map(|(name, _)| name).collect();
        let mut strange = located.iter().filter(|(name, _)| !wanted.contains(name));
        if let Some((_, (entry, _))) = strange.next() {
            return Err(fault(format!(
                "`{}` is no parameter of the model that its metadata describe: {MEND_OF_WEIGHTS}",
                entry.name
            )));
        }
        Ok(GgufWeights {
            file: self.file,
            located,
        })
    }
}

/// The model that the metadata of a GGUF file describe.
pub fn describe(path: &Path) -> Result<Description> {
    Gguf::open(path)?.describe()
}

/// The model that a GGUF file of these bytes describes, whose weights are not read, and its tokenizer as the bytes of a
/// `tokenizer.json`.
///
/// # Errors
/// [`Error::Malformed`] if the bytes are cut off or damaged, or hold a model or tokenizer of another kind.
pub fn parse_gguf(bytes: &[u8]) -> Result<(Description, Vec<u8>)> {
    let parse = || {
        let header = Header::parse(bytes, bytes.len() as u64)?;
        header.located()?;
        let factors = header.frequency_factors()?.map(|entry| {
            let range = range(entry);
            entry
                .kind
                .floats(&bytes[range.start as usize..range.end as usize])
        });
        Ok((header.describe(factors.as_deref())?, header.tokenizer()?))
    };
    parse().map_err(Error::Malformed)
}

/// The files of the tokenizer in a GGUF file, by their names in a folder.
pub fn tokenizer_files(path: &Path) -> Result<[(String, Vec<u8>); 2]> {
    let Gguf { file, header } = Gguf::open(path)?;
    let tokenizer = header.tokenizer().map_err(|fault| file.fault(fault))?;
    let settings = header.tokenizer_config();
    let settings = settings.map_err(|fault| file.fault(fault))?;
    Ok([
        (TOKENIZER.to_owned(), tokenizer),
        (SETTINGS.to_owned(), settings),
    ])
}

/// The bytes of a `tokenizer.json` that says what the tokenizer in a GGUF file does.
///
/// # Errors
/// [`Error::File`] or [`Error::Invalid`] if the file cannot be read, is damaged, or has a tokenizer of
/// another kind.
pub fn gguf_tokenizer(path: &Path) -> Result<Vec<u8>> {
    let Gguf { file, header } = Gguf::open(path)?;
    header.tokenizer().map_err(|fault| file.fault(fault))
}

/// Where a tensor lies in its file, whose length was checked against it.
fn range(entry: &Entry) -> Range<u64> {
    entry.start..entry.start + entry.length
}

/// The tensors of a file by the names of the parameters.
#[derive(Debug)]
pub struct GgufWeights {
    file: TensorFile,
    /// With the number of heads whose rows are permuted.
    located: HashMap<String, (Entry, Option<usize>)>,
}

impl GgufWeights {
    /// Whether there is a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.located.contains_key(name)
    }

    /// The value of a parameter, in single precision.
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some((entry, heads)) = self.located.get(name) else {
            return Err(Error::UnknownParameter(name.to_owned()));
        };
        let bytes = self.file.bytes(&entry.name, range(entry))?;
        let mut values = entry.kind.floats(&bytes);
        if let Some(heads) = heads {
            values = model::unpermuted(&values, entry.shape[0], *heads);
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(self
                .file
                .fault(format!("`{}` holds values that are not finite", entry.name)));
        }
        let shape = Shape::from(entry.shape.as_slice());
        Tensor::from_f32(device, shape, values).map_err(|error| self.file.fault(error))
    }

    /// Each tensor's name, file and place in it.
    pub fn tensors(&self) -> impl Iterator<Item = (&String, (&TensorFile, Range<u64>))> {
        let located = self.located.iter();
        located.map(|(name, (entry, _))| (name, (&self.file, range(entry))))
    }
}
