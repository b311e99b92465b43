//! The page: one file that needs no network.

use std::path::Path;

use gpipe_files::{Error as FileError, Fault};
use serde::Serialize;

use super::escape::{escape, fill, json};
use super::picture::Picture;
use super::sections::common::MARKS;
use super::sections::{bubble, canvases, configuration, cut, plots, resumptions, summary, why};
use crate::error::{Error, Result};
use crate::run::Run;

const TEMPLATE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = concat!(
    include_str!("assets/data.js"),
    "\n",
    include_str!("assets/window.js"),
    "\n",
    include_str!("assets/timeline.js"),
    "\n",
    include_str!("assets/memory.js"),
    "\n",
    include_str!("assets/main.js"),
);

#[derive(Serialize)]
struct Data<'a> {
    runs: Vec<&'a Picture>,
}

/// The page of one run, or of two side by side: one HTML file that needs no network.
///
/// # Errors
/// [`Error::RunCount`] for none or more than two, [`Error::Schedule`] if the actions of a record are
/// those of no schedule, [`Error::Curve`] if a curve cannot be drawn.
pub fn html(runs: &[Run]) -> Result<String> {
    if runs.is_empty() || runs.len() > MARKS.len() {
        return Err(Error::RunCount { count: runs.len() });
    }
    let pictures = |unmeasured| -> Result<Vec<_>> {
        let marked = runs.iter().zip(MARKS);
        let pictures = marked.map(|(run, mark)| Picture::of(run, mark, unmeasured));
        pictures.collect()
    };
    let mut drawn = pictures(1.0)?;
    // A prediction without a measured step is drawn as long as the other run's longest picture.
    let measured = drawn.iter().flatten().filter(|picture| !picture.relative);
    let shares = measured.flat_map(|picture| &picture.shares);
    let longest = shares.map(|share| share.makespan).fold(0.0, f64::max);
    if longest > 0.0 && drawn.iter().flatten().any(|picture| picture.relative) {
        drawn = pictures(longest)?;
    }
    let pictures = drawn;
    let drawn: Vec<&Picture> = pictures.iter().flatten().collect();
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = escape(&format!("gpipe: {}", names.join(" and ")));
    let data = json(&Data { runs: drawn })?;
    let values = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("title", &title),
        ("style", STYLE),
        ("summary", &summary::summary(runs, &pictures)),
        ("notes", &summary::notes(runs)),
        ("timeline", &canvases::timeline(&pictures)),
        ("bubble", &bubble::bubble(&pictures)),
        ("memory", &canvases::memory(runs, &pictures)),
        ("curves", &plots::curves(runs)?),
        ("resumptions", &resumptions::resumptions(runs)),
        ("cut", &(cut::cut(runs, &pictures) + &why::why(runs))),
        ("configuration", &configuration::configuration(runs)),
        ("data", &data),
        ("script", SCRIPT),
    ];
    Ok(fill(TEMPLATE, &values))
}

/// Writes a page in the place of the one that may stand there, whole or not at all.
///
/// # Errors
/// [`Error::PageNotWritten`], or [`Error::File`] for a link, a pipe, a device or a folder of that name.
pub fn write_html(path: &Path, page: &str) -> Result<()> {
    gpipe_files::replace(path, page.as_bytes()).map_err(|error| {
        let (path, mend) = (path.to_owned(), error.mend().to_owned());
        match error.into_fault() {
            Fault::Write(source) => Error::PageNotWritten { path, source },
            fault => FileError::new(path, fault, mend).into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_page_is_of_one_run_or_two() {
        assert!(matches!(html(&[]), Err(Error::RunCount { count: 0 })));
    }

    #[test]
    fn a_page_that_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        write_html(&page, "<p>").unwrap();
        assert_eq!(fs::read_to_string(&page).unwrap(), "<p>");
        let error = write_html(folder.path(), "<p>").unwrap_err();
        assert!(error.is_input_error() && folder.path().is_dir());
        assert!(write_html(&folder.path().join("no/page.html"), "<p>").is_err());
    }
}
