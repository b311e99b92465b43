//! Layer profiles: the path of the file, progress messages, and the table of `gpipe plan --profile`.

use std::path::{Path, PathBuf};

use gpipe_remat::ModelCosts;
use gpipe_report::{Event, MeasuredLink, numbers};
use gpipe_train::links;
use gpipe_train::profile::{ProfileProgress, Speed, table_of};

use super::RUNS;
use crate::args::OutputArgs;
use crate::fail::Result;
use crate::output::{print, tell, terminal_width, warn};

/// The path of the profile: next to the configuration file, or in the folder of runs.
pub fn path(config_file: Option<&Path>) -> PathBuf {
    match config_file {
        Some(config) => config.with_extension("profile.json"),
        None => Path::new(RUNS).join("profile.json"),
    }
}

/// Reports on stderr what is measured, and why a profile is not used, with the `command` that measures for this one.
pub fn progress(output: OutputArgs, command: &str) -> impl FnMut(ProfileProgress) {
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
            "{}: {fault}: it is not used; {command} --profile measures again",
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
    let threads = (measured.threads() / workers.max(1)).max(1);
    let samples = costs.samples(0);
    let kinds = measured.kinds(costs, threads);
    if output.json {
        return kinds.into_iter().try_for_each(|kind| {
            let event = Event::Profile {
                layer: kind.layer,
                layers: kind.layers,
                samples,
                threads,
                flops: kind.flops,
                forward_seconds: kind.work.forward,
                input_grad_seconds: kind.work.input_grad,
                weight_grad_seconds: kind.work.weight_grad,
                update_seconds: kind.work.update,
            };
            print(&event.to_json()?)
        });
    }
    print(&format!(
        "{}micro-batches of {samples} on {threads} of {} threads; {:.1} µs overhead per action; {}\n",
        table_of(&kinds, terminal_width()),
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
