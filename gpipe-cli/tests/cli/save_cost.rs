//! What saving costs: how much later the steps of a run are that saves while it trains.
//!
//! Nothing is demanded of the times, which depend on what else the machine does; `cargo xtask exam C9`
//! prints them for gpt-mini.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

/// Steps between checkpoints.
const EVERY: usize = 4;

/// The seconds between the steps of a run, and those that each of its saves took beside it.
struct Times {
    steps: Vec<f64>,
    saves: Vec<f64>,
}

fn train(folder: &Path, model: &[&str], steps: usize, save_every: usize) -> Times {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("gpipe"));
    command.current_dir(folder).args([
        "train",
        "--json",
        "-q",
        "--overwrite",
        "--out",
        "run",
        "--keep",
        "1",
    ]);
    command
        .args([
            "--steps",
            &steps.to_string(),
            "--save-every",
            &save_every.to_string(),
        ])
        .args(model);
    let mut run = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut times = Times {
        steps: Vec::new(),
        saves: Vec::new(),
    };
    let mut last = None;
    for line in BufReader::new(run.stdout.take().expect("a pipe")).lines() {
        let (line, now) = (line.expect("text"), Instant::now());
        let object: Value = serde_json::from_str(&line).expect("one object a line");
        if object["kind"] == "step" {
            let before = last.replace(now);
            times
                .steps
                .extend(before.map(|before| now.duration_since(before).as_secs_f64()));
        } else if object["kind"] == "save" && object["step"] != steps {
            times
                .saves
                .push(object["seconds"].as_f64().expect("seconds"));
        }
    }
    assert!(run.wait().expect("it ends").success());
    times
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[test]
fn a_save_delays_the_steps_by_so_much() {
    let home = tempfile::tempdir().unwrap();
    let full = std::env::var_os("GPIPE_EXAM").is_some();
    let (model, cycles): (&[&str], usize) = match full {
        true => (&["--model", "gpt-mini"], 5),
        false => (
            &[
                "--set",
                "model.width=16",
                "--set",
                "model.blocks=1",
                "--seq-len",
                "8",
            ],
            2,
        ),
    };
    // One step more on each side, so that every save has its steps after it.
    let steps = EVERY * (cycles + 1) + 1;
    let rounds = if full { 3 } else { 1 };
    let (mut delays, mut bare_step, mut written, mut saves) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let bare = median(train(home.path(), model, steps, 0).steps);
        let saving = train(home.path(), model, steps, EVERY);
        assert_eq!(saving.steps.len(), steps - 1);
        assert_eq!(saving.saves.len(), cycles + 1);
        // From a save to the next, without the first and the last step of all.
        for cycle in saving.steps[EVERY - 1..].chunks_exact(EVERY).take(cycles) {
            delays.push(cycle.iter().sum::<f64>() - EVERY as f64 * bare);
        }
        bare_step.push(bare);
        saves += saving.saves.len();
        written.extend(saving.saves);
    }
    let (delay, step, written) = (median(delays), median(bare_step), median(written));
    println!(
        "figure C9 a save delays training by {:.0} ms ({:.1} % of {EVERY} steps of {:.0} ms); it takes {:.0} ms, \
         {:.0} % of which beside training",
        1e3 * delay,
        100.0 * delay / (EVERY as f64 * step),
        1e3 * step,
        1e3 * written,
        100.0 * (1.0 - delay / written).clamp(0.0, 1.0),
    );
    println!("exam C9 {saves}/{saves}");
}
