//! `gpipe predict`: classes and masks of pictures by a trained model.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::{gpipe, objects, stderr, stdout};

/// Pictures of two classes, by their colour.
fn classes(folder: &Path) {
    for (class, red) in [("blue", 20), ("red", 230)] {
        let place = folder.join("pictures").join(class);
        fs::create_dir_all(&place).unwrap();
        for i in 0..9_u8 {
            let picture = image::RgbImage::from_fn(20 + u32::from(i), 18, |x, y| {
                image::Rgb([red, (7 * x) as u8, 250 - red + (y as u8) % 5])
            });
            picture.save(place.join(format!("{i}.png"))).unwrap();
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Trains a classifier on pictures of two classes, as `run`.
fn train_classes(here: &Path) {
    classes(here);
    let train = "train --model convnet:4,8 --data pictures --image-size 16 --batch-size 4 --micro-batches 2 \
                 --steps 3 --warmup-steps 0 --lr 0.01 --threads 2 --out run --quiet";
    assert!(gpipe(here, &words(train)).status.success());
}

/// Trains a U-Net on rectangles, as `masked`.
fn train_masks(here: &Path) {
    for part in ["images", "masks"] {
        fs::create_dir_all(here.join("data/nested").join(part)).unwrap();
    }
    for i in 0..6 {
        let inside = |x: u32, y: u32| (4..12 + i % 5).contains(&x) && (3 + i % 4..13).contains(&y);
        let shade = |x, y| image::Luma([if inside(x, y) { 255_u8 } else { 0 }]);
        let mask = image::GrayImage::from_fn(18 + 9 * i, 18, shade);
        for part in ["images", "masks"] {
            let name = format!("data/nested/{part}/{i}.png");
            mask.save(here.join(name)).unwrap();
        }
    }
    let train = "train --model unet:1,2 --data data/nested --image-size 64 --batch-size 2 --steps 2 --threads 2 \
                 --micro-batches 1 --out masked --quiet";
    assert!(gpipe(here, &words(train)).status.success());
}

/// What is printed of classes and of a mask.
pub fn printed(here: &Path) -> [Output; 2] {
    train_classes(here);
    train_masks(here);
    let line = "predict masked data/nested/images/0.png --masks predicted --json";
    [
        gpipe(here, &words("predict run pictures --json")),
        gpipe(here, &words(line)),
    ]
}

#[test]
fn classes_are_those_that_an_evaluation_counts() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train_classes(here);
    let predict = |flags: &str| gpipe(here, &words(&format!("predict run pictures {flags}")));
    let found = objects(&predict("--top 9 --json"));
    assert_eq!(found.len(), 18);
    // Pictures by their class and the predicted one.
    let mut counts = [[0_u32; 2]; 2];
    for object in &found {
        assert_eq!(object["kind"], "predicted");
        let all = object["classes"].as_array().unwrap();
        let probability = |one: &Value| one["probability"].as_f64().unwrap();
        let sum: f64 = all.iter().map(probability).sum();
        assert!(all.len() == 2 && (sum - 1.0).abs() < 1e-9, "{object}");
        assert!(probability(&all[0]) >= probability(&all[1]), "{object}");
        for one in all {
            let number = one["class"].as_u64().unwrap() as usize;
            assert_eq!(one["name"], ["blue", "red"][number]);
        }
        let path = object["picture"].as_str().unwrap();
        let predicted = all[0]["class"].as_u64().unwrap() as usize;
        counts[usize::from(path.contains("/red/"))][predicted] += 1;
    }
    let evaluation = objects(&gpipe(here, &words("eval run --data pictures --json")));
    let accuracy = evaluation[0]["accuracy"].as_f64().unwrap();
    assert_eq!(accuracy, f64::from(counts[0][0] + counts[1][1]) / 18.0);
    for class in evaluation[0]["classes"].as_array().unwrap() {
        let own = class["class"].as_u64().unwrap() as usize;
        let found = ["targets", "correct", "predicted"].map(|key| class[key].as_u64().unwrap());
        let predicted = counts[0][own] + counts[1][own];
        let expected = [counts[own][0] + counts[own][1], counts[own][own], predicted];
        assert_eq!(found, expected.map(u64::from));
        assert_eq!(class["name"], ["blue", "red"][own]);
    }
    // The same bits by any cut and batch.
    for flags in [
        "--stages 3",
        "--batch-size 18 --set pipeline.micro_batches=5",
    ] {
        let other = objects(&predict(&format!("--top 9 --json {flags}")));
        assert_eq!(found, other, "{flags}");
    }
    let first = &found[0]["classes"][0];
    let percent = first["probability"].as_f64().unwrap() * 100.0;
    let lines = stdout(&predict("--quiet"));
    assert_eq!(lines.lines().count(), 18);
    assert_eq!(
        lines.lines().next().unwrap(),
        format!(
            "pictures/blue/0.png: {} {percent:.1} %",
            first["name"].as_str().unwrap()
        )
    );
}

/// Such a folder does not say what its model was trained on; a small network of shades of grey may have learned digits.
#[test]
fn a_model_without_its_run_sees_pictures_as_the_run_does() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train_classes(here);
    let model = here.join("run/checkpoints/step-00000003/model");
    fs::create_dir(here.join("alone")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(model.join(file), here.join("alone").join(file)).unwrap();
    }
    let predict = |model: &str, flags: &str| {
        let line = format!("predict {model} pictures --top 2 --json{flags}");
        objects(&gpipe(here, &words(&line)))
    };
    let size = " --set data.image_size=16";
    assert_eq!(predict("alone", size), predict("run", ""));
    let refused = gpipe(here, &words("eval alone --data digits"));
    assert_eq!(refused.status.code(), Some(2));
    let told = "is of images of 3 channels and 2 classes, and digits are of 1 channel and 10 classes: name a folder with";
    assert!(stderr(&refused).contains(told), "{}", stderr(&refused));
    // The names are the model's, whatever it is evaluated on.
    let evaluated = objects(&gpipe(
        here,
        &words(&format!("eval alone --data synthetic --json{size}")),
    ));
    for class in evaluated[0]["classes"].as_array().unwrap() {
        let number = class["class"].as_u64().unwrap() as usize;
        assert_eq!(class["name"], ["blue", "red"][number]);
    }
    // Without the name, the folder of a class would count as another.
    fs::rename(here.join("pictures/red"), here.join("pictures/a")).unwrap();
    for line in ["eval run", "eval run --data pictures"] {
        let refused = gpipe(here, &words(line));
        assert_eq!(refused.status.code(), Some(2), "{line}");
        let told = "the class `a` is none of those that the model knows, blue, red: ";
        assert!(stderr(&refused).contains(told), "{}", stderr(&refused));
    }
}

#[test]
fn nothing_is_said_of_a_model_whose_logits_are_not_finite() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train_classes(here);
    let model = here.join("run/checkpoints/step-00000003/model");
    fs::create_dir(here.join("alone")).unwrap();
    fs::copy(model.join("config.json"), here.join("alone/config.json")).unwrap();
    let mut bytes = fs::read(model.join("model.safetensors")).unwrap();
    let header = 8 + bytes[0] as usize + 256 * bytes[1] as usize;
    for value in bytes[header..].as_chunks_mut::<4>().0 {
        *value = 3e38_f32.to_le_bytes();
    }
    fs::write(here.join("alone/model.safetensors"), bytes).unwrap();
    for line in [
        "eval alone --data pictures --json",
        "predict alone pictures",
    ] {
        let output = gpipe(here, &words(line));
        assert_eq!(
            (output.status.code(), stdout(&output)),
            (Some(1), String::new())
        );
        let told = "error: the logits are not finite: the weights have diverged, use an earlier checkpoint";
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
}

#[test]
fn masks_are_files_as_large_as_their_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train_masks(here);
    let images = "data/nested/images";
    let refused = gpipe(here, &["predict", "masked", images]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("with --masks FOLDER"),
        "{}",
        stderr(&refused)
    );
    let predict = |to: &str, flags: &[&str]| {
        let command = ["predict", "masked", images, "--masks", to, "--json"];
        gpipe(here, &[&command[..], flags].concat())
    };
    let found = objects(&predict("new/a", &[]));
    for (object, i) in found.iter().zip(0..) {
        assert!(object.get("classes").is_none());
        let path = object["mask"].as_str().unwrap();
        assert_eq!(path, format!("new/a/{i}.png"));
        let mask = image::open(here.join(path)).unwrap().to_luma8();
        assert_eq!(mask.dimensions(), (18 + 9 * i, 18));
        let bright = mask.pixels().filter(|pixel| pixel.0[0] >= 128).count();
        let share = bright as f64 / f64::from(mask.width() * mask.height());
        assert_eq!(object["share"], share);
    }
    assert_eq!(found.len(), 6);
    // More squares than a batch has room for, and other stages: the same files.
    assert_eq!(
        objects(&predict("b", &["--stages", "2", "--batch-size", "1"])).len(),
        6
    );
    for i in 0..6 {
        let read = |place: &str| fs::read(here.join(format!("{place}/{i}.png"))).unwrap();
        assert_eq!(read("new/a"), read("b"));
    }
    // Nothing that is there is overwritten: not the pictures either.
    for to in ["b", images] {
        let refused = predict(to, &[]);
        assert_eq!(refused.status.code(), Some(2), "{to}");
        let told = format!("--masks {to}: {to}/0.png is there: name a new folder");
        assert!(stderr(&refused).contains(&told), "{}", stderr(&refused));
    }
    let both = gpipe(
        here,
        &[
            "predict",
            "masked",
            images,
            "data/nested/masks",
            "--masks",
            "c",
        ],
    );
    assert_eq!(both.status.code(), Some(2));
    assert!(
        stderr(&both).contains("have the same name"),
        "{}",
        stderr(&both)
    );
    assert!(!here.join("c").exists());
}

