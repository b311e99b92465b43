//! A U-Net: learns masks from a folder, and is evaluated, resumed and verified by the same bits at any cut; the loss
//! of classes against one-hot targets.

use std::path::Path;

use serde_json::Value;

use super::{gpipe, objects, stderr, stdout};

/// Pictures with a bright rectangle on dark noise, and masks that show where it is.
fn pictures(folder: &Path, count: u32) {
    for part in ["images", "masks"] {
        std::fs::create_dir_all(folder.join("data").join(part)).unwrap();
    }
    for i in 0..count {
        let (width, height) = (20 + i % 3, 18);
        let inside = |x: u32, y: u32| (4..12 + i % 5).contains(&x) && (3 + i % 4..13).contains(&y);
        let picture = image::RgbImage::from_fn(width, height, |x, y| {
            let noise = ((x * 7 + y * 13 + i) % 60) as u8;
            let shade = if inside(x, y) { 180 + noise } else { noise };
            image::Rgb([shade, shade / 2, 20])
        });
        let mask = image::GrayImage::from_fn(width, height, |x, y| {
            image::Luma([if inside(x, y) { 255 } else { 0 }])
        });
        let end = if i % 2 == 0 { "png" } else { "jpg" };
        let place = folder.join("data");
        picture
            .save(place.join(format!("images/{i}.{end}")))
            .unwrap();
        mask.save(place.join(format!("masks/{i}.png"))).unwrap();
    }
}

/// A network and batches that train in milliseconds.
const SMALL: &[&str] = &[
    "--model",
    "unet:1,4",
    "--batch-size",
    "4",
    "--micro-batches",
    "2",
    "--threads",
    "2",
    "--image-size",
    "64",
];

fn small(folder: &Path, command: &str, arguments: &[&str]) -> std::process::Output {
    gpipe(folder, &[&[command], SMALL, arguments].concat())
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let of_kind = |object: &&Value| object["kind"] == kind;
    objects.iter().filter(of_kind).collect()
}

#[test]
fn a_unet_learns_masks_and_is_evaluated_and_resumed_by_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pictures(here, 20);
    let arguments = [
        "--data",
        "data",
        "--steps",
        "24",
        "--eval-every",
        "12",
        "--save-every",
        "8",
        "--lr",
        "0.005",
        "--warmup-steps",
        "0",
        "--stages",
        "5",
        "--json",
        "--out",
        "whole",
    ];
    let whole = objects(&small(here, "train", &arguments));
    let evaluations = of_kind(&whole, "eval");
    let accuracy = evaluations[1]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.75, "{accuracy}");
    // Two pictures are held out, and each pixel is a target.
    assert_eq!(evaluations[1]["tokens"], 2 * 64 * 64);
    let evaluated = objects(&gpipe(here, &["eval", "whole", "--json", "--stages", "7"]));
    for key in ["loss", "accuracy", "tokens"] {
        assert_eq!(evaluated[0][key], evaluations[1][key], "{key}");
    }
    let said = gpipe(here, &["eval", "whole"]);
    let inside = &evaluated[0]["classes"][1];
    let [correct, targets, predicted] =
        ["correct", "targets", "predicted"].map(|key| inside[key].as_f64().unwrap());
    let covered = correct / (targets + predicted - correct);
    assert!(covered > 0.3, "{inside}");
    let words = format!(
        "  intersection over union {:.1} %  Dice {:.1} %  images 2",
        100.0 * covered,
        200.0 * correct / (targets + predicted)
    );
    assert!(
        stdout(&said).trim_end().ends_with(&words),
        "{}",
        stdout(&said)
    );
    let losses = |objects: &[Value]| -> Vec<String> {
        let steps = of_kind(objects, "step").into_iter();
        steps.map(|step| step["loss"].to_string()).collect()
    };
    let step = "whole/checkpoints/step-00000016";
    let on = [
        "train",
        "--resume",
        step,
        "--stages",
        "3",
        "--schedule",
        "1f1b",
        "--json",
        "--out",
        "on",
    ];
    assert_eq!(losses(&objects(&gpipe(here, &on))), losses(&whole)[16..]);
    // What a stage needed is what was predicted, to the byte.
    let plan = objects(&small(
        here,
        "plan",
        &["--data", "data", "--stages", "5", "--json"],
    ));
    let counted = &of_kind(&whole, "step")[3]["peak_bytes"];
    assert_eq!(&plan[0]["peak_bytes"], counted);
}

#[test]
fn a_unet_has_the_bits_of_one_stage_with_dropout_and_padding() {
    let folder = tempfile::tempdir().unwrap();
    for (stages, schedule, remat, size) in [
        ("3", "gpipe", "keep", "64"),
        // Halves of odd sizes grow to those of their skips.
        ("8", "1f1b", "stage", "70"),
        ("8", "interleaved:2", "every:2", "64"),
    ] {
        let arguments = [
            "--stages",
            stages,
            "--schedule",
            schedule,
            "--remat",
            remat,
            "--image-size",
            size,
            "--steps",
            "2",
        ];
        let output = small(folder.path(), "verify", &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).starts_with("equal: "));
    }
}

