//! Pictures without targets, for a model to predict these: named files, seen as in an evaluation.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use gpipe_tensor::{Device, Shape, Tensor};
use image::imageops::{self, FilterType};
use image::{GenericImageView, GrayImage, ImageBuffer, ImageFormat, Luma};

use super::view::View;
use super::{DIGITS, PIXELS, SIDE, picture};
use crate::error::{Error, Result};
use crate::folder_walk::{FolderWalk, below};
use crate::options::ImageOptions;
use crate::source::is_picture;

/// A picture that is named, or lies in a folder that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPicture {
    /// The name of its file, or what of its path lies below the folder.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
}

/// The pictures of these paths, in their order: files, and the PNG and JPEG files in folders at any depth, by name. Folders of
/// runs and links to folders are left out.
///
/// # Errors
/// [`Error::NoPicture`] for a path that is not there, or a folder without a picture.
pub fn named_pictures(named: &[PathBuf]) -> Result<Vec<NamedPicture>> {
    let mut all = Vec::new();
    for path in named {
        let none = |fault: &str| Error::NoPicture {
            path: path.clone(),
            fault: fault.to_owned(),
        };
        if !path.is_dir() {
            path.symlink_metadata().map_err(|_| none("is not there"))?;
            let name = path.file_name().unwrap_or(path.as_os_str());
            all.push(NamedPicture {
                name: name.to_string_lossy().into_owned(),
                path: path.clone(),
            });
            continue;
        }
        let walk = FolderWalk::of(path).map_err(|_| none("cannot be listed"))?;
        let before = all.len();
        let found = walk.files.into_iter().filter(|file| is_picture(file));
        all.extend(found.map(|file| NamedPicture {
            name: below(path, &file),
            path: file,
        }));
        if all.len() == before {
            return Err(none("holds no picture"));
        }
    }
    Ok(all)
}

/// The form in which a model takes pictures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureReader {
    form: Form,
    size: u32,
    channels: usize,
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The square in the centre that evaluations see.
    Centre,
    /// Squares that cover the whole picture.
    Covered,
    /// Ink from 0 to 1 as that of [`DIGITS`], in rows of pixels if `as_rows`.
    Ink { as_rows: bool },
}

/// A picture in the form that a model takes: in one part, or for masks in the parts that cover it.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewedPicture {
    width: u32,
    height: u32,
    views: Vec<View>,
    /// Those of each view, one after the other.
    values: Vec<f32>,
}

/// The most squares that cover a picture.
const MOST_SQUARES: u32 = 16;

impl PictureReader {
    /// A reader for a model that was trained on `source`, by `threads` threads. Without options, the model takes the
    /// digits' pixels as a row.
    pub fn new(options: Option<&ImageOptions>, source: &str, threads: usize) -> Self {
        let form = match options {
            None => Form::Ink { as_rows: true },
            Some(image) if image.masks => Form::Covered,
            Some(_) if source == DIGITS => Form::Ink { as_rows: false },
            Some(_) => Form::Centre,
        };
        Self {
            form,
            // Lossless: a picture of more pixels has no memory.
            size: options.map_or(SIDE, |image| image.size) as u32,
            channels: options.map_or(1, |image| image.channels),
            threads: threads.max(1),
        }
    }

    /// Reads pictures.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::NoPicture`] for the first that cannot be read or decoded, or, where all of it is to be
    /// seen, has a side that is more than 16 times as long as the other.
    pub fn read(&self, paths: &[&Path]) -> Result<Vec<ViewedPicture>> {
        let each = paths.len().div_ceil(self.threads).max(1);
        std::thread::scope(|scope| {
            let read = |part: &[&Path]| part.iter().map(|path| self.view(path)).collect();
            let parts: Vec<_> = paths
                .chunks(each)
                .map(|part| scope.spawn(move || read(part)))
                .collect();
            let mut all = Vec::with_capacity(paths.len());
            for part in parts {
                let part: Result<Vec<ViewedPicture>> = part
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                all.extend(part?);
            }
            Ok(all)
        })
    }

