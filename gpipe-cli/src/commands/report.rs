//! `gpipe report`: an HTML page about one run, or two side by side.

use gpipe_report::{Error, Event, PAGE, html, read_run, write_html};

use crate::args::{OutputArgs, ReportArgs};
use crate::fail::{Fail, Result};
use crate::output::print;

/// Reads the runs, writes the page and prints its path.
pub fn run(args: &ReportArgs, output: OutputArgs) -> Result<()> {
    let runs = args.runs.iter().map(|folder| read_run(folder));
    let runs = runs.collect::<gpipe_report::Result<Vec<_>>>()?;
    let path = match (&args.out, args.runs.as_slice()) {
        (Some(path), _) => path.clone(),
        (None, [.., last]) => last.join(PAGE),
        (None, []) => PAGE.into(),
    };
    let page = html(&runs)?;
    write_html(&path, &page).map_err(|error| match error {
        Error::File(error) if args.out.is_some() => Fail::invalid(format!("--out {error}")),
        error => error.into(),
    })?;
    let path = path.display().to_string();
    if output.json {
        let bytes = page.len() as u64;
        return print(&Event::Report { path, bytes }.to_json()?);
    }
    if output.quiet { Ok(()) } else { print(&path) }
}
