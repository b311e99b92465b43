//! `gpipe check`: every file of every checkpoint of a run, compared with its digest.

use gpipe_report::{Checked, Event, numbers};
use gpipe_train::{machine, printable};

use crate::args::{CheckArgs, OutputArgs};
use crate::fail::{Fail, Result};
use crate::output::print;

/// Prints each checkpoint, newest first, and what the run goes on from.
pub fn run(args: &CheckArgs, output: OutputArgs) -> Result<()> {
    let memory = machine::memory().unwrap_or(u64::MAX);
    let check = gpipe_checkpoint::check(&args.folder, memory)?;
    let is_whole = check.is_whole();
    if check.checkpoints.is_empty() {
        check.resumes?;
        return Ok(());
    }
    let resumes = check.resumes.as_ref().ok().copied();
    for found in check.checkpoints {
        let whole = found.is_whole();
        let mut faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
        faults.extend(
            found
                .other_run
                .map(|id| format!("belongs to another run, {id}")),
        );
        let checked = Checked {
            path: found.folder.display().to_string(),
            step: found.step,
            files: found.files,
            bytes: found.bytes,
            whole,
            resumes: whole && found.step == resumes,
            faults,
        };
        if output.json {
            print(&Event::Check(checked).to_json()?)?;
        } else if !output.quiet || !whole {
            print(&described(&checked))?;
        }
    }
    if !output.json && !output.quiet {
        print(&match &check.resumes {
            Ok(step) => format!("the run goes on from step {step}"),
            Err(error) => printable(&format!("nothing to go on from: {error}")),
        })?;
    }
    if is_whole { Ok(()) } else { Err(Fail::Unequal) }
}

fn described(checked: &Checked) -> String {
    let path = printable(&checked.path);
    let faults = checked.faults.iter().map(|fault| printable(fault));
    match checked.whole {
        true => format!(
            "{path}: whole, {} of {}",
            numbers::counted(checked.files as u64, "file"),
            numbers::bytes(checked.bytes)
        ),
        false => format!("{path}: {}", faults.collect::<Vec<_>>().join("; ")),
    }
}
