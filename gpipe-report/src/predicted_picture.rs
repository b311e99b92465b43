//! The object of a picture that a model predicted.

use serde::Serialize;

use crate::numbers;

/// What a model predicts that a picture shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PredictedPicture {
    /// Path of the picture.
    pub picture: String,
    /// Likeliest classes, the likeliest first; no key for a model that learns masks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<PredictedClass>,
    /// Path of the file of its mask; no key for a classifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
    /// Share of the pixels of the mask of 1/2 or more; no key for a classifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl PredictedPicture {
    /// A line such as `a.png: cat 98.2 %, dog 1.8 %`, or `a.png: masks/a.png 12.5 %`.
    pub fn line(&self) -> String {
        let part = |name: &str, share| format!("{name} {}", numbers::per_mille(share));
        let classes = self.classes.iter();
        let classes = classes.map(|one| part(&one.name, one.probability));
        let mask = self.mask.iter().zip(self.share);
        let mask = mask.map(|(path, share)| part(path, share));
        let parts: Vec<String> = classes.chain(mask).collect();
        format!("{}: {}", self.picture, parts.join(", "))
    }
}

/// A class of a picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedClass {
    /// Number, from 0.
    pub class: usize,
    /// Name, or the number for a model without names.
    pub name: String,
    /// Probability, from 0 to 1; those of all classes add up to 1.
    pub probability: f64,
}
