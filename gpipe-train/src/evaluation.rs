//! What an evaluation is of, and what it finds.

use gpipe_data::{Dataset, Vocabulary};
use gpipe_report::{EvaluatedClass, Event, numbers};

use crate::config::TrainConfig;
use crate::dataset::{evaluated_names, held_out_dataset, training_dataset};
use crate::error::Result;
use crate::evaluated_classes::{class_table, mask_figures};
use crate::model_source::ModelSource;
use crate::printable::printable;

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// The mean loss over the targets.
    pub loss: f64,
    /// The fraction of targets predicted with the highest logit.
    pub accuracy: f64,
    /// The number of targets: tokens or images.
    pub targets: u64,
    /// The classes that targets are of or are predicted to be of, by number; none unless the end of the pipeline
    /// [counts them](gpipe_remat::TrainingLoss::counting_predictions).
    pub classes: Vec<EvaluatedClass>,
}

impl Evaluation {
    /// The event of this evaluation after `step` training steps, or of one without training.
    pub fn event(&self, step: Option<u64>) -> Event {
        Event::eval(step, self.loss, self.accuracy, self.targets).of_classes(self.classes.clone())
    }

    /// A line with the loss, for a text the perplexity, the accuracy, for masks how well they cover what they should, and the
    /// number of tokens or images of `dataset`; for a classifier, a table of the classes that were counted.
    pub fn lines(&self, config: &TrainConfig, dataset: &Dataset) -> String {
        let perplexity = match config.model.is_classifier() {
            true => String::new(),
            false => format!("  perplexity {}", numbers::figure(self.loss.exp(), 3)),
        };
        let (masks, table) = match (&*self.classes, config.learns_masks()) {
            ([], _) => Default::default(),
            (classes, true) => (mask_figures(classes), String::new()),
            (classes, false) => (String::new(), class_table(classes)),
        };
        let [_, unit] = config.model.unit();
        let line = format!(
            "loss {}{perplexity}  accuracy {}{masks}  {unit} {}",
            numbers::figure(self.loss, 4),
            numbers::per_mille(self.accuracy),
            units(config, dataset, self.targets)
        );
        match table.is_empty() {
            true => line,
            false => format!("{line}\n{}", table.trim_end()),
        }
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
    /// As [`dataset`](fn@crate::dataset); for a class that the model does not know.
    pub fn evaluation_dataset(
        &self,
        config: &TrainConfig,
        vocabulary: &Vocabulary,
        is_other: bool,
    ) -> Result<Dataset> {
        match self.run.is_some() && !is_other && config.run.eval_every.get() > 0 {
            // As the model numbers them: classes that it does not know are refused.
            true => training_dataset(config, vocabulary, evaluated_names(config)?),
            false => held_out_dataset(config, vocabulary),
        }
    }
}
