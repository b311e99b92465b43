//! The parts of the page that need no script.

use gpipe_sched::{Cause, Spent};

use super::curves::{Series, chart};
use super::html::{escape, table};
use super::page::MARKS;
use super::picture::{Picture, Share};
use super::{Record, Run};
use crate::fail::Result;
use crate::output::{median, numbers};

/// A kind of time: its name, and how much of it was spent.
type Kind = (&'static str, fn(&Spent) -> f64);

/// Where time goes, by the names that the style colours.
const PARTS: [Kind; 7] = [
    ("work", |spent| spent.work),
    ("recompute", |spent| spent.recompute),
    ("fill", |spent| spent.fill),
    ("drain", |spent| spent.drain),
    ("imbalance", |spent| spent.imbalance),
    ("transfer", |spent| spent.transfer),
    ("processor", |spent| spent.processor),
];

type Pictures = [Option<Picture>];

/// The figures that people ask for first: tiles for one run, a table for two.
pub fn summary(runs: &[Run], pictures: &Pictures) -> String {
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

/// Name, value and what belongs to it; always the same names in the same order.
fn facts(run: &Run, picture: Option<&Picture>) -> Vec<(&'static str, String, String)> {
    let middle = |of: fn(&super::run::Step) -> Option<f64>| {
        // The first steps warm up caches and pools.
        let skipped = run.steps.len().min(3) - 1.min(run.steps.len());
        let mut values: Vec<f64> = run.steps.iter().skip(skipped).filter_map(of).collect();
        (!values.is_empty()).then(|| median(&mut values))
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
        predicted_peak.and_then(|record| record.stages.iter().map(|stage| stage.peak).max());
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
            run.record.as_ref().map_or(String::new(), machine),
        ),
    ]
}

fn machine(record: &Record) -> String {
    let machine = &record.machine;
    format!(
        "{} devices, {} threads on {} cores",
        record.devices.len(),
        machine.threads,
        machine.cores
    )
}

/// The most bytes that each stage held.
fn peaks(run: &Run) -> Vec<u64> {
    if let Some(end) = run.end.as_ref().filter(|end| !end.peak_bytes.is_empty()) {
        return end.peak_bytes.clone();
    }
    let mut peaks = Vec::new();
    for step in &run.steps {
        peaks.resize(peaks.len().max(step.peak_bytes.len()), 0);
        for (most, &bytes) in peaks.iter_mut().zip(&step.peak_bytes) {
            *most = bytes.max(*most);
        }
    }
    peaks
}

/// What is missing.
pub fn notes(runs: &[Run]) -> String {
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

/// The place of the timelines, with what can be chosen and the key.
pub fn timeline(pictures: &Pictures) -> String {
    let drawn: Vec<&Picture> = pictures.iter().flatten().collect();
    if drawn.is_empty() {
        return String::new();
    }
    let mut choices = String::new();
    for (index, picture) in drawn.iter().enumerate() {
        let labels: Vec<&str> = picture.measured().collect();
        if labels.len() > 1 {
            let last = labels.len() - 1;
            let option = |(place, label): (usize, &&str)| {
                let selected = if place == last { " selected" } else { "" };
                format!("<option{selected}>{}</option>", escape(label))
            };
            let options: String = labels.iter().enumerate().map(option).collect();
            choices +=
                &format!("<select id=\"step-{index}\" aria-label=\"Step\">{options}</select>\n");
        }
    }
    let operations = [
        ("F", "forward", "forward"),
        ("B", "backward", "backward"),
        ("I", "input", "input gradient"),
        ("W", "weight", "weight gradient"),
        ("R", "again", "recompute"),
    ];
    let key: String = operations
        .iter()
        .map(|(letter, colour, name)| {
            format!(
                "<span class=\"key\"><i style=\"background:var(--{colour});color:var(--on-{colour})\">{letter}</i>{name}</span>\n"
            )
        })
        .collect();
    let causes: String = PARTS[2..]
        .iter()
        .map(|(name, _)| {
            format!("<span class=\"key\"><i class=\"thin {name}\"></i>{name}</span>\n")
        })
        .collect();
    format!(
        "<h2>Timeline of a step</h2>\n\
         <div class=\"bar\">{key}<span class=\"soft\">idle, by its cause:</span>{causes}</div>\n\
         <div class=\"bar\">{choices}\
         <label class=\"key\"><input type=\"checkbox\" id=\"predicted\" checked>prediction</label>\
         <button id=\"closer\" type=\"button\">Closer</button>\
         <button id=\"wider\" type=\"button\">Wider</button>\
         <button id=\"whole\" type=\"button\">Whole step</button>\
         <span class=\"soft\">Drag to move, Ctrl and wheel or double click to zoom; keys: ← → + − 0. Point at a \
         span to follow its micro-batch.</span></div>\n\
         <div class=\"chart\"><canvas id=\"timeline\" tabindex=\"0\" role=\"img\" aria-label=\"Timelines: one row \
         a device; the tables below say the same in numbers\"></canvas></div>\n"
    )
}

/// Where the devices' time went.
pub fn bubble(pictures: &Pictures) -> String {
    let drawn: Vec<(&Picture, &str)> = pictures
        .iter()
        .zip(MARKS)
        .filter_map(|(picture, mark)| Some((picture.as_ref()?, mark)))
        .collect();
    if drawn.is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    for (picture, mark) in &drawn {
        let mark = if pictures.len() > 1 {
            format!("{mark}: ")
        } else {
            String::new()
        };
        for share in &picture.shares {
            let all = share.spent.iter().copied().fold(Spent::default(), add);
            let label = format!("{mark}{}", escape(&share.label));
            rows.push(spent_row(
                &label,
                &all,
                share.makespan * share.spent.len() as f64,
            ));
        }
        let last = picture
            .shares
            .last()
            .filter(|share| share.spent.len() <= 64);
        for (device, spent) in last
            .into_iter()
            .flat_map(|share| share.spent.iter().enumerate())
        {
            let label = format!("{mark}<span class=\"soft\">of which device {device}</span>");
            rows.push(spent_row(
                &label,
                spent,
                last.map_or(0.0, |share| share.makespan),
            ));
        }
    }
    let mut heading = vec!["", ""];
    heading.extend(PARTS.map(|(name, _)| name));
    heading.push("bubble");
    let key: String = PARTS
        .iter()
        .map(|(name, _)| format!("<span class=\"key\"><i class=\"{name}\"></i>{name}</span>\n"))
        .collect();
    format!(
        "<h2>Where the time goes</h2>\n<div class=\"bar\">{key}</div>\n{}\
         <p class=\"soft\">Shares of all devices' time from the first start to the last end of a step. <b>work</b>: \
         what has to be done once. <b>recompute</b>: computing again what was not kept; where it is part of a \
         backward pass, as long as the forward pass took. The rest is the bubble. <b>fill</b> and <b>drain</b>: \
         waiting that the schedule would have with equal stages too, before the device's first gradient and \
         after. <b>imbalance</b>: waiting for a stage that takes longer than the mean, always or this time. \
         <b>transfer</b>: what was waited for was sent and had not arrived. <b>processor</b>: all was there but \
         the processor, which devices share. Whoever waits for one that was late for the last two reasons waits \
         for the same reason.</p>\n",
        table(&heading, 2, &rows)
    )
}

fn add(a: Spent, b: Spent) -> Spent {
    let mut sum = Spent {
        work: a.work + b.work,
        recompute: a.recompute + b.recompute,
        ..a
    };
    for cause in Cause::ALL {
        let mut b = b;
        *sum.idle(cause) += *b.idle(cause);
    }
    sum
}

fn spent_row(label: &str, spent: &Spent, whole: f64) -> Vec<String> {
    let share = |part: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let mut bar = String::from("<div class=\"stack\">");
    let mut cells = Vec::new();
    for (name, part) in PARTS {
        let part = share(part(spent));
        bar += &format!(
            "<i class=\"{name}\" style=\"width:{:.3}%\" title=\"{name}\"></i>",
            100.0 * part
        );
        cells.push(format!("{:.1} %", 100.0 * part));
    }
    bar += "</div>";
    let idle = 1.0 - share(spent.work + spent.recompute);
    let mut row = vec![label.to_owned(), bar];
    row.append(&mut cells);
    row.push(format!(
        "{:.1} %",
        100.0 * if whole > 0.0 { idle } else { 0.0 }
    ));
    row
}

/// The place of the memory strips.
pub fn memory(runs: &[Run], pictures: &Pictures) -> String {
    if !pictures.iter().flatten().any(Picture::counts_memory) {
        return String::new();
    }
    let records = || runs.iter().filter_map(|run| run.record.as_ref());
    let limited = |record: &Record| record.stages.iter().any(|stage| stage.limit.is_some());
    let limit = if records().any(limited) {
        "<span class=\"key\"><i class=\"thin\" style=\"background:var(--limit)\"></i>limit</span>"
            .to_owned()
    } else {
        let memory = records().find_map(|record| record.machine.memory);
        memory.map_or(String::new(), |memory| {
            format!(
                "<span class=\"soft\">Limit: the {} of the machine, which all devices share.</span>",
                numbers::bytes(memory)
            )
        })
    };
    format!(
        "<h2>Memory over the step</h2>\n\
         <div class=\"bar\"><span class=\"key\"><i class=\"first\"></i>measured</span>\
         <span class=\"key\"><i class=\"second thin\"></i>predicted</span>{limit}\
         <span class=\"soft\">All strips have the same scale. During an action the most that the device held, \
         between actions what was left.</span></div>\n\
         <div class=\"chart\"><canvas id=\"memory\" tabindex=\"0\" role=\"img\" aria-label=\"Memory of each device over \
         the step; the table of the cut names the peaks\"></canvas></div>\n"
    )
}

/// Curves over the steps.
pub fn curves(runs: &[Run]) -> Result<String> {
    let line = |of: fn(&super::run::Step) -> Option<f64>| -> Vec<Series> {
        let series = |run: &Run| Series {
            line: run
                .steps
                .iter()
                .filter_map(|step| Some((step.step as f64, of(step)?)))
                .collect(),
            dots: Vec::new(),
        };
        runs.iter().map(series).collect()
    };
    let mut losses = line(|step| step.loss);
    for (series, run) in losses.iter_mut().zip(runs) {
        series.dots = run
            .evaluations
            .iter()
            .map(|&(step, loss)| (step as f64, loss))
            .collect();
    }
    let dots = if runs.iter().any(|run| !run.evaluations.is_empty()) {
        "Loss over steps; dots: held out"
    } else {
        "Loss over steps"
    };
    let charts = [
        chart(dots, losses)?,
        chart(
            "Norm of the gradients, before clipping",
            line(|step| step.grad_norm),
        )?,
        chart("Tokens a second", line(|step| step.tokens_per_second))?,
        chart(
            "Bubble, in percent",
            line(|step| Some(100.0 * step.bubble?)),
        )?,
    ]
    .concat();
    if charts.is_empty() {
        return Ok(String::new());
    }
    let key = if let [a, b] = runs {
        format!(
            "<div class=\"bar\"><span class=\"key\"><i class=\"first\"></i>A: {}</span>\
             <span class=\"key\"><i class=\"second\"></i>B: {}</span></div>\n",
            escape(&a.name),
            escape(&b.name)
        )
    } else {
        String::new()
    };
    Ok(format!(
        "<h2>Curves</h2>\n{key}<div class=\"curves\">\n{charts}</div>\n"
    ))
}

/// The cut: predicted and measured cost of each stage.
pub fn cut(runs: &[Run], pictures: &Pictures) -> String {
    let mut html = String::new();
    for ((run, picture), mark) in runs.iter().zip(pictures).zip(MARKS) {
        let Some(record) = &run.record else { continue };
        let shares = picture.as_ref().map_or(&[][..], |picture| &picture.shares);
        let predicted = shares.iter().find(|share| share.predicted);
        let measured = shares.iter().rfind(|share| !share.predicted);
        let longest = predicted.into_iter().chain(measured);
        let longest = longest
            .flat_map(|share| &share.stages)
            .copied()
            .fold(0.0, f64::max);
        let peaks = peaks(run);
        let row = |(stage, part): (usize, &super::record::Part)| {
            let of = |share: Option<&Share>| share.map(|share| share.stages[stage]);
            let time = |seconds: Option<f64>| seconds.map_or(String::new(), numbers::step_time);
            let bar = |class: &str, seconds: Option<f64>| {
                let width =
                    100.0 * seconds.unwrap_or(0.0) / if longest > 0.0 { longest } else { 1.0 };
                format!("<i class=\"{class}\" style=\"width:{width:.2}%\"></i>")
            };
            let off = match (of(predicted), of(measured)) {
                (Some(predicted), Some(measured)) if predicted > 0.0 => {
                    format!("{:+.0} %", 100.0 * (measured / predicted - 1.0))
                }
                _ => String::new(),
            };
            vec![
                stage.to_string(),
                escape(&part.names),
                part.layers.to_string(),
                format!(
                    "<div class=\"pair\">{}{}</div>",
                    bar("second", of(predicted)),
                    bar("first", of(measured))
                ),
                numbers::short(part.flops as f64),
                time(of(predicted)),
                time(of(measured)),
                off,
                numbers::bytes(part.fixed),
                numbers::bytes(part.peak),
                peaks
                    .get(stage)
                    .map_or(String::new(), |&peak| numbers::bytes(peak)),
            ]
        };
        let rows: Vec<Vec<String>> = record.stages.iter().enumerate().map(row).collect();
        let heading = [
            "stage",
            "layers",
            "",
            "cost",
            "FLOPs",
            "predicted",
            "measured",
            "off by",
            "parameters",
            "peak predicted",
            "peak measured",
        ];
        let name = if runs.len() > 1 {
            format!(" of {mark}")
        } else {
            String::new()
        };
        html += &format!(
            "<h2>The cut{name}</h2>\n<div class=\"bar\">\
             <span class=\"key\"><i class=\"second thin\"></i>predicted</span>\
             <span class=\"key\"><i class=\"first thin\"></i>measured</span>\
             <span class=\"soft\">Time that a stage works in a step, recomputation included.</span></div>\n{}",
            table(&heading, 4, &rows)
        );
    }
    html
}

/// The configuration, and where two differ.
pub fn configuration(runs: &[Run]) -> String {
    let mut html = String::from("<h2>Configuration and machine</h2>\n");
    if let [a, b] = runs {
        html += &differences(a, b);
    }
    html += "<div class=\"sides\">\n";
    for run in runs {
        let machine = run.record.as_ref().map_or(String::new(), |record| {
            let machine = &record.machine;
            let memory = machine.memory.map_or(String::new(), |memory| {
                format!(", {} of memory", numbers::bytes(memory))
            });
            format!(
                "<p>{}: {} on {} {}{memory}; gpipe {}</p>\n",
                escape(&run.name),
                machine_words(record),
                escape(&machine.system),
                escape(&machine.architecture),
                escape(&record.gpipe)
            )
        });
        let config = run.config.as_ref().map_or(String::new(), |config| {
            let open = if runs.len() == 1 { " open" } else { "" };
            format!(
                "<details{open}><summary>config.toml</summary><pre>{}</pre></details>\n",
                escape(config)
            )
        });
        html += &format!("<div>\n{machine}{config}</div>\n");
    }
    html + "</div>\n"
}

fn machine_words(record: &Record) -> String {
    let mut names: Vec<&str> = record.devices.iter().map(String::as_str).collect();
    names.dedup();
    format!(
        "{} ({})",
        escape(&machine(record)),
        escape(&names.join(", "))
    )
}

/// Keys whose values differ.
fn differences(a: &Run, b: &Run) -> String {
    let keys = |run: &Run| -> Vec<(String, String)> {
        let table = run
            .config
            .as_deref()
            .and_then(|text| text.parse::<toml::Table>().ok());
        let mut keys = Vec::new();
        for (section, values) in table.into_iter().flatten() {
            for (key, value) in values.as_table().into_iter().flatten() {
                keys.push((format!("{section}.{key}"), value.to_string()));
            }
        }
        keys
    };
    let (a, b) = (keys(a), keys(b));
    let of = |keys: &[(String, String)], name: &str| {
        let found = keys.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    };
    let mut names: Vec<&String> = a.iter().chain(&b).map(|(key, _)| key).collect();
    names.sort_unstable();
    names.dedup();
    let rows: Vec<Vec<String>> = names
        .into_iter()
        .filter(|name| of(&a, name) != of(&b, name))
        .map(|name| {
            let cell = |value: Option<String>| value.map_or(String::new(), |value| escape(&value));
            vec![escape(name), cell(of(&a, name)), cell(of(&b, name))]
        })
        .collect();
    if rows.is_empty() {
        return "<p>Both runs have the same configuration.</p>\n".to_owned();
    }
    format!(
        "<p>What differs:</p>\n{}",
        table(&["key", "A", "B"], 3, &rows)
    )
}