/// Skips of 4 channels of 64 x 64 go from stage 0 to 4, those of 8 of 32 x 32 and of 16 of 16 x 16 from 1 to 3;
/// of four samples, there and back.
#[test]
fn the_plan_of_a_unet_names_its_portals() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |stages, more: &[&str]| {
        let arguments = ["--data", "synthetic", "--stages", stages];
        small(folder.path(), "plan", &[&arguments, more].concat())
    };
    let skip = |channels: u64, side: u64| 4 * 2 * 4 * channels * side * side;
    let [outer, inner] = [skip(4, 64), skip(8, 32) + skip(16, 16)];
    let portal = |from: u64, to: u64, bytes: u64| serde_json::json!({"from": from, "to": to, "step_bytes": bytes, "transit_bytes": bytes});
    // Both micro-batches may wait for their taker at once.
    let wanted = [portal(0, 4, outer), portal(1, 3, inner)];
    assert_eq!(
        objects(&plan("5", &["--json"]))[0]["portals"],
        serde_json::json!(wanted)
    );
    let text = stdout(&plan("5", &[]));
    let line = "portals stage 0 to 4, 1 to 3: 896.0 KiB a step, at most 896.0 KiB in transit";
    assert!(text.contains(line), "{text}");
    // Between neighbours there are none.
    assert!(objects(&plan("2", &["--json"]))[0].get("portals").is_none());
    assert!(!stdout(&plan("2", &[])).contains("portals"));
}

#[test]
fn classes_are_learned_against_one_hot_targets() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let of = |target: &str| {
        let arguments = [
            "train",
            "--model",
            "convnet:8,16",
            "--loss-target",
            target,
            "--steps",
            "100",
            "--eval-every",
            "100",
            "--dropout",
            "0",
            "--lr",
            "0.02",
            "--warmup-steps",
            "0",
            "--keep",
            "0",
            "--threads",
            "2",
            "--json",
            "--out",
            target,
        ];
        let found = objects(&gpipe(here, &arguments));
        let evaluation = of_kind(&found, "eval")[0].clone();
        let first = of_kind(&found, "step")[0]["loss"].as_f64().unwrap();
        (first, evaluation["accuracy"].as_f64().unwrap())
    };
    // ln 10 at first, against a tenth.
    let (by_class, _) = of("class");
    let (by_one_hot, accuracy) = of("one-hot");
    assert!(
        by_class > 2.0 && by_one_hot < 0.5,
        "{by_class} {by_one_hot}"
    );
    assert!(accuracy > 0.3, "{accuracy}");
}

#[test]
fn masks_that_do_not_fit_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pictures(here, 3);
    let refused = |arguments: &[&str], words: &str| {
        let more = [
            "--eval-every",
            "0",
            "--steps",
            "1",
            "--out",
            "run",
            "--overwrite",
        ];
        let output = small(here, "train", &[arguments, &more[..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{words}: {said}");
    };
    refused(
        &["--data", "digits"],
        "use a folder with the folders images and masks",
    );
    refused(&["--loss-target", "class"], "leave --loss-target out");
    refused(&["--set", "model.classes=3"], "use 1");
    refused(&["--image-size", "40"], "bottleneck_0_0_norm");
    refused(&["--loss-target", "pixels"], "use class, one-hot or mask");
    let classifier = ["--model", "convnet", "--loss-target", "mask"];
    let output = gpipe(here, &[&["train"], &classifier[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("learns classes"),
        "{}",
        stderr(&output)
    );
    let text = gpipe(here, &["train", "--loss-target", "class"]);
    assert!(
        stderr(&text).contains("leave --loss-target out"),
        "{}",
        stderr(&text)
    );
    let mask = here.join("data/masks/1.png");
    image::GrayImage::new(9, 18).save(&mask).unwrap();
    refused(
        &["--data", "data"],
        "has 9 by 18 pixels, but its picture 21 by 18",
    );
    std::fs::remove_file(&mask).unwrap();
    refused(&["--data", "data"], "`1.jpg` in images has no mask");
    std::fs::remove_dir_all(here.join("data/masks")).unwrap();
    refused(
        &["--data", "data"],
        "name a folder with the folders images and masks",
    );
}

/// What looks like a data set of another kind, before a step is made.
#[test]
fn masks_of_class_numbers_are_warned_of_and_parts_are_no_classes() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    pictures(here, 3);
    let plan = |model: &str, data: &str| {
        let output = gpipe(here, &["plan", "--model", model, "--data", data]);
        (output.status.code(), stderr(&output))
    };
    assert_eq!(plan("unet:1,4", "data"), (Some(0), String::new()));
    let (code, said) = plan("convnet", "data");
    assert!(
        code == Some(2) && said.contains("use --model unet"),
        "{said}"
    );
    for i in 0..3 {
        let path = here.join(format!("data/masks/{i}.png"));
        let mut mask = image::open(&path).unwrap().into_luma8();
        mask.pixels_mut().for_each(|pixel| pixel.0[0] /= 255);
        mask.save(&path).unwrap();
    }
    let (code, said) = plan("unet:1,4", "data");
    let words = "warning: --data data: no pixel of the first 3 masks is brighter than 1 of 255";
    assert!(code == Some(0) && said.starts_with(words), "{said}");
    for part in ["train", "val"] {
        std::fs::create_dir(here.join(part)).unwrap();
    }
    std::fs::create_dir(here.join("all")).unwrap();
    std::fs::rename(here.join("data"), here.join("train/data")).unwrap();
    std::fs::create_dir(here.join("val/data")).unwrap();
    for part in ["train", "val"] {
        std::fs::rename(here.join(part), here.join("all").join(part)).unwrap();
    }
    let (code, said) = plan("convnet", "all");
    let mend = format!("--data {}", Path::new("all").join("train").display());
    assert!(
        code == Some(2) && said.trim_end().ends_with(&mend),
        "{said}"
    );
}
