//! The logits of a run's held-out images, on two stages:
//! `cargo run -p gpipe-train --example logits -- RUN FILE` writes `images.0`, `logits.0` and so on, the parts of
//! its batches, to a safetensors file.
//! Without arguments it trains a network first.

use std::path::{Path, PathBuf};

use gpipe_data::evaluation_batches;
use gpipe_remat::OutputStage;
use gpipe_report::NewRun;
use gpipe_sched::Item;
use gpipe_tensor::safetensors;
use gpipe_train::{
    BoxedError, Overrides, PreparedRun, RunOptions, Setting, Setup, Silent, StartPoint,
};

fn main() -> Result<(), BoxedError> {
    let own = std::env::temp_dir().join(format!("gpipe-logits-{}", std::process::id()));
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let (run, file) = match (arguments.next(), arguments.next()) {
        (Some(run), Some(file)) => (run, file),
        _ => {
            train(&own)?;
            (own.clone(), own.join("logits.safetensors"))
        }
    };
    let found = gpipe_train::find(&run)?;
    let model = found.model.to_string_lossy().into_owned();
    let settings = [
        Setting::new("model.name", model),
        Setting::new("pipeline.stages", 2),
    ];
    let mut overrides = Overrides::new();
    if let Some(of_run) = &found.run {
        overrides = overrides.file(of_run)?.forward_only();
    }
    let config = overrides.layer(settings)?.resolve()?;
    let vocabulary = gpipe_train::vocabulary(&config, Some(&found.model))?.vocabulary;
    let images = gpipe_train::dataset(&config, &vocabulary)?;
    let mut setup = Setup::new(&config)?.forward_only();
    setup.open_weights(&config)?;
    let mut assembled = setup.assemble_to(&config, |last, _| OutputStage::new(last))?;

    let mut tensors = Vec::new();
    let mut parts = 0;
    for batch in evaluation_batches(&images, &assembled.transit, 8, 2, 0)? {
        let mut items = Vec::new();
        for item in batch? {
            let images = item.input.first().cloned().ok_or("no images")?;
            tensors.push((format!("images.{}", parts + items.len()), images));
            items.push(Item {
                micro_batch: item.micro_batch,
                input: item.input,
                target: (),
            });
        }
        assembled.pipeline.forward(items)?;
        let take = |end: &mut OutputStage| Ok::<_, gpipe_remat::Error>(end.take());
        let logits = assembled.pipeline.with_loss_stage(take)?.into_iter();
        for logits in logits {
            tensors.push((format!("logits.{parts}"), logits));
            parts += 1;
        }
    }
    std::fs::write(&file, safetensors::save(&tensors, &[])?)?;
    println!("{}", file.display());
    Ok(())
}

/// Trains a small network on digits.
fn train(run: &Path) -> Result<(), BoxedError> {
    let settings = [
        Setting::new("model.name", "convnet"),
        Setting::new("run.steps", 20),
        Setting::new("run.eval_every", 20),
    ];
    let config = Overrides::new().layer(settings)?.resolve()?;
    let options = RunOptions::new(NewRun::at(run, false)?);
    PreparedRun::new(StartPoint::fresh(config)?, options)?.train(&mut Silent, || false)?;
    Ok(())
}
