//! The page: one file that needs no network.

use serde::Serialize;

use super::html::{escape, fill, json};
use super::picture::Picture;
use super::{Run, sections};
use crate::fail::Result;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    "\n",
    include_str!("page/window.js"),
    "\n",
    include_str!("page/timeline.js"),
    "\n",
    include_str!("page/memory.js"),
    "\n",
    include_str!("page/main.js"),
);

/// What stands for the runs where there are two.
pub const MARKS: [&str; 2] = ["A", "B"];

#[derive(Serialize)]
struct Data<'a> {
    runs: Vec<&'a Picture>,
}

/// The page of one run, or of two side by side.
pub fn page(runs: &[Run]) -> Result<String> {
    let pictures = runs
        .iter()
        .zip(MARKS)
        .map(|(run, mark)| Picture::of(run, mark))
        .collect::<Result<Vec<_>>>()?;
    let drawn: Vec<&Picture> = pictures.iter().flatten().collect();
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = escape(&format!("gpipe: {}", names.join(" and ")));
    let data = json(&Data { runs: drawn })?;
    let values = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("title", &title),
        ("style", STYLE),
        ("summary", &sections::summary(runs, &pictures)),
        ("notes", &sections::notes(runs)),
        ("timeline", &sections::timeline(&pictures)),
        ("bubble", &sections::bubble(&pictures)),
        ("memory", &sections::memory(runs, &pictures)),
        ("curves", &sections::curves(runs)?),
        ("cut", &sections::cut(runs, &pictures)),
        ("configuration", &sections::configuration(runs)),
        ("data", &data),
        ("script", SCRIPT),
    ];
    Ok(fill(TEMPLATE, &values))
}
