//! Classes and masks of pictures by a trained model, through the forward-only path of the pipeline.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gpipe_data::{NamedPicture, PictureMask, PictureReader, ViewedPicture};
use gpipe_remat::{Assembled, OutputStage, WireCodec, batch_items, micro_batches};
use gpipe_report::{PredictedClass, PredictedPicture};
use gpipe_tensor::Tensor;

use crate::config::TrainConfig;
use crate::dataset::{image_options, known_classes};
use crate::error::{Error, Result};
use crate::launch::check_same_request;
use crate::setup::Setup;

/// What a model makes of a picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Prediction {
    /// The classes, the likeliest first.
    Classes(Vec<PredictedClass>),
    /// The mask of a model that learns masks.
    Mask(PictureMask),
}

impl Prediction {
    /// The object of a picture with this prediction: the `top` likeliest classes, or the mask, which is written to `file`.
    pub fn describe(
        self,
        picture: &NamedPicture,
        top: usize,
        file: Option<&Path>,
    ) -> PredictedPicture {
        let mut described = PredictedPicture {
            picture: picture.path.display().to_string(),
            ..PredictedPicture::default()
        };
        match self {
            Self::Classes(mut classes) => {
                classes.truncate(top);
                described.classes = classes;
            }
            Self::Mask(mask) => {
                described.mask = file.map(|file| file.display().to_string());
                described.share = Some(mask.share);
            }
        }
        described
    }
}

/// Predicts the classes or the masks of pictures.
#[derive(Debug)]
pub struct Predictor {
    run: Assembled<OutputStage>,
    reader: PictureReader,
    batch: usize,
    parts: usize,
    learns_masks: bool,
    names: Vec<String>,
}

impl Predictor {
    /// Starts the workers of `setup`, whose weights are open ([`Setup::open_weights`]).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a model that takes no pictures; those of [`Setup::assemble_to`].
    pub fn new(setup: Setup, config: &TrainConfig) -> Result<Self> {
        if !config.model.is_classifier() {
            return Err(Error::invalid(format!(
                "{}: the model continues text and takes no pictures: use gpipe sample",
                config.model.name
            )));
        }
        let names = known_classes(config.model.folder())?;
        let image = image_options(config, Vec::new());
        let threads = config.pipeline.threads.get();
        Ok(Self {
            reader: PictureReader::new(image.as_ref(), &config.data.source, threads),
            batch: config.data.batch_size.get(),
            parts: config.pipeline.micro_batches.get(),
            learns_masks: config.learns_masks(),
            names,
            run: setup.assemble_to(config, |last, _| OutputStage::new(last))?,
        })
    }

    /// The number of pictures of a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Predicts what these pictures show, in their order. Every rank calls it with the same.
    ///
    /// # Errors
    /// [`Error::Input`] for a picture that cannot be read; [`Error::Run`] if a stage fails or the outputs are not finite;
    /// [`Error::Invalid`] if another rank was given other pictures.
    pub fn predict(&mut self, pictures: &[NamedPicture]) -> Result<Vec<Prediction>> {
        let paths: Vec<&Path> = pictures.iter().map(|picture| &*picture.path).collect();
        let pictures = self.reader.read(&paths)?;
        let views: Vec<&[f32]> = pictures.iter().flat_map(ViewedPicture::views).collect();
        if let Some(world) = self.run.pipeline.world() {
            let views = views.len();
            check_same_request(world, ["picture", "pictures"], format!("{paths:?} {views}"))?;
        }
        let mut outputs = Vec::with_capacity(views.len());
        for views in views.chunks(self.batch) {
            outputs.extend(self.outputs(views)?);
        }
        let mut outputs = outputs.into_iter();
        let predicted = pictures.iter().map(|picture| {
            let of_views: Vec<Vec<f32>> = outputs.by_ref().take(picture.views().len()).collect();
            match self.learns_masks {
                true => {
                    let of_views: Vec<_> = of_views.into_iter().map(probabilities).collect();
                    Prediction::Mask(picture.mask(&of_views))
                }
                false => Prediction::Classes(self.classes(&of_views.concat())),
            }
        });
        Ok(predicted.collect())
    }

