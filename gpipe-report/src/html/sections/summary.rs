//! The main figures of the runs, and notes on missing files.

use super::common::{MARKS, Pictures, machine, peaks};
use crate::html::escape::{escape, table};
use crate::html::picture::Picture;
use crate::numbers;
use crate::run::{Run, RunStep};
use crate::timeline::record::Record;

/// The errors of runs that failed, and the main figures: tiles for one run, a table for two, with their
/// differences.
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

/// A figure of a run: its name, its value and a remark in words, and how it compares with another run's.
struct Fact {
    name: &'static str,
    value: String,
    remark: String,
    comparison: Comparison,
}

/// A figure as a number, to be compared with that of another run.
#[derive(Clone, Copy)]
enum Comparison {
    /// By their ratio.
    Ratio(Option<f64>),
    /// By their ratio, if they have the same unit.
    Rate(Option<f64>, &'static str),
    /// By their difference.
    Difference(Option<f64>),
    /// By their difference, in points of percent.
    Points(Option<f64>),
}

impl Fact {
    fn new(name: &'static str, value: String, remark: String, comparison: Comparison) -> Self {
        Self {
            name,
            value,
            remark,
            comparison,
        }
    }
}

/// B compared with A: a ratio as `1.25 ×`, a difference with its sign.
fn compared(a: Comparison, b: Comparison) -> String {
    let ratio = |a: Option<f64>, b: Option<f64>| {
        let ratio = a.zip(b).filter(|&(a, _)| a > 0.0);
        ratio.map(|(a, b)| format!("{:.2} ×", b / a))
    };
    let text = match (a, b) {
        (Comparison::Ratio(a), Comparison::Ratio(b)) => ratio(a, b),
        (Comparison::Rate(a, unit), Comparison::Rate(b, other)) if unit == other => ratio(a, b),
        (Comparison::Difference(a), Comparison::Difference(b)) => {
            let difference = a.zip(b).map(|(a, b)| b - a);
            difference.map(|difference| {
                let sign = if difference < 0.0 { "" } else { "+" };
                format!("{sign}{}", numbers::figure(difference, 3))
            })
        }
        (Comparison::Points(a), Comparison::Points(b)) => a
            .zip(b)
            .map(|(a, b)| format!("{} points", numbers::signed_percent(b - a))),
        _ => None,
    };
    text.unwrap_or_default()
}

fn figures(runs: &[Run], pictures: &Pictures) -> String {
    let facts: Vec<Vec<Fact>> = runs
        .iter()
        .zip(pictures)
        .map(|(run, picture)| facts(run, picture.as_ref()))
        .collect();
    match (facts.as_slice(), runs) {
        ([facts], _) => tiles(facts),
        ([a, b], [first, second]) => side_by_side(a, b, [&first.name, &second.name]),
        _ => String::new(),
    }
}

fn tiles(facts: &[Fact]) -> String {
    let tile = |fact: &Fact| {
        let (value, remark) = (escape(&fact.value), escape(&fact.remark));
        let name = fact.name;
        format!(
            "<div class=\"tile\"><span>{name}</span><b>{value}</b><span>{remark}</span></div>\n"
        )
    };
    let told = facts.iter().filter(|fact| !fact.value.is_empty());
    let tiles: String = told.map(tile).collect();
    format!("<section class=\"tiles\" aria-label=\"Summary\">\n{tiles}</section>\n")
}

fn side_by_side(a: &[Fact], b: &[Fact], names: [&str; 2]) -> String {
    let names = [0, 1].map(|i| format!("{}: {}", MARKS[i], escape(names[i])));
    let heading = ["", &names[0], &names[1], "B against A"];
    let cell = |fact: &Fact| {
        format!(
            "{} <small>{}</small>",
            escape(&fact.value),
            escape(&fact.remark)
        )
    };
    let rows: Vec<Vec<String>> = a
        .iter()
        .zip(b)
        .map(|(a, b)| {
            let difference = compared(a.comparison, b.comparison);
            vec![a.name.to_owned(), cell(a), cell(b), difference]
        })
        .collect();
    format!(
        "<h2>Side by side</h2>\n<div class=\"sides-table\">{}</div>\n",
        table(&heading, 3, &rows)
    )
}

/// The figures; always the same ones in the same order.
fn facts(run: &Run, picture: Option<&Picture>) -> Vec<Fact> {
    let middle = |of: fn(&RunStep) -> Option<f64>| {
        let steps = numbers::after_warm_up(run.last_steps());
        let mut values: Vec<f64> = steps.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| numbers::median(&mut values))
    };
    let said = |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or(String::new(), show);
    let losses: Vec<f64> = run.steps.iter().filter_map(|step| step.loss).collect();
    let loss = match (losses.first(), losses.last()) {
        (Some(first), Some(last)) => format!(
            "{} → {}",
            numbers::figure(*first, 3),
            numbers::figure(*last, 3)
        ),
        _ => String::new(),
    };
    let held_out = run.evaluations.last();
    let held_out = held_out.map_or(String::new(), |(_, loss)| {
        format!("held out {}", numbers::figure(*loss, 3))
    });
    let made = run.steps.last().map_or(0, |step| step.step);
    let steps = match &run.start {
        Some(start) => format!("{made} of {}", start.steps),
        None => made.to_string(),
    };
    let seconds = run.end.as_ref().and_then(|end| end.seconds);
    let predicted = picture.and_then(Picture::prediction);
    let peak = peaks(run).into_iter().max();
    let predicted_peak = run.record.as_ref();
    let predicted_peak =
        predicted_peak.and_then(|record| record.stages.iter().map(|stage| stage.peak_bytes).max());
    // By the middle time, which stands beside it: the mean of two rates is that of no time.
    let speed = middle(|step| step.tokens_per_second.map(f64::recip)).map(f64::recip);
    let bubble = middle(|step| step.bubble);
    let parameters = run.start.as_ref().map(|start| start.parameters as f64);
    vec![
        Fact::new(
            "Loss, first and last step",
            loss,
            held_out,
            Comparison::Difference(losses.last().copied()),
        ),
        Fact::new(
            "Speed, median",
            said(speed, &|speed| {
                format!("{} {}/s", numbers::short(speed), run.unit())
            }),
            said(middle(|step| step.step_seconds), &|seconds| {
                format!("{} a step", numbers::step_time(seconds))
            }),
            Comparison::Rate(speed, run.unit()),
        ),
        Fact::new(
            "Bubble, median",
            said(bubble, &numbers::percent),
            said(predicted.map(|share| share.bubble), &|bubble| {
                format!("predicted {}", numbers::percent(bubble))
            }),
            Comparison::Points(bubble),
        ),
        Fact::new(
            "Memory, largest stage",
            peak.map_or(String::new(), numbers::bytes),
            predicted_peak.map_or(String::new(), |peak| {
                format!("predicted {}", numbers::bytes(peak))
            }),
            Comparison::Ratio(peak.map(|peak| peak as f64)),
        ),
        Fact::new(
            "Steps",
            steps,
            said(seconds, &|seconds| {
                let time = numbers::duration(seconds);
                match run.resumed_after {
                    Some(before) => format!("the last {} in {time}", made.saturating_sub(before)),
                    None => format!("in {time}"),
                }
            }),
            Comparison::Ratio(None),
        ),
        Fact::new(
            "Parameters",
            said(parameters, &|all| {
                let trained = run.trained().map_or(String::new(), |trained| {
                    format!(", {} of them trained", numbers::short(trained as f64))
                });
                format!("{}{trained}", numbers::short(all))
            }),
            (run.record.as_ref()).map_or(String::new(), |record| {
                held(record, run.trained().is_none())
            }),
            Comparison::Ratio(parameters),
        ),
    ]
}

/// Bytes that training holds for a parameter, and the machine, in words.
fn held(record: &Record, all_train: bool) -> String {
    let bytes = record.parameter_bytes;
    let bytes = bytes.map(|bytes| numbers::parameter_bytes(bytes, all_train));
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