    fn view(&self, path: &Path) -> Result<ViewedPicture> {
        let no_picture = |fault: String| Error::NoPicture {
            path: path.to_owned(),
            fault,
        };
        let picture = picture::read(path).map_err(|error| match error {
            Error::Picture { fault, .. } => no_picture(fault),
            Error::File(error) => Error::File(error.with_mend("make it readable, or leave it out")),
            other => other,
        })?;
        let (width, height) = picture.dimensions();
        let views = match self.form {
            Form::Centre => vec![View::evaluated(width, height)],
            Form::Ink { .. } => vec![View::largest(width, height)],
            Form::Covered if width.max(height) > MOST_SQUARES * width.min(height) => {
                return Err(no_picture(format!(
                    "has {width} by {height} pixels, one side more than {MOST_SQUARES} times the other"
                )));
            }
            Form::Covered => View::covering(width, height),
        };
        let mut values = vec![0.0; views.len() * self.values()];
        for (view, values) in views.iter().zip(values.chunks_mut(self.values())) {
            match self.form {
                Form::Ink { .. } => view.shades(&picture, self.size, FilterType::Triangle, values),
                _ => view.picture(&picture, self.size, self.channels, values),
            }
        }
        Ok(ViewedPicture {
            width,
            height,
            views,
            values,
        })
    }

    /// Values of a view.
    fn values(&self) -> usize {
        (self.size as usize * self.size as usize * self.channels).max(1)
    }

    /// Some [views](ViewedPicture::views) as the model takes them, on `device`: in the shapes of
    /// [`Dataset::tensors`](crate::Dataset::tensors).
    ///
    /// # Errors
    /// [`Error::Tensor`].
    pub fn tensor(&self, device: &Device, views: &[&[f32]]) -> Result<Tensor> {
        let size = self.size as usize;
        let shape = match self.form {
            Form::Ink { as_rows: true } => Shape::from([views.len(), PIXELS]),
            _ => Shape::from([views.len(), size, size, self.channels]),
        };
        Ok(Tensor::from_f32(device, shape, views.concat())?)
    }
}

impl ViewedPicture {
    /// The values of each part of the picture that the model sees.
    pub fn views(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values
            .chunks((self.values.len() / self.views.len()).max(1))
    }

    /// The mask of the whole picture, of those of its views: `size × size` values from 0 to 1 each. Where views overlap it is their mean.
    pub fn mask(&self, of_views: &[Vec<f32>]) -> PictureMask {
        let pixels = self.width as usize * self.height as usize;
        let (mut sums, mut counts) = (vec![0.0; pixels], vec![0.0_f32; pixels]);
        for (view, mask) in self.views.iter().zip(of_views) {
            let size = mask.len().isqrt() as u32;
            let mask = ImageBuffer::<Luma<f32>, _>::from_raw(size, size, mask.as_slice());
            let Some(mask) = mask else { continue };
            let [left, top, width, height] = view.place();
            let mask = imageops::resize(&mask, width, height, FilterType::Triangle);
            for (x, y, value) in mask.enumerate_pixels() {
                let place = (top + y) as usize * self.width as usize + (left + x) as usize;
                sums[place] += value.0[0];
                counts[place] += 1.0;
            }
        }
        let shades = sums.iter().zip(&counts).map(|(sum, count)| {
            let mean = sum / count.max(1.0);
            (mean * 255.0).round().clamp(0.0, 255.0) as u8
        });
        let shades: Vec<u8> = shades.collect();
        let within = shades.iter().filter(|&&shade| shade >= 128).count();
        PictureMask {
            share: within as f64 / pixels as f64,
            shades: GrayImage::from_raw(self.width, self.height, shades).unwrap_or_default(),
        }
    }
}

/// A mask as large as its picture, in shades from black (0) to white (1).
#[derive(Clone, Debug, PartialEq)]
pub struct PictureMask {
    /// The share of pixels of 1/2 or more.
    pub share: f64,
    shades: GrayImage,
}

impl PictureMask {
    /// The bytes of a PNG file.
    ///
    /// # Errors
    /// What the encoder says.
    pub fn to_png(&self) -> std::result::Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        let mut bytes = Cursor::new(Vec::new());
        self.shades.write_to(&mut bytes, ImageFormat::Png)?;
        Ok(bytes.into_inner())
    }
}

#[cfg(test)]
mod tests;
