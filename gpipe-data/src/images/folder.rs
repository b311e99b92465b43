//! A folder of pictures: `class/*.png|jpg`, or `images` with `masks`.

use std::path::Path;

use gpipe_tensor::{Device, Tensor};
use image::GenericImageView;
use sha2::{Digest, Sha256};

use super::listing::{Entry, Target, classified, fault, masked};
use super::view::View;
use super::{Draw, Images, folder_warnings, picture};
use crate::error::{Error, Result, SourceFault};
use crate::options::{ImageOptions, SampleOptions};

/// The pictures of a folder, decoded as they are drawn.
///
/// Their order is that of a digest of their names (`class/picture.png`), so that the last tenth, which is held out, mixes
/// the classes, and stays the same but for a few where pictures are added.
pub struct Pictures {
    entries: Vec<Entry>,
    options: ImageOptions,
    seed: u64,
    threads: usize,
}

impl Pictures {
    /// Lists a folder; no picture is read but a few masks. Adds to `warnings` what a user should know of it.
    ///
    /// # Errors
    /// [`Error::Source`] for a folder without classes, an empty class, or more classes than the model has, or others;
    /// for one with masks, a picture without a mask; for a number of channels that is neither 1 nor 3.
    pub fn open(
        options: &SampleOptions,
        image: &ImageOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let root = Path::new(&options.source);
        if ![1, 3].contains(&image.channels) {
            return Err(fault(root, SourceFault::Channels(image.channels)));
        }
        let (mut entries, passed) = match image.masks {
            true => masked(root)?,
            false => classified(root, image)?,
        };
        let setting = format!("data.source = {}", options.source);
        warnings.extend(passed.warnings(&setting, root));
        entries.sort_by_cached_key(|entry| {
            let digest: [u8; 32] = Sha256::digest(entry.name.as_bytes()).into();
            (digest, entry.name.clone())
        });
        match image.masks {
            true => warnings.extend(folder_warnings::of_masks(&setting, &entries)),
            false => {
                let known = image.names.len();
                warnings.extend(folder_warnings::of_classes(
                    &setting, root, &entries, known,
                )?);
            }
        }
        Ok(Self {
            entries,
            options: image.clone(),
            seed: options.seed,
            threads: options.threads,
        })
    }

    /// Writes a picture, and its mask if it has one.
    fn draw(&self, draw: Draw, values: &mut [f32], mask: &mut [f32]) -> Result<()> {
        let entry = &self.entries[draw.sample as usize];
        let picture = picture::read(&entry.path)?;
        let (width, height) = picture.dimensions();
        let view = View::of(width, height, self.seed, draw);
        let size = self.options.size as u32;
        view.picture(&picture, size, self.options.channels, values);
        if let Target::Mask(path) = &entry.target {
            let found = picture::read(path)?;
            if found.dimensions() != (width, height) {
                let (w, h) = found.dimensions();
                return Err(Error::Picture {
                    path: path.clone(),
                    fault: format!("has {w} by {h} pixels, but its picture {width} by {height}"),
                });
            }
            view.mask(&found, size, mask);
        }
        Ok(())
    }
}

impl Images for Pictures {
    fn count(&self) -> u64 {
        self.entries.len() as u64
    }

