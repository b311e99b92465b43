//! Pictures without targets.

use std::fs;

use gpipe_tensor::{DeviceId, Host};
use image::RgbImage;

use super::*;

fn options(masks: bool, channels: usize) -> ImageOptions {
    ImageOptions {
        size: 8,
        channels,
        classes: 10,
        masks,
        names: Vec::new(),
    }
}

fn save(path: &Path, width: u32, height: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let picture = RgbImage::from_fn(width, height, |x, y| {
        image::Rgb([(3 * x) as u8, (5 * y) as u8, 90])
    });
    picture.save(path).unwrap();
}

#[test]
fn files_and_folders_name_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["a/2.png", "a/b/1.JPG", "c.png"] {
        save(&root.join(name), 4, 4);
    }
    fs::write(root.join("a/notes.txt"), "text").unwrap();
    let named = |names: &[&str]| {
        let named: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
        let found = named_pictures(&named).map_err(|error| error.to_string())?;
        let names = found.into_iter().map(|picture| {
            assert!(picture.path.ends_with(&picture.name));
            picture.name
        });
        Ok::<_, String>(names.collect::<Vec<_>>())
    };
    assert_eq!(
        named(&["c.png", "a"]).unwrap(),
        ["c.png", "2.png", "b/1.JPG"]
    );
    // What is named is read, whatever its name.
    assert_eq!(named(&["a/notes.txt"]).unwrap(), ["notes.txt"]);
    fs::create_dir(root.join("empty")).unwrap();
    let refused = named(&["c.png", "empty"]).unwrap_err();
    assert!(
        refused.ends_with(
            "empty: holds no picture: name a PNG or JPEG with 8 bits a channel, or a folder with some"
        ),
        "{refused}"
    );
    assert!(
        named(&["d.png"])
            .unwrap_err()
            .contains("d.png: is not there: ")
    );
}

/// A classifier is shown what an evaluation shows it, in the order of the paths, by any number of threads.
#[test]
fn classifiers_see_what_evaluations_show() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..5)
        .map(|i| folder.path().join(format!("{i}.png")))
        .collect();
    for (path, i) in paths.iter().zip(0..) {
        save(path, 20 + i, 13);
    }
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let read =
        |threads| PictureReader::new(Some(&options(false, 3)), "pictures", threads).read(&paths);
    let found = read(1).unwrap();
    assert_eq!(found, read(3).unwrap());
    for (viewed, path) in found.iter().zip(&paths) {
        let picture = picture::read(path).unwrap();
        let mut wanted = vec![0.0; 8 * 8 * 3];
        let (width, height) = picture.dimensions();
        View::evaluated(width, height).picture(&picture, 8, 3, &mut wanted);
        assert_eq!(viewed.views().collect::<Vec<_>>(), [wanted]);
    }
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let reader = PictureReader::new(Some(&options(false, 3)), "pictures", 1);
    let views: Vec<&[f32]> = found.iter().flat_map(ViewedPicture::views).collect();
    let tensor = reader.tensor(&device, &views).unwrap();
    assert_eq!(tensor.shape().dims(), [5, 8, 8, 3]);
}

/// Ink is from 0 to 1, in rows for a perceptron.
#[test]
fn models_of_digits_see_ink() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.png");
    let one = GrayImage::from_fn(16, 16, |x, _| Luma([if x / 2 == 3 { 255 } else { 0 }]));
    one.save(&path).unwrap();
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    for (options, dims) in [
        (None, &[1, 64][..]),
        (Some(options(false, 1)), &[1, 8, 8, 1]),
    ] {
        let reader = PictureReader::new(options.as_ref(), DIGITS, 1);
        let read = reader.read(&[&path]).unwrap();
        let tensor = reader
            .tensor(&device, &[read[0].views().next().unwrap()])
            .unwrap();
        assert_eq!(tensor.shape().dims(), dims);
        for (place, ink) in tensor.f32s().unwrap().iter().enumerate() {
            // The filter mixes neighbouring pixels.
            match place % 8 {
                3 => assert!(*ink > 0.7, "{place}: {ink}"),
                2 | 4 => assert!(*ink < 0.3, "{place}: {ink}"),
                _ => assert_eq!(*ink, 0.0, "{place}"),
            }
        }
    }
}

/// A mask is put together from the squares that cover its picture; where these overlap, it is their mean.
#[test]
fn masks_are_put_together_from_squares() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.png");
    save(&path, 36, 16);
    let reader = PictureReader::new(Some(&options(true, 3)), "pictures", 1);
    let wide = reader.read(&[&path]).unwrap().remove(0);
    // At 0, 10 and 20.
    assert_eq!(wide.views().len(), 3);
    let shade = |value: f32| vec![value; 64];
    let mask = wide.mask(&[shade(1.0), shade(0.0), shade(0.2)]);
    let row: Vec<u8> = mask
        .shades
        .rows()
        .next()
        .unwrap()
        .map(|pixel| pixel.0[0])
        .collect();
    let wanted = [(10, 255), (6, 128), (4, 0), (6, 26), (10, 51)];
    let wanted: Vec<u8> = wanted
        .iter()
        .flat_map(|&(count, shade)| vec![shade; count])
        .collect();
    assert_eq!(row, wanted);
    assert_eq!(mask.shades.dimensions(), (36, 16));
    assert_eq!(mask.share, 16.0 / 36.0);
    let png = image::load_from_memory(&mask.to_png().unwrap()).unwrap();
    assert_eq!(png.to_luma8(), mask.shades);
    // Each pixel of a view stands where the picture has what it shows.
    let left: Vec<f32> = (0..64).map(|place| f32::from(place % 8 < 4)).collect();
    let mask = wide.mask(&[left, shade(0.0), shade(0.0)]);
    assert_eq!(mask.shades.get_pixel(2, 8).0, [255]);
    assert_eq!(mask.shades.get_pixel(9, 8).0, [0]);

    save(&path, 34, 2);
    let refused = reader.read(&[&path]).unwrap_err().to_string();
    assert!(
        refused.contains("34 by 2 pixels, one side more than 16 times"),
        "{refused}"
    );
}