    /// The outputs of the model for some views: the logits of classes, or of pixels.
    fn outputs(&mut self, views: &[&[f32]]) -> Result<Vec<Vec<f32>>> {
        let parts = self.parts.min(views.len());
        let input = self.reader.tensor(&self.run.transit, views)?;
        let items = batch_items(&[input], parts, 0, false, |_| Ok(())).map_err(Error::run)?;
        self.run.pipeline.forward(items).map_err(Error::run)?;
        let codec = WireCodec::of(&self.run.pipeline);
        let transit = self.run.transit.clone();
        let outputs = self
            .run
            .pipeline
            .with_loss_stage_across(&codec, move |turn| {
                let on_host = |logits: Tensor| {
                    let values = logits.to_f32s()?;
                    Tensor::from_f32(&transit, [values.len()], values)
                };
                let outputs = turn.take().into_iter().map(on_host);
                Ok::<_, gpipe_remat::Error>(outputs.collect::<gpipe_tensor::Result<Vec<_>>>()?)
            })
            .map_err(Error::run)?;
        let mut all = Vec::with_capacity(views.len());
        for (output, samples) in outputs
            .iter()
            .zip(micro_batches(views.len(), parts).map_err(Error::run)?)
        {
            let values = output.to_f32s().map_err(Error::run)?;
            if !values.iter().all(|value| value.is_finite()) {
                return Err(Error::diverged());
            }
            let each = (values.len() / samples.len()).max(1);
            all.extend(values.chunks_exact(each).map(<[f32]>::to_vec));
        }
        Ok(all)
    }

    /// The classes by their probability: softmax of the logits, which are finite.
    fn classes(&self, logits: &[f32]) -> Vec<PredictedClass> {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = logits
            .iter()
            .map(|logit| f64::from(logit - largest).exp())
            .collect();
        let sum: f64 = powers.iter().sum();
        let scored = powers.iter().enumerate().map(|(class, power)| {
            let name = self.names.get(class);
            PredictedClass {
                class,
                name: name.cloned().unwrap_or_else(|| class.to_string()),
                probability: power / sum,
            }
        });
        let mut classes: Vec<_> = scored.collect();
        // Stable: of equal ones the first, as in accuracies.
        classes.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        classes
    }
}

/// The logistic function of each logit.
fn probabilities(mut logits: Vec<f32>) -> Vec<f32> {
    for logit in &mut logits {
        *logit = 1.0 / (1.0 + (-*logit).exp());
    }
    logits
}

/// The files of the masks of pictures in a folder, each named as its picture with the ending `.png`. `None` for a model that
/// learns no masks.
///
/// # Errors
/// [`Error::Invalid`] if there is no folder for masks or nothing to put into one, for two pictures with the same name, and
/// for a file that is there.
pub fn mask_files(
    config: &TrainConfig,
    pictures: &[NamedPicture],
    folder: Option<&Path>,
) -> Result<Option<Vec<PathBuf>>> {
    let Some(folder) = folder else {
        return match config.learns_masks() {
            false => Ok(None),
            true => Err(Error::invalid(format!(
                "the model {} predicts masks: name a folder to write them to with --masks FOLDER",
                config.model.name
            ))),
        };
    };
    let shown = folder.display();
    if !config.learns_masks() {
        return Err(Error::invalid(format!(
            "--masks {shown}: the model {} predicts classes: leave it out",
            config.model.name
        )));
    }
    let mut known = HashMap::new();
    let mut files = Vec::with_capacity(pictures.len());
    for picture in pictures {
        let file = folder.join(Path::new(&picture.name).with_extension("png"));
        if let Some(other) = known.insert(file.clone(), &picture.path) {
            return Err(Error::invalid(format!(
                "--masks {shown}: {} and {} have the same name: predict them one after the other, into two folders",
                other.display(),
                picture.path.display()
            )));
        }
        if file.symlink_metadata().is_ok() {
            return Err(Error::invalid(format!(
                "--masks {shown}: {} is there: name a new folder",
                file.display()
            )));
        }
        files.push(file);
    }
    Ok(Some(files))
}

/// Writes a mask to a new file, and makes its folder.
///
/// # Errors
/// [`Error::Invalid`] if the folder cannot be made, [`Error::Run`] if the file cannot be written.
pub fn write_mask(mask: &PictureMask, file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| {
        let shown = folder.display();
        Error::invalid(format!(
            "--masks: {shown}: {error}: name a folder that can be made"
        ))
    })?;
    gpipe_files::replace(file, &mask.to_png().map_err(Error::run)?).map_err(Error::run)
}
