//! Folders of pictures: learned from, drawn again by a resumed run, and named where they cannot be used.

use std::path::Path;

use serde_json::Value;

use super::images::of_kind;
use super::{gpipe, objects, stderr};

/// Pictures of two classes, of other sizes and kinds, told apart by their colour.
fn pictures(folder: &Path) {
    for (class, red) in [("blue", 20), ("red", 230)] {
        let place = folder.join("pictures").join(class);
        std::fs::create_dir_all(&place).unwrap();
        for i in 0..12_u8 {
            let picture = image::RgbImage::from_fn(20 + u32::from(i), 18, |x, y| {
                image::Rgb([red, (7 * x) as u8, 250 - red + (y as u8) % 5])
            });
            let end = if i % 2 == 0 { "png" } else { "jpg" };
            picture.save(place.join(format!("{i}.{end}"))).unwrap();
        }
    }
}

#[test]
fn a_folder_of_pictures_is_learned_and_drawn_again_by_a_resumed_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pictures(here);
    let arguments = [
        "train",
        "--model",
        "convnet:4,8",
        "--data",
        "pictures",
        "--image-size",
        "16",
        "--batch-size",
        "6",
        "--micro-batches",
        "2",
        "--stages",
        "3",
        "--steps",
        "30",
        "--eval-every",
        "30",
        "--save-every",
        "10",
        "--warmup-steps",
        "0",
        "--lr",
        "0.01",
        "--threads",
        "2",
        "--json",
        "--out",
        "run",
    ];
    let whole = objects(&gpipe(here, &arguments));
    let evaluation = of_kind(&whole, "eval")[0].clone();
    assert_eq!(evaluation["tokens"], 2);
    let config = std::fs::read_to_string(here.join("run/config.toml")).unwrap();
    assert!(
        config.contains("classes = 2") && config.contains("channels = 3"),
        "{config}"
    );
    let losses = |objects: &[Value]| -> Vec<String> {
        let steps = of_kind(objects, "step").into_iter();
        steps.map(|step| step["loss"].to_string()).collect()
    };
    let step = "run/checkpoints/step-00000010";
    let on = objects(&gpipe(
        here,
        &["train", "--resume", step, "--json", "--out", "on"],
    ));
    assert_eq!(losses(&on), losses(&whole)[10..]);
    // A folder with one of the classes: it has the number of its name, not that of its place.
    std::fs::create_dir(here.join("some")).unwrap();
    std::fs::rename(here.join("pictures/red"), here.join("some/red")).unwrap();
    let some = |name: &str| gpipe(here, &["eval", "run", "--json", "--data", name]);
    let accuracy = objects(&some("some"))[0]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.5, "{accuracy}");
    std::fs::rename(here.join("some/red"), here.join("some/rot")).unwrap();
    let told = stderr(&some("some"));
    assert!(
        told.contains("`rot` is none of those that the model knows, blue, red"),
        "{told}"
    );
}

#[test]
fn pictures_that_cannot_be_learned_from_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pictures(here);
    // A picture is met by a step, when the run has begun; the fault is that of the input all the same.
    let refused = |code: i32, words: &[&str]| {
        let arguments = [
            "train",
            "--model",
            "convnet:4",
            "--data",
            "pictures",
            "--batch-size",
            "24",
            "--eval-every",
            "0",
            "--steps",
            "1",
            "--keep",
            "0",
            "--image-size",
            "8",
            "--out",
            "run",
            "--overwrite",
        ];
        let output = gpipe(here, &arguments);
        let said = stderr(&output);
        let error = said.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(
            words.iter().all(|word| error.contains(word)),
            "{words:?}: {said}"
        );
    };
    let blue = here.join("pictures/blue/4.png");
    let whole = std::fs::read(&blue).unwrap();
    std::fs::write(&blue, &whole[..whole.len() / 2]).unwrap();
    refused(2, &["blue/4.png", "cannot be decoded"]);
    std::fs::write(&blue, b"no picture").unwrap();
    refused(2, &["blue/4.png", "neither a PNG nor a JPEG"]);
    // A header that claims 40,000 by 40,000 pixels, and its checksum.
    let mut huge = whole.clone();
    huge[16..24].copy_from_slice(&[0, 0, 0x9c, 0x40, 0, 0, 0x9c, 0x40]);
    let checksum = huge[12..29].iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg())
        })
    });
    huge[29..33].copy_from_slice(&(!checksum).to_be_bytes());
    std::fs::write(&blue, &huge).unwrap();
    refused(2, &["blue/4.png", "40000 by 40000 pixels"]);
    image::ImageBuffer::<image::Luma<u16>, _>::new(4, 4)
        .save(&blue)
        .unwrap();
    refused(2, &["blue/4.png", "8 bits a channel"]);
    std::fs::create_dir(here.join("pictures/green")).unwrap();
    refused(2, &["`green`", "no png or jpg files"]);
    std::fs::remove_dir_all(here.join("pictures")).unwrap();
    std::fs::create_dir(here.join("pictures")).unwrap();
    refused(2, &["holds no folders"]);
}