    fn tensors(&self, device: &Device, draws: &[Draw]) -> Result<(Tensor, Tensor)> {
        let count = draws.len();
        let shape = self.options.shape(count);
        // Refuses a size whose pixels overflow.
        let mut x = Tensor::zeros(device, shape)?;
        let pixels = self.options.size * self.options.size;
        let mut masks = vec![
            0.0;
            if self.options.masks {
                count * pixels
            } else {
                0
            }
        ];
        // Each thread has pictures of its own: their values do not depend on the number of threads.
        let each = count.div_ceil(self.threads.max(1)).max(1);
        let mut places = x
            .f32s_mut()?
            .chunks_mut(each * pixels * self.options.channels);
        let mut mask_places = masks.chunks_mut(each * pixels);
        let drawn: Vec<Result<()>> = std::thread::scope(|scope| {
            let parts: Vec<_> = draws
                .chunks(each)
                .map(|part| {
                    let values = places.next().unwrap_or_default();
                    let masks = mask_places.next().unwrap_or_default();
                    scope.spawn(move || {
                        let mut values = values.chunks_mut(pixels * self.options.channels);
                        let mut masks = masks.chunks_mut(pixels);
                        part.iter().try_for_each(|&draw| {
                            let values = values.next().unwrap_or_default();
                            self.draw(draw, values, masks.next().unwrap_or_default())
                        })
                    })
                })
                .collect();
            let joined = parts.into_iter().map(|part| part.join());
            joined
                .map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        drawn.into_iter().collect::<Result<()>>()?;
        if self.options.masks {
            let shape = [count, self.options.size, self.options.size, 1];
            return Ok((x, Tensor::from_f32(device, shape, masks)?));
        }
        let class = |draw: &Draw| match self.entries[draw.sample as usize].target {
            Target::Class(class) => class,
            Target::Mask(_) => 0,
        };
        let labels = draws.iter().map(class).collect();
        Ok((x, Tensor::from_u32(device, [count], labels)?))
    }

    /// The names; the pictures themselves are not read.
    fn digest(&self, digest: &mut Sha256) {
        for entry in &self.entries {
            digest.update(entry.name.as_bytes());
            digest.update([0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use gpipe_tensor::{DeviceId, Host};
    use image::{GrayImage, RgbImage};

    use super::super::count_classes;
    use super::*;

    fn options(source: &Path, threads: usize) -> SampleOptions {
        SampleOptions {
            source: source.to_str().unwrap().to_owned(),
            threads,
            ..SampleOptions::default()
        }
    }

    fn image(masks: bool) -> ImageOptions {
        ImageOptions {
            size: 8,
            channels: 3,
            classes: 3,
            masks,
            names: Vec::new(),
        }
    }

    fn save(path: PathBuf, shade: u8) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_fn(12, 10, |x, y| {
            image::Rgb([shade, (x * 20) as u8, (y * 20) as u8])
        })
        .save(path)
        .unwrap();
    }

    fn classes() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (class, shade) in [("cat", 10), ("dog", 100), ("owl", 200)] {
            for i in 0..4 {
                let end = if i % 2 == 0 { "png" } else { "JPG" };
                save(folder.path().join(format!("{class}/{i}.{end}")), shade);
            }
            fs::write(folder.path().join(class).join("notes.txt"), "x").unwrap();
        }
        folder
    }

    #[test]
    fn pictures_have_the_classes_of_their_folders_whatever_the_threads() {
        let folder = classes();
        assert_eq!(count_classes(folder.path().to_str().unwrap()).unwrap(), 3);
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let draws: Vec<Draw> = (0..12)
            .map(|sample| Draw {
                sample,
                epoch: Some(1),
            })
            .collect();
        let values = |threads| {
            let pictures = Pictures::open(
                &options(folder.path(), threads),
                &image(false),
                &mut Vec::new(),
            )
            .unwrap();
            assert_eq!(pictures.count(), 12);
            let (x, labels) = pictures.tensors(&device, &draws).unwrap();
            (x.f32s().unwrap().to_vec(), labels.u32s().unwrap().to_vec())
        };
        let (x, labels) = values(1);
        assert_eq!((x.clone(), labels.clone()), values(5));
        // The order mixes the classes, and the shade tells the class.
        assert!(labels[..4].iter().any(|&label| label != labels[0]));
        for (picture, label) in x.chunks(8 * 8 * 3).zip(labels) {
            let shade = (picture[0] * 0.229 + 0.485) * 255.0;
            let wanted = [10.0, 100.0, 200.0][label as usize];
            assert!((shade - wanted).abs() < 8.0, "{shade} {label}");
        }
    }

    /// A folder with some of the classes numbers them as all.
    #[test]
    fn classes_have_the_numbers_of_their_names() {
        let folder = classes();
        for class in ["cat", "owl"] {
            fs::remove_dir_all(folder.path().join(class)).unwrap();
        }
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let opened = |names: &[&str]| {
            let image = ImageOptions {
                names: names.iter().map(|&name| name.to_owned()).collect(),
                ..image(false)
            };
            let pictures = Pictures::open(&options(folder.path(), 1), &image, &mut Vec::new())?;
            let draw = Draw {
                sample: 0,
                epoch: None,
            };
            let (_, labels) = pictures.tensors(&device, &[draw])?;
            Ok::<_, Error>(labels.u32s()?.to_vec())
        };
        assert_eq!(opened(&[]).unwrap(), [0]);
        assert_eq!(opened(&["cat", "dog", "owl"]).unwrap(), [1]);
        let said = opened(&["cat", "owl"]).unwrap_err().to_string();
        assert!(
            said.contains("`dog` is none of those that the model knows, cat, owl: "),
            "{said}"
        );
    }

    /// As in `ImageFolder` of torchvision; runs beside the classes are no class.
    #[test]
    fn pictures_lie_at_any_depth_below_their_class() {
        let folder = classes();
        let root = folder.path();
        save(root.join("cat/kittens/young/0.png"), 10);
        fs::create_dir_all(root.join("runs/a")).unwrap();
        fs::write(root.join("runs/a/events.jsonl"), "{\"kind\":\"start\"}").unwrap();
        assert_eq!(count_classes(root.to_str().unwrap()).unwrap(), 3);
        let mut warnings = Vec::new();
        let pictures = Pictures::open(&options(root, 1), &image(false), &mut warnings).unwrap();
        assert_eq!(pictures.count(), 13);
        let name = "cat/kittens/young/0.png";
        let nested = (pictures.entries.iter()).find(|entry| entry.name == name);
        assert!(matches!(nested.unwrap().target, Target::Class(0)));
        assert!(
            warnings[0].ends_with("a folder of runs of gpipe is passed over: runs"),
            "{warnings:?}"
        );
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn pictures_of_impossible_sizes_are_errors() {
        let folder = classes();
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let draw = Draw {
            sample: 0,
            epoch: None,
        };
        let image = ImageOptions {
            size: 1 << 33,
            ..image(false)
        };
        let pictures = Pictures::open(&options(folder.path(), 1), &image, &mut Vec::new()).unwrap();
        assert!(pictures.tensors(&device, &[draw]).is_err());
    }

    #[test]
    fn pictures_have_one_channel_or_three() {
        let folder = classes();
        let opened = |channels: usize| {
            let image = ImageOptions {
                channels,
                ..image(false)
            };
            Pictures::open(&options(folder.path(), 1), &image, &mut Vec::new())
        };
        assert!([1, 3].into_iter().all(|channels| opened(channels).is_ok()));
        for channels in [2, 4] {
            let error = opened(channels).err().unwrap();
            let said = error.to_string();
            assert!(
                error.is_input_error() && said.contains("use `model.channels = 3`"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_is_no_data_set_is_refused_by_name() {
        let folder = classes();
        let refused = |masks, words: &str| {
            let error = Pictures::open(&options(folder.path(), 1), &image(masks), &mut Vec::new())
                .err()
                .unwrap();
            assert!(
                error.is_input_error() && error.to_string().contains(words),
                "{error}"
            );
        };
        refused(true, "images");
        fs::create_dir(folder.path().join("ant")).unwrap();
        refused(false, "4 classes");
        fs::remove_dir_all(folder.path().join("owl")).unwrap();
        refused(false, "`ant`");
        for class in ["ant", "cat", "dog"] {
            fs::remove_dir_all(folder.path().join(class)).unwrap();
        }
        refused(false, "holds no folders");
        assert!(count_classes("no/such/folder").is_err());
    }

    #[test]
    fn a_mask_goes_with_its_picture_and_has_its_size() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path().join("images/a.jpg"), 9);
        save(folder.path().join("images/b.png"), 9);
        let mask = |name: &str, width| {
            let path = folder.path().join("masks").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            GrayImage::from_pixel(width, 10, image::Luma([255]))
                .save(path)
                .unwrap();
        };
        let open = || Pictures::open(&options(folder.path(), 1), &image(true), &mut Vec::new());
        mask("a.png", 12);
        assert!(open().err().unwrap().to_string().contains("b.png"));
        mask("b.png", 11);
        mask("b.jpg", 11);
        let said = open().err().unwrap().to_string();
        assert!(said.contains("`b.jpg` and `b.png`"), "{said}");
        fs::remove_file(folder.path().join("masks/b.jpg")).unwrap();
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let pictures = open().unwrap();
        let outcomes = [0, 1].map(|sample| {
            pictures.tensors(
                &device,
                &[Draw {
                    sample,
                    epoch: None,
                }],
            )
        });
        for outcome in outcomes {
            match outcome {
                Ok((_, masks)) => assert_eq!(masks.f32s().unwrap(), &[1.0; 64]),
                Err(error) => assert!(error.to_string().contains("11 by 10 pixels"), "{error}"),
            }
        }
        let broken = folder.path().join("images/a.jpg");
        let bytes = fs::read(&broken).unwrap();
        fs::write(&broken, &bytes[..20]).unwrap();
        let faults = [0, 1].map(|sample| {
            pictures
                .tensors(
                    &device,
                    &[Draw {
                        sample,
                        epoch: None,
                    }],
                )
                .err()
        });
        let told: Vec<String> = faults
            .into_iter()
            .flatten()
            .map(|error| error.to_string())
            .collect();
        assert!(
            told.len() == 2 && told.iter().any(|line| line.contains("a.jpg")),
            "{told:?}"
        );
    }
}
