//! The table of the cut: predicted and measured costs of each stage.

use super::common::{MARKS, Pictures, peaks};
use crate::html::escape::{escape, table};
use crate::html::picture::{Picture, Share};
use crate::numbers;
use crate::run::Run;
use crate::timeline::info::StageInfo;

/// The prediction and the last measured step.
fn compared(picture: &Picture) -> [Option<&Share>; 2] {
    let measured = picture.shares.iter().rfind(|share| share.step.is_some());
    [picture.prediction(), measured]
}

/// The section of the cut: a table a run, a row a stage.
pub(crate) fn cut(runs: &[Run], pictures: &Pictures) -> String {
    let mut html = String::new();
    // One scale for the bars of both runs.
    let shares = pictures.iter().flatten().flat_map(compared).flatten();
    let stages = shares.flat_map(|share| &share.stages);
    let longest = stages.copied().fold(0.0, f64::max);
    for ((run, picture), mark) in runs.iter().zip(pictures).zip(MARKS) {
        let Some(record) = &run.record else { continue };
        let [predicted, measured] = picture.as_ref().map_or([None; 2], compared);
        let peaks = peaks(run);
        let row = |(stage, part): (usize, &StageInfo)| {
            let of = |share: Option<&Share>| share.map(|share| share.stages[stage]);
            let time = |share: Option<&Share>| {
                let told = picture.as_ref().zip(share);
                told.map_or(String::new(), |(picture, share)| {
                    picture.time(share, share.stages[stage])
                })
            };
            let bar = |class: &str, seconds: Option<f64>| {
                let width =
                    100.0 * seconds.unwrap_or(0.0) / if longest > 0.0 { longest } else { 1.0 };
                format!("<i class=\"{class}\" style=\"width:{width:.2}%\"></i>")
            };
            let off = match (of(predicted), of(measured)) {
                (Some(predicted), Some(measured)) if predicted > 0.0 => {
                    format!("{} %", numbers::signed_percent(measured / predicted - 1.0))
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
                time(predicted),
                time(measured),
                off,
                numbers::bytes(part.fixed_bytes),
                numbers::bytes(part.peak_bytes),
                peaks
                    .get(stage)
                    .map_or(String::new(), |&peak| numbers::bytes(peak)),
            ]
        };
        let rows: Vec<Vec<String>> = record.stages.iter().enumerate().map(row).collect();
        let heading = [
            "stage",
            "layers",
            "number",
            "time",
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
