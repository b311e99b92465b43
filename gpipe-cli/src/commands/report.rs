//! `gpipe report`: an HTML page about one run, or two side by side.

use std::io::Read;
use std::path::Path;

use gpipe_files::{Links, check_writable, open_regular};
use gpipe_report::{Error, Event, PAGE, html, read_run, write_html};

use crate::args::{OutputArgs, ReportArgs};
use crate::fail::{Fail, Result};
use crate::output::print;

/// Looks at the place of the page, reads the runs, writes the page and prints its path.
pub fn run(args: &ReportArgs, output: OutputArgs) -> Result<()> {
    let path = match (&args.out, args.runs.as_slice()) {
        (Some(path), _) => path.clone(),
        (None, [.., last]) => last.join(PAGE),
        (None, []) => PAGE.into(),
    };
    let named = |error| match error {
        Error::File(error) if args.out.is_some() => Fail::invalid(format!("--out {error}")),
        error => error.into(),
    };
    check_writable(&path).map_err(|error| named(error.into()))?;
    check_replaced(&path)?;
    let runs = args.runs.iter().map(|folder| read_run(folder));
    let runs = runs.collect::<gpipe_report::Result<Vec<_>>>()?;
    let page = html(&runs)?;
    write_html(&path, &page).map_err(named)?;
    let path = path.display().to_string();
    if output.json {
        let bytes = page.len() as u64;
        return print(&Event::Report { path, bytes }.to_json()?);
    }
    if output.quiet { Ok(()) } else { print(&path) }
}

/// Refuses to replace anything but a page or an empty file: it may be a file of the run.
fn check_replaced(path: &Path) -> Result<()> {
    const START: &[u8] = b"<!doctype html>";
    let Ok((file, _)) = open_regular(path, Links::Refused, "") else {
        return Ok(());
    };
    let mut start = Vec::new();
    let read = file.take(START.len() as u64).read_to_end(&mut start);
    if read.is_ok() && (start.is_empty() || start == START) {
        return Ok(());
    }
    Err(Fail::invalid(format!(
        "--out {}: is a file that is no page: choose another name",
        path.display()
    )))
}
