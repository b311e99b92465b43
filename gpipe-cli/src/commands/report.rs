//! `gpipe report`: a run, or two side by side, as one page.

use std::fs;

use crate::args::{ReportArgs, Talk};
use crate::fail::{Fail, Result};
use crate::output::{Event, print};
use crate::report::{Run, page};

/// The page's name in the folder of the run.
const PAGE: &str = "report.html";

/// Reads the folders, writes the page and says where it is.
pub fn run(args: &ReportArgs, talk: Talk) -> Result<()> {
    let runs = args
        .runs
        .iter()
        .map(|folder| Run::read(folder))
        .collect::<Result<Vec<_>>>()?;
    let path = match (&args.out, args.runs.as_slice()) {
        (Some(path), _) => path.clone(),
        (None, [.., last]) => last.join(PAGE),
        (None, []) => PAGE.into(),
    };
    let page = page(&runs)?;
    let existed = path.exists();
    fs::write(&path, &page).map_err(|error| {
        // Half a page helps nobody; what is no file of ours is left alone.
        if !existed {
            let _ = fs::remove_file(&path);
        }
        Fail::asked(format!(
            "{}: {error}: name a file that can be written with --out",
            path.display()
        ))
    })?;
    let path = path.display().to_string();
    if talk.json {
        let bytes = page.len() as u64;
        return print(&Event::Report { path, bytes }.to_json()?);
    }
    if talk.quiet { Ok(()) } else { print(&path) }
}
