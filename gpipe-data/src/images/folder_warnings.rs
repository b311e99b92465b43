//! Warnings about a folder of pictures before it is learned from: masks of class numbers taken for shades, a single
//! class, and pictures that are passed over.

use std::path::Path;

use image::GenericImageView;

use super::listing::{Entry, Target, list};
use super::{picture, view};
use crate::error::Result;
use crate::source::is_picture;

/// The most masks whose shades are looked at.
const MASKS_LOOKED_AT: usize = 16;

/// The shades of a mask from here on are nearer to white than to black.
const HALF: u8 = 128;

/// The warnings about a folder of classes, a line each: a class without others to tell it from, and pictures
/// beside the folders.
pub(super) fn of_classes(
    setting: &str,
    root: &Path,
    entries: &[Entry],
    known: usize,
) -> Result<Vec<String>> {
    let mut told = Vec::new();
    let class = |entry: &Entry| match entry.target {
        Target::Class(class) => Some(class),
        Target::Mask(_) => None,
    };
    let first = entries.first().and_then(class);
    if known <= 1 && entries.iter().all(|entry| class(entry) == first) {
        let name = entries
            .first()
            .and_then(|entry| entry.name.split('/').next());
        told.push(format!(
            "`{setting}`: all pictures are of one class, {}: a classifier learns nothing from them; name a folder with a \
             folder for each class",
            name.unwrap_or_default()
        ));
    }
    let beside: Vec<_> = list(root)?
        .into_iter()
        .filter(|(_, path)| is_picture(path) && path.is_file())
        .collect();
    match &*beside {
        [] => {}
        [(name, _)] => told.push(format!("`{setting}`: a picture beside the folders of classes is passed over: {name}")),
        [(name, _), ..] => told.push(format!(
            "`{setting}`: {} pictures beside the folders of classes are passed over, the first {name}",
            beside.len()
        )),
    }
    Ok(told)
}

