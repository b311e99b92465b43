//! `gpipe report`: a run, or two side by side, as one page.

use gpipe_report::{Event, PAGE, html, read_run, write_html};

use crate::args::{ReportArgs, Talk};
use crate::fail::Result;
use crate::output::print;

/// Reads the folders, writes the page and says where it is.
pub fn run(args: &ReportArgs, talk: Talk) -> Result<()> {
    let runs = args.runs.iter().map(|folder| read_run(folder));
    let runs = runs.collect::<gpipe_report::Result<Vec<_>>>()?;
    let path = match (&args.out, args.runs.as_slice()) {
        (Some(path), _) => path.clone(),
        (None, [.., last]) => last.join(PAGE),
        (None, []) => PAGE.into(),
    };
    let page = html(&runs)?;
    write_html(&path, &page)?;
    let path = path.display().to_string();
    if talk.json {
        let bytes = page.len() as u64;
        return print(&Event::Report { path, bytes }.to_json()?);
    }
    if talk.quiet { Ok(()) } else { print(&path) }
}
