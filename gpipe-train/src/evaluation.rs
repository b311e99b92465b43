//! What an evaluation is of, and what it finds.

use gpipe_data::{Dataset, Vocabulary};
use gpipe_report::numbers;

use crate::config::TrainConfig;
use crate::dataset::{dataset, held_out_dataset};
use crate::error::Result;
use crate::model_source::ModelSource;
use crate::printable::printable;

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// The mean loss over the targets.
    pub loss: f64,
    /// The fraction of targets predicted with the highest logit.
    pub accuracy: f64,
    /// The number of targets: tokens or images.
    pub targets: u64,
}

impl Evaluation {
    /// A line with the loss, for a text the perplexity, the accuracy, and the number of tokens or images of `dataset`.
    pub fn line(&self, config: &TrainConfig, dataset: &Dataset) -> String {
        let perplexity = match config.model.is_classifier() {
            true => String::new(),
            false => format!("  perplexity {}", numbers::figure(self.loss.exp(), 3)),
        };
        let [_, unit] = config.model.unit();
        format!(
            "loss {}{perplexity}  accuracy {}  {unit} {}",
            numbers::figure(self.loss, 4),
            numbers::per_mille(self.accuracy),
            units(config, dataset, self.targets)
        )
    }
}

/// A line with what is evaluated: the model, with its number of parameters, and the held-out samples of `dataset`.
pub fn evaluation_heading(config: &TrainConfig, parameters: u64, dataset: &Dataset) -> String {
    let cut = match config.model.is_classifier() {
        true => String::new(),
        false => format!(" in samples of {}", dataset.targets_per_sample()),
    };
    let [_, unit] = config.model.unit();
    let count = units(config, dataset, dataset.held_out_targets());
    let singular = unit.strip_suffix('s').filter(|_| count == 1);
    format!(
        "{}: {} parameters; {}: {} {}{cut}",
        config.model.name,
        numbers::short(parameters as f64),
        printable(&config.data.source),
        numbers::short(count as f64),
        singular.unwrap_or(unit),
    )
}

/// The number of tokens or images that have these targets: a mask has one for each of its pixels.
fn units(config: &TrainConfig, dataset: &Dataset, targets: u64) -> u64 {
    let held_out = dataset.held_out();
    match config.model.is_classifier() {
        true => held_out.end - held_out.start,
        false => targets,
    }
}

impl ModelSource {
    /// The samples that the model is evaluated on: the held-out part of its run, or all where it held out none, the model has no
    /// run, or `is_other` says that the data are not those of the run.
    ///
    /// # Errors
    /// As [`dataset`].
    pub fn evaluation_dataset(
        &self,
        config: &TrainConfig,
        vocabulary: &Vocabulary,
        is_other: bool,
    ) -> Result<Dataset> {
        match self.run.is_some() && !is_other && config.run.eval_every.get() > 0 {
            true => dataset(config, vocabulary),
            false => held_out_dataset(config, vocabulary),
        }
    }
}