/// The warning about the shades of masks, by the first of them that can be read: that none is nearer to white than to
/// black, as where masks are class numbers, colours of a palette or transparency. Masks that are black alone may show nothing.
pub(super) fn of_masks(setting: &str, entries: &[Entry]) -> Option<String> {
    let (mut looked_at, mut brightest, mut is_transparent) = (0, 0, false);
    for entry in entries.iter().take(MASKS_LOOKED_AT) {
        let Target::Mask(path) = &entry.target else {
            continue;
        };
        // A mask that cannot be read is an error where it is drawn.
        let Ok(mask) = picture::read(path) else {
            continue;
        };
        looked_at += 1;
        brightest = view::grey(&mask)
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .max(brightest);
        if brightest >= HALF {
            return None;
        }
        is_transparent |=
            mask.color().has_alpha() && mask.pixels().any(|(_, _, pixel)| pixel.0[3] < u8::MAX);
    }
    if brightest == 0 && !is_transparent {
        return None;
    }
    let masks = match looked_at {
        1 => "the first mask is".to_owned(),
        _ => format!("the first {looked_at} masks is"),
    };
    Some(format!(
        "`{setting}`: no pixel of {masks} brighter than {brightest} of 255, and a model learns black as 0 and white as 1: make \
         what it shall find white (255); numbers of classes, colours of a palette and transparency are not read"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use image::{DynamicImage, GrayImage, LumaA, RgbImage};

    use super::super::{Pictures, class_names};
    use super::*;
    use crate::options::{ImageOptions, SampleOptions};

    fn save(root: &Path, name: &str, picture: impl Into<DynamicImage>) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        picture.into().save(path).unwrap();
    }

    /// The warnings about a folder.
    fn told(root: &Path, masks: bool, names: &[&str]) -> Result<Vec<String>> {
        let options = SampleOptions {
            source: root.to_str().unwrap().to_owned(),
            ..SampleOptions::default()
        };
        let image = ImageOptions {
            size: 8,
            channels: 3,
            classes: 9,
            masks,
            names: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let mut warnings = Vec::new();
        Pictures::open(&options, &image, &mut warnings)?;
        Ok(warnings)
    }

    fn masked(shade: impl Fn(u32) -> DynamicImage) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..3 {
            save(
                folder.path(),
                &format!("images/{i}.png"),
                GrayImage::new(4, 4),
            );
            save(folder.path(), &format!("masks/{i}.png"), shade(i));
        }
        folder
    }

    #[test]
    fn masks_that_are_no_shades_are_told() {
        let grey = |shades: [u8; 3]| {
            masked(move |i| {
                let shade = |x: u32, _| image::Luma([if x == 3 { shades[i as usize] } else { 0 }]);
                GrayImage::from_fn(4, 4, shade).into()
            })
        };
        let warnings = |folder: tempfile::TempDir| told(folder.path(), true, &[]).unwrap();
        let of_numbers = warnings(grey([1, 0, 2]));
        assert!(
            of_numbers.len() == 1
                && of_numbers[0]
                    .contains("no pixel of the first 3 masks is brighter than 2 of 255"),
            "{of_numbers:?}"
        );
        // The first colour of the palette of Pascal VOC.
        let of_palette = warnings(masked(|_| {
            RgbImage::from_pixel(4, 4, image::Rgb([128, 0, 0])).into()
        }));
        assert!(
            of_palette[0].contains("brighter than 38 of 255"),
            "{of_palette:?}"
        );
        let clear =
            |i| image::GrayAlphaImage::from_pixel(4, 4, LumaA([0, 255 * (i % 2) as u8])).into();
        let of_transparency = warnings(masked(clear));
        assert!(
            of_transparency[0].contains("brighter than 0 of 255"),
            "{of_transparency:?}"
        );
        // One that shows something is enough, and none needs to.
        for shades in [[0, 0, 255], [1, 128, 2], [0, 0, 0]] {
            assert_eq!(warnings(grey(shades)), [""; 0], "{shades:?}");
        }
    }

    #[test]
    fn parts_of_a_data_set_are_no_classes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in [
            "test/cat/0.png",
            "train/cat/1.png",
            "train/dog/2.png",
            "Val/dog/3.png",
        ] {
            save(root, name, GrayImage::new(4, 4));
        }
        let error = told(root, false, &[]).unwrap_err();
        let train = root.join("train");
        let said = error.to_string();
        assert!(
            error.is_input_error()
                && said.ends_with(&format!("`data.source = {}`", train.display())),
            "{said}"
        );
        // The mend is one.
        assert_eq!(told(&train, false, &[]).unwrap(), [""; 0]);
        let of = |root: &Path| class_names(root.to_str().unwrap());
        assert_eq!(of(&train).unwrap(), ["cat", "dog"]);
        // A picture beside its classes makes no class of a part.
        save(root, "train/4.png", GrayImage::new(4, 4));
        assert!(of(root).is_err());
        // What has no folders is a class, and so is what lies beside one.
        save(root, "car/5.png", GrayImage::new(4, 4));
        assert_eq!(of(root).unwrap(), ["Val", "car", "test", "train"]);
    }

    #[test]
    fn masks_are_no_classes() {
        let folder = masked(|_| GrayImage::new(4, 4).into());
        let said = told(folder.path(), false, &[]).unwrap_err().to_string();
        assert!(said.contains("use `model.name = unet`"), "{said}");
        assert!(told(folder.path(), true, &[]).is_ok());
        save(folder.path(), "cat/0.png", GrayImage::new(4, 4));
        assert!(told(folder.path(), false, &[]).is_ok());
    }

    #[test]
    fn pictures_beside_classes_and_a_single_class_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        save(root, "cat/0.png", GrayImage::new(4, 4));
        let warnings = told(root, false, &["cat"]).unwrap();
        assert!(
            warnings.len() == 1 && warnings[0].contains("are of one class, cat: "),
            "{warnings:?}"
        );
        // An evaluation may be of one class among those that the model knows.
        assert_eq!(told(root, false, &["cat", "dog"]).unwrap(), [""; 0]);
        save(root, "dog/1.png", GrayImage::new(4, 4));
        assert_eq!(told(root, false, &[]).unwrap(), [""; 0]);
        save(root, "b.png", GrayImage::new(4, 4));
        let warnings = told(root, false, &[]).unwrap();
        assert!(
            warnings[0].ends_with("a picture beside the folders of classes is passed over: b.png")
        );
        save(root, "a.jpg", GrayImage::new(4, 4));
        let warnings = told(root, false, &[]).unwrap();
        assert!(warnings[0].ends_with(
            "2 pictures beside the folders of classes are passed over, the first a.jpg"
        ));
    }
}
