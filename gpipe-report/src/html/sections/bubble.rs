//! The table of the devices' time: work, recomputation, and the causes of idling.

use gpipe_sched::{BubbleBreakdown, Cause};

use super::common::{MARKS, PARTS, Pictures};
use crate::html::escape::{escape, table};
use crate::html::picture::Picture;

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
    let mut rows = Vec::new();
    for (picture, mark) in &drawn {
        let mark = if pictures.len() > 1 {
            format!("{mark}: ")
        } else {
            String::new()
        };
        for share in &picture.shares {
            let all = share
                .spent
                .iter()
                .copied()
                .fold(BubbleBreakdown::default(), add);
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
