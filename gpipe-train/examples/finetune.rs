//! Fine-tunes a GPT from a Hugging Face folder with checkpoints, evaluation and a report:
//! `cargo run -p gpipe-train --example finetune -- FOLDER`. Without a folder it trains a first model.

use std::path::{Path, PathBuf};

use gpipe_report::{NewRun, PAGE, html, read_run, write_html};
use gpipe_train::{Overrides, PreparedRun, Result, RunOptions, Setting, Silent, StartPoint};

fn main() -> Result<()> {
    let runs = std::env::temp_dir().join(format!("gpipe-finetune-{}", std::process::id()));
    let model = match std::env::args().nth(1) {
        Some(folder) => PathBuf::from(folder),
        None => {
            // A checkpoint has such a folder, with config.json and model.safetensors.
            train(Path::new("gpt-nano"), 10, &runs.join("first"))?;
            gpipe_train::find(&runs.join("first"))?.model
        }
    };
    let run = runs.join("tuned");
    train(&model, 20, &run)?;

    // The page is built from the folder of the run alone.
    let done = read_run(&run)?;
    for (step, loss) in &done.evaluations {
        println!("step {step}: held-out loss {loss:.3}");
    }
    write_html(&run.join(PAGE), &html(&[done])?)?;
    println!("model   {}", gpipe_train::find(&run)?.model.display());
    println!("report  {}", run.join(PAGE).display());
    Ok(())
}

/// Trains a model, given by name or folder, on two stages; evaluates every 5 steps and saves every 10.
fn train(model: &Path, steps: i64, run: &Path) -> Result<()> {
    let settings = [
        Setting::new("model.name", model.to_string_lossy().into_owned()),
        Setting::new("data.seq_len", 32),
        Setting::new("pipeline.stages", 2),
        Setting::new("pipeline.schedule", "1f1b"),
        Setting::new("optimizer.lr", 1e-3),
        Setting::new("run.steps", steps),
        Setting::new("run.eval_every", 5),
        Setting::new("run.save_every", 10),
    ];
    let config = Overrides::new().layer(settings)?.resolve()?;
    let options = RunOptions::new(NewRun::at(run, false)?);
    // `Silent` displays nothing; implement `ProgressSink` to receive every line and event.
    PreparedRun::new(StartPoint::fresh(config)?, options)?.train(&mut Silent, || false)?;
    Ok(())
}
