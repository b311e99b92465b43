//! The main figures of the runs, and notes on missing files.

use super::common::{MARKS, Pictures, machine, peaks};
use crate::html::escape::{escape, table};
use crate::html::picture::Picture;
use crate::numbers;
use crate::run::{Run, RunStep};
use crate::timeline::record::Record;

/// The errors of runs that failed, and the main figures: tiles for one run, a table for two.
pub(crate) fn summary(runs: &[Run], pictures: &Pictures) -> String {
    failures(runs) + &figures(runs, pictures)
}

/// Why runs failed.
fn failures(runs: &[Run]) -> String {
    let failed = runs.iter().filter_map(|run| {
        let error = run.error.as_ref()?;
        let line = escape(&format!("{} failed: {error}", run.name));
        Some(format!("<p class=\"note\" role=\"alert\">{line}</p>\n"))
    });
    failed.collect()
}

fn figures(runs: &[Run], pictures: &Pictures) -> String {
    let facts: Vec<Vec<(&str, String, String)>> = runs
        .iter()
        .zip(pictures)
        .map(|(run, picture)| facts(run, picture.as_ref()))
        .collect();
    if let [facts] = facts.as_slice() {
        let tiles: String = facts
            .iter()
            .filter(|(_, value, _)| !value.is_empty())
            .map(|(name, value, more)| {
                let (value, more) = (escape(value), escape(more));
                format!("<div class=\"tile\"><span>{name}</span><b>{value}</b><span>{more}</span></div>\n")
            })
            .collect();
        return format!("<section class=\"tiles\" aria-label=\"Summary\">\n{tiles}</section>\n");
    }
    let names = runs
        .iter()
        .zip(MARKS)
        .map(|(run, mark)| format!("{mark}: {}", escape(&run.name)));
    let heading: Vec<String> = std::iter::once(String::new()).chain(names).collect();
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = (0..facts[0].len())
        .map(|row| {
            let cell = |facts: &Vec<(&str, String, String)>| {
                let (_, value, more) = &facts[row];
                format!("{} <small>{}</small>", escape(value), escape(more))
            };
            let name = facts[0][row].0.to_owned();
            std::iter::once(name)
                .chain(facts.iter().map(cell))
                .collect()
        })
        .collect();
    format!("<h2>Side by side</h2>\n{}", table(&heading, 3, &rows))
}

/// Name, value and remark of each figure; always the same names in the same order.
fn facts(run: &Run, picture: Option<&Picture>) -> Vec<(&'static str, String, String)> {
    let middle = |of: fn(&RunStep) -> Option<f64>| {
        // The first steps warm up caches and pools.
        let skipped = run.steps.len().min(3) - 1.min(run.steps.len());
        let mut values: Vec<f64> = run.steps.iter().skip(skipped).filter_map(of).collect();
        (!values.is_empty()).then(|| numbers::median(&mut values))
    };
    let said = |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or(String::new(), show);
    let losses: Vec<f64> = run.steps.iter().filter_map(|step| step.loss).collect();
    let loss = match (losses.first(), losses.last()) {
        (Some(first), Some(last)) => format!("{first:.3} → {last:.3}"),
        _ => String::new(),
    };
    let held_out = run.evaluations.last();
    let held_out = held_out.map_or(String::new(), |(_, loss)| format!("held out {loss:.3}"));
    let made = run.steps.last().map_or(0, |step| step.step);
    let steps = match &run.start {
        Some(start) => format!("{made} of {}", start.steps),
        None => made.to_string(),
    };
    let seconds = run.end.as_ref().and_then(|end| end.seconds);
    let predicted = picture.and_then(|picture| picture.shares.iter().find(|share| share.predicted));
    let peak = peaks(run).into_iter().max();
    let predicted_peak = run.record.as_ref();
    let predicted_peak =
        predicted_peak.and_then(|record| record.stages.iter().map(|stage| stage.peak_bytes).max());
    vec![
        ("Loss, first and last step", loss, held_out),
        (
            "Speed, median",
            said(middle(|step| step.tokens_per_second), &|speed| {
                format!("{} tokens/s", numbers::short(speed))
            }),
            said(middle(|step| step.step_seconds), &|seconds| {
                format!("{} a step", numbers::step_time(seconds))
            }),
        ),
        (
            "Bubble, median",
            said(middle(|step| step.bubble), &numbers::percent),
            said(predicted.map(|share| share.bubble), &|bubble| {
                format!("predicted {}", numbers::percent(bubble))
            }),
        ),
        (
            "Memory, largest stage",
            peak.map_or(String::new(), numbers::bytes),
            predicted_peak.map_or(String::new(), |peak| {
                format!("predicted {}", numbers::bytes(peak))
            }),
        ),
        (
            "Steps",
            steps,
            said(seconds, &|seconds| {
                format!("in {}", numbers::duration(seconds))
            }),
        ),
        (
            "Parameters",
            run.start.as_ref().map_or(String::new(), |start| {
                numbers::short(start.parameters as f64)
            }),
            run.record.as_ref().map_or(String::new(), held),
        ),
    ]
}

/// Bytes that training holds for a parameter, and the machine, in words.
fn held(record: &Record) -> String {
    let bytes = record.parameter_bytes.map(numbers::parameter_bytes);
    let parts = bytes.into_iter().chain([machine(record)]);
    parts.collect::<Vec<_>>().join("; ")
}

/// Notes on missing and damaged files.
pub(crate) fn notes(runs: &[Run]) -> String {
    let several = runs.len() > 1;
    let mut notes = String::new();
    for (run, mark) in runs.iter().zip(MARKS) {
        let mark = if several {
            format!("{mark}: ")
        } else {
            String::new()
        };
        let unkept = run.record.as_ref().is_some_and(|record| !record.keeps());
        let unkept =
            unkept.then(|| "A step has too many actions for a picture of them.".to_owned());
        for note in run.notes.iter().chain(&unkept) {
            notes += &format!("<p class=\"note\">{mark}{}</p>\n", escape(note));
        }
    }
    notes
}
