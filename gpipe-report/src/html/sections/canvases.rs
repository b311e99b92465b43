//! The sections of timelines and memory: canvases with controls and keys.

use super::bubble::meaning;
use super::common::{PARTS, Pictures};
use crate::html::escape::escape;
use crate::html::picture::Picture;
use crate::numbers;
use crate::run::Run;
use crate::timeline::record::Record;

/// The section of the timelines: key, controls and canvas.
pub(crate) fn timeline(pictures: &Pictures) -> String {
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
            let meaning = meaning(name);
            format!("<span class=\"key\" title=\"{meaning}\"><i class=\"thin {name}\"></i>{name}</span>\n")
        })
        .collect();
    let portal = match pictures.iter().flatten().any(Picture::has_portals) {
        true => {
            "<span class=\"key\" title=\"a tensor or its gradient goes straight past the stages between\">\
             <i class=\"thin\" style=\"background:var(--portal)\"></i>portal</span>\n"
        }
        false => "",
    };
    format!(
        "<h2>Timeline of a step</h2>\n\
         <div class=\"bar\">{key}{portal}<span class=\"soft\">idle, by its cause:</span>{causes}</div>\n\
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

/// The section of the memory of each device: key and canvas.
pub(crate) fn memory(runs: &[Run], pictures: &Pictures) -> String {
    if !pictures.iter().flatten().any(Picture::counts_memory) {
        return String::new();
    }
    let records = || runs.iter().filter_map(|run| run.record.as_ref());
    let limited = |record: &Record| {
        record
            .stages
            .iter()
            .any(|stage| stage.limit_bytes.is_some())
    };
    let limit = if records().any(limited) {
        "<span class=\"key\"><i class=\"thin\" style=\"background:var(--limit)\"></i>limit</span>"
            .to_owned()
    } else if let Some(limit) = runs.iter().find_map(limit_of_worker) {
        format!(
            "<span class=\"soft\">Limit of each device: {}.</span>",
            escape(&limit)
        )
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
         <span class=\"soft\">Each strip shows the part that changes: it begins at the least that the device holds, \
         which stands beside it with the most. All strips have the same scale.</span></div>\n\
         <div class=\"chart\"><canvas id=\"memory\" tabindex=\"0\" role=\"img\" aria-label=\"Memory of each device over \
         the step; the table of the cut names the peaks\"></canvas></div>\n"
    )
}

/// The configured memory of each worker, if it is limited.
fn limit_of_worker(run: &Run) -> Option<String> {
    let config: toml::Table = run.config.as_deref()?.parse().ok()?;
    let limit = config.get("pipeline")?.get("memory")?.as_str()?;
    (limit != "unlimited").then(|| limit.to_owned())
}
