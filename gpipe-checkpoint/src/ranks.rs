//! A save by several ranks: rank 0 asks the others to write what they have, and they answer.

use std::fmt;
use std::path::{Path, PathBuf};

use gpipe_layers::Optimizer;
use gpipe_remat::{Answer, Others, ParamState};
use gpipe_sched::{Parcel, Reader, Writer};
use gpipe_tensor::safetensors::Stored;

use super::files::{Order, Ranks, write_part};
use super::fs::{Disk, Fs};
use super::manifest::Listed;
use super::names;
use super::read::read;
use super::snapshot::{ModelWeights, optimizer_file, values_of};

/// Questions: whether a file with these bytes is found, and to write files.
const FIND: u64 = 0;
const WRITE: u64 = 1;

impl Ranks for Others {
    fn find(&self, ranks: &[usize], folder: &Path, text: &str) -> bool {
        let Some(folder) = absolute(folder) else {
            return false;
        };
        let question = |&rank: &usize| {
            let mut out = Writer::default();
            out.bits(FIND);
            out.text(&folder);
            out.text(text);
            (rank, out.finish())
        };
        let ((), answers) = self.ask(ranks.iter().map(question).collect(), || ());
        // One that cannot answer says why when its tensors are fetched.
        let found = |answer: Result<Parcel, String>| Reader::new(answer?).bits();
        answers.into_iter().all(|answer| found(answer) == Ok(1))
    }

    fn write(
        &self,
        folder: &Path,
        orders: &[Order],
        meanwhile: &mut dyn FnMut(),
    ) -> Vec<Result<Vec<Listed>, String>> {
        // It was found there.
        let folder = absolute(folder).unwrap_or_default();
        let question = |order: &Order| {
            let mut out = Writer::default();
            out.bits(WRITE);
            out.text(&folder);
            out.number(order.files.len());
            for (name, whole) in &order.files {
                out.text(name);
                out.text(whole);
            }
            (order.rank, out.finish())
        };
        let questions = orders.iter().map(question).collect();
        let ((), answers) = self.ask(questions, meanwhile);
        let listed = |(answer, order): (Result<Parcel, String>, &Order)| {
            let mut answer = Reader::new(answer?);
            let files = order.files.iter().map(|(name, _)| {
                let (name, bytes, sha256) = (name.clone(), answer.bits()?, answer.text()?);
                let listed = Listed {
                    name,
                    bytes,
                    sha256,
                };
                Ok(listed)
            });
            files.collect()
        };
        answers.into_iter().zip(orders).map(listed).collect()
    }
}

fn absolute(path: &Path) -> Option<String> {
    let absolute = std::path::absolute(path).ok()?;
    Some(absolute.to_str()?.to_owned())
}

/// What a rank that is not the first has of a checkpoint, and writes if it finds the folder that rank 0 made.
pub struct Part {
    /// Its own parameters, as [`gpipe_remat::lend_owned`] gives them.
    pub params: Vec<ParamState<Stored>>,
    /// As that of the [`Snapshot`](crate::Snapshot).
    pub optimizer: Optimizer,
    /// As that of the [`Snapshot`](crate::Snapshot).
    pub weights: ModelWeights,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("params", &self.params.len())
            .field("optimizer", &self.optimizer)
            .finish_non_exhaustive()
    }
}

impl Part {
    /// What [`gpipe_remat::Lender::start`] takes.
    pub fn answer(self) -> Answer {
        Box::new(move |question| self.answer_on(&mut Disk, question))
    }

    /// [`answer`](Self::answer) on any file system.
    pub(crate) fn answer_on<F: Fs>(&self, fs: &mut F, question: Parcel) -> Result<Parcel, String> {
        let mut question = Reader::new(question);
        let mut out = Writer::default();
        match question.bits()? {
            FIND => {
                let (folder, text) = (PathBuf::from(question.text()?), question.text()?);
                out.bits(u64::from(has_probe(fs, &folder, &text)));
            }
            _ => {
                let folder = PathBuf::from(question.text()?);
                let files = (0..question.number()?).map(|_| {
                    let (name, whole) = (question.text()?, question.text()?);
                    let contents = match whole == names::OPTIMIZER {
                        true => optimizer_file(&self.params, &self.optimizer),
                        false => (self.weights.contents)(&values_of(&self.params)),
                    };
                    Ok((name, contents.map_err(|error| error.to_string())?))
                });
                let files = files.collect::<Result<Vec<_>, String>>()?;
                let files: Vec<_> = files.iter().map(|(name, file)| (&**name, file)).collect();
                let written = write_part(fs, &folder, &files).map_err(|error| error.to_string())?;
                for Listed { bytes, sha256, .. } in written {
                    out.bits(bytes);
                    out.text(&sha256);
                }
            }
        }
        Ok(out.finish())
    }
}

/// Whether the probe in a folder has this text.
pub(crate) fn has_probe<F: Fs>(fs: &F, folder: &Path, text: &str) -> bool {
    let read = read(fs, folder, names::PROBE, text.len() as u64);
    read.is_ok_and(|bytes| bytes == text.as_bytes())
}
