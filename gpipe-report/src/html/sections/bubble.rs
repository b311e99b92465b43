//! The table of the devices' time: work, recomputation, and the causes of idling.

use gpipe_sched::{BubbleBreakdown, Cause};

use super::common::{MARKS, PARTS, Pictures};
use crate::html::escape::{escape, table};
use crate::html::picture::Picture;
use crate::numbers;

/// The section on the devices' time: a row a view, and of the last view a row a device.
pub(crate) fn bubble(pictures: &Pictures) -> String {
    let drawn: Vec<(&Picture, &str)> = pictures
        .iter()
        .zip(MARKS)
        .filter_map(|(picture, mark)| Some((picture.as_ref()?, mark)))
        .collect();
    if drawn.is_empty() {
        return String::new();
    }
    let mut heading = vec!["", ""];
    heading.extend(PARTS.map(|(name, _)| name));
    heading.push("bubble");
    let (mut rows, mut folded) = (Vec::new(), Vec::new());
    for (picture, mark) in &drawn {
        let mark = if pictures.len() > 1 {
            format!("{mark}: ")
        } else {
            String::new()
        };
        let measured = picture.shares.iter().filter(|share| share.step.is_some());
        let many = measured.count() > MOST_OPEN;
        let last = picture.shares.len() - 1;
        for (place, share) in picture.shares.iter().enumerate() {
            let label = format!("{mark}{}", escape(&share.label));
            let devices = share.spent.len();
            let whole = share.spent.iter().copied();
            let whole = whole.fold(BubbleBreakdown::default(), add);
            let row = spent_row(&label, &whole, share.makespan * devices as f64);
            match many && share.step.is_some() && place < last {
                true => folded.push(row),
                false => rows.push(row),
            }
        }
        let Some(share) = picture.shares.last() else {
            continue;
        };
        let view = match share.step {
            Some(step) => format!("step {step}"),
            None => "predicted".to_owned(),
        };
        let devices = share.spent.iter().enumerate();
        for (device, spent) in devices.filter(|_| share.spent.len() <= MOST_DEVICES) {
            let name = match picture.devices.get(device) {
                Some(name) if picture.has_hosts => format!(", {}", escape(name)),
                _ => String::new(),
            };
            let label = format!("{mark}<span class=\"soft\">{view}, device {device}{name}</span>");
            rows.push(spent_row(&label, spent, share.makespan));
        }
    }
    let key: String = PARTS
        .iter()
        .map(|(name, _)| {
            let meaning = meaning(name);
            format!(
                "<span class=\"key\" title=\"{meaning}\"><i class=\"{name}\"></i>{name}</span>\n"
            )
        })
        .collect();
    let folded = match folded.len() {
        0 => String::new(),
        count => format!(
            "<details><summary>{count} more measured steps</summary>\n{}</details>\n",
            table(&heading, 2, &folded)
        ),
    };
    let words: String = WORDS
        .iter()
        .map(|(name, meaning)| format!("<dt>{name}</dt><dd>{meaning}</dd>\n"))
        .collect();
    format!(
        "<h2>Where the time goes</h2>\n<div class=\"bar\">{key}</div>\n<div class=\"shares\">{}</div>\n{folded}\
         <details><summary>What the words mean</summary>\n<dl>\n{words}</dl></details>\n",
        table(&heading, 2, &rows)
    )
}

/// The most measured steps that are not folded away.
const MOST_OPEN: usize = 4;

/// The most devices with a row each.
const MOST_DEVICES: usize = 64;

/// What the columns mean.
const WORDS: [(&str, &str); 8] = [
    ("work", "forward and backward passes, each counted once"),
    (
        "recompute",
        "forward passes run again, because their results were not kept",
    ),
    (
        "fill",
        "waiting before the device's first gradient that stages of equal cost would have too",
    ),
    (
        "drain",
        "waiting after it that stages of equal cost would have too",
    ),
    (
        "imbalance",
        "waiting for a stage that takes longer than the mean",
    ),
    (
        "transfer",
        "waiting for data on its way from another device",
    ),
    (
        "processor",
        "the data was there, but the processor was busy with another device or had not switched to this one",
    ),
    (
        "bubble",
        "all of the above but work and recompute: the share of the devices' time that is idle",
    ),
];

/// What a column means, in plain words.
pub(crate) fn meaning(name: &str) -> &'static str {
    let word = WORDS.iter().find(|(known, _)| *known == name);
    word.map_or("", |(_, meaning)| meaning)
}

fn add(a: BubbleBreakdown, b: BubbleBreakdown) -> BubbleBreakdown {
    let mut sum = BubbleBreakdown {
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

fn spent_row(label: &str, spent: &BubbleBreakdown, whole: f64) -> Vec<String> {
    let share = |part: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let mut bar = String::from("<div class=\"stack\">");
    let mut cells = Vec::new();
    for (name, part) in PARTS {
        let part = share(part(spent));
        let said = numbers::per_mille(part);
        bar += &format!(
            "<i class=\"{name}\" style=\"width:{:.3}%\" title=\"{name}: {said}\"></i>",
            100.0 * part
        );
        cells.push(said);
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
