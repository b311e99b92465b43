//! Layer profiles: the path of the file, progress messages, and the table of `gpipe plan --profile`.

use std::path::{Path, PathBuf};

use gpipe_remat::{ModelCosts, Work};
use gpipe_report::{Event, MeasuredLink, numbers};
use gpipe_train::links;
use gpipe_train::profile::{Measured, ProfileProgress, Speed};

use super::RUNS;
use crate::args::OutputArgs;
use crate::fail::Result;
use crate::output::{print, table_within, tell, terminal_width, warn};

/// The path of the profile: next to the configuration file, or in the folder of runs.
pub fn path(config_file: Option<&Path>) -> PathBuf {
    match config_file {
        Some(config) => config.with_extension("profile.json"),
        None => Path::new(RUNS).join("profile.json"),
    }
}

/// Reports on stderr what is measured, and why a profile is not used.
pub fn progress(output: OutputArgs) -> impl FnMut(ProfileProgress) {
    move |progress| match progress {
        ProfileProgress::Measuring { .. } if output.quiet => {}
        ProfileProgress::Measuring { kinds, sizes } => {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            tell(&format!(
                "measuring {kinds} kinds of layers in micro-batches of {}",
                sizes.join(", ")
            ));
        }
        ProfileProgress::Unused { path, fault } => warn(&format!(
            "{}: {fault}: it is not used; gpipe plan --profile measures again",
            path.display()
        )),
        _ => {}
    }
}

/// The source of predicted times as text.
pub fn source(speed: &Speed, threads: usize) -> String {
    match speed {
        Speed::Estimate(rates) => format!(
            "estimate: {} of {} and {}/s",
            numbers::counted(threads as u64, "thread"),
            numbers::flop_rate(rates.flops),
            numbers::bytes(rates.bytes as u64)
        ),
        Speed::Predicted(peaks) => format!(
            "prediction for {} by its data sheet, never measured",
            peaks.gpu.name
        ),
        Speed::Modelled(modelled) => format!(
            "predicted from a model of {}, not measured",
            modelled.gpu.name
        ),
        Speed::Measured(measured) => format!("by the layers in {}", measured.path().display()),
    }
}

/// Prints the measured times of each kind of layer, for the first micro-batch and the threads of a worker
/// while all are busy.
pub fn show(speed: &Speed, costs: &ModelCosts, workers: usize, output: OutputArgs) -> Result<()> {
    let Speed::Measured(measured) = speed else {
        return Ok(());
    };
    show_measured(measured, costs, workers, output)
}

fn show_measured(
    measured: &Measured,
    costs: &ModelCosts,
    workers: usize,
    output: OutputArgs,
) -> Result<()> {
    let threads = (measured.threads() / workers.max(1)).max(1);
    let samples = costs.samples(0);
    let mut rows = Vec::new();
    let (mut all, mut all_flops, mut all_layers) = ([0.0; 4], 0, 0);
    for kind in measured.kinds(costs, threads) {
        let Work {
            forward,
            input_grad,
            weight_grad,
            update,
            ..
        } = kind.work;
        let seconds = [forward, input_grad, weight_grad, update];
        for (sum, seconds) in all.iter_mut().zip(seconds) {
            *sum += seconds * kind.layers as f64;
        }
        all_flops += kind.flops * kind.layers as u64;
        all_layers += kind.layers;
        rows.push(row(&kind.layer, kind.layers, kind.flops, seconds));
        if output.json {
            let event = Event::Profile {
                layer: kind.layer,
                layers: kind.layers,
                samples,
                threads,
                flops: kind.flops,
                forward_seconds: forward,
                input_grad_seconds: input_grad,
                weight_grad_seconds: weight_grad,
                update_seconds: update,
            };
            print(&event.to_json()?)?;
        }
    }
    if output.json {
        return Ok(());
    }
    rows.push(row("all", all_layers, all_flops, all));
    let heading = [
        "layer",
        "",
        "FLOPs",
        "F ms",
        "I ms",
        "W ms",
        "GFLOP/s",
        "update ms",
    ];
    let text = table_within(terminal_width(), &heading, &["layer"], &rows);
    print(&format!(
        "{text}micro-batches of {samples} on {threads} of {} threads; {:.1} µs overhead per action; {}\n",
        measured.threads(),
        1e6 * measured.action_seconds(),
        measured.path().display()
    ))
}

/// Prints the links between ranks as they were measured, if there are any.
pub fn show_links(links: &[MeasuredLink], output: OutputArgs) -> Result<()> {
    match output.json {
        true => links
            .iter()
            .try_for_each(|link| print(&Event::Link(link.clone()).to_json()?)),
        false if links.is_empty() => Ok(()),
        false => print(&links::table_of(links)),
    }
}

/// A row of the table; recomputation takes as long as the forward pass and has no column.
fn row(name: &str, count: usize, flops: u64, seconds: [f64; 4]) -> Vec<String> {
    let milliseconds = |seconds: f64| format!("{:.3}", 1e3 * seconds);
    let [forward, input_grad, weight_grad, update] = seconds;
    let passes = forward + input_grad + weight_grad;
    let rate = match passes > 0.0 {
        true => format!("{:.1}", flops as f64 / passes / 1e9),
        false => String::new(),
    };
    vec![
        name.to_owned(),
        format!("×{count}"),
        numbers::short(flops as f64),
        milliseconds(forward),
        milliseconds(input_grad),
        milliseconds(weight_grad),
        rate,
        milliseconds(update),
    ]
}