#[test]
fn what_cannot_be_predicted_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    classes(here);
    let train = "train --model convnet:4 --data pictures --image-size 8 --batch-size 2 --micro-batches 1 --steps 1 \
                 --threads 1 --out run --quiet";
    assert!(gpipe(here, &words(train)).status.success());
    fs::write(here.join("text.png"), "no picture").unwrap();
    fs::create_dir(here.join("empty")).unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/model");
    let of_text = format!("predict {model} pictures");
    for (line, told) in [
        (
            "predict run text.png",
            "text.png: is neither a PNG nor a JPEG: name a PNG",
        ),
        ("predict run none.png", "none.png: is not there: name a PNG"),
        ("predict run empty", "empty: holds no picture: name a PNG"),
        ("predict run", "<PICTURE>..."),
        ("predict run pictures --masks m", "--masks m: the model"),
        ("predict run pictures --top 0", "--top 0: "),
        ("predict none pictures", "none: no model is there: "),
        (&of_text, "takes no pictures: use gpipe sample"),
    ] {
        let output = gpipe(here, &words(line));
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(told), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{line}: {error}");
        assert!(stdout(&output).is_empty(), "{line}");
    }
    // What came before a picture that cannot be decoded is printed.
    let output = gpipe(
        here,
        &words("predict run pictures/red/0.png pictures/red/1.png text.png"),
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output).lines().count(), 2);
}
