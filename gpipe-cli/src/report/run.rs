//! The folder of a run, read back.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;

use super::Record;
use crate::fail::{Fail, Result};

/// What is known of a run.
pub struct Run {
    /// The name of its folder.
    pub name: String,
    /// `config.toml`.
    pub config: Option<String>,
    /// `timeline.json`.
    pub record: Option<Record>,
    /// How it began.
    pub start: Option<Start>,
    /// Its steps, ascending; of a step that was made twice, the later one.
    pub steps: Vec<Step>,
    /// Evaluations: step and loss.
    pub evaluations: Vec<(u64, f64)>,
    /// How it ended, if it did.
    pub end: Option<End>,
    /// What a reader should know about what is missing.
    pub notes: Vec<String>,
}

/// The event `start`.
#[derive(Clone, Debug, Deserialize)]
pub struct Start {
    /// A tied one counted once.
    pub parameters: u64,
    /// Steps that were to be run.
    pub steps: u64,
}

/// The event `step`; what is not finite is missing.
#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    /// From 1.
    pub step: u64,
    /// Before the update.
    pub loss: Option<f64>,
    /// Before clipping.
    pub grad_norm: Option<f64>,
    /// Of this step.
    pub tokens_per_second: Option<f64>,
    /// From the batch to the updated parameters.
    pub step_seconds: Option<f64>,
    /// Measured.
    pub bubble: Option<f64>,
    /// Of each stage.
    #[serde(default)]
    pub peak_bytes: Vec<u64>,
}

/// The event `end`.
#[derive(Clone, Debug, Deserialize)]
pub struct End {
    /// Of each stage, in any step.
    #[serde(default)]
    pub peak_bytes: Vec<u64>,
    /// Since the start.
    pub seconds: Option<f64>,
}

#[derive(Deserialize)]
struct Evaluation {
    step: u64,
    loss: Option<f64>,
}

/// Any event, as far as a report needs it.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Start(Start),
    Step(Step),
    Eval(Evaluation),
    End(End),
    #[serde(other)]
    Other,
}

impl Run {
    /// Reads the folder of a run. Whatever is missing is noted, if anything is left to report.
    pub fn read(folder: &Path) -> Result<Self> {
        let shown = folder.display();
        if !folder.is_dir() {
            return Err(Fail::asked(format!(
                "{shown} is no folder: name the folder of a run, such as runs/NAME"
            )));
        }
        let name = folder
            .canonicalize()
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let mut run = Self {
            name: name.unwrap_or_else(|| shown.to_string()),
            config: read(folder, "config.toml")?.map(text),
            record: None,
            start: None,
            steps: Vec::new(),
            evaluations: Vec::new(),
            end: None,
            notes: Vec::new(),
        };
        let (events, timeline) = (
            read(folder, "events.jsonl")?,
            read(folder, "timeline.json")?,
        );
        if events.is_none() && timeline.is_none() {
            return Err(Fail::asked(format!(
                "{shown}: holds neither events.jsonl nor timeline.json: name the folder of a run of gpipe train"
            )));
        }
        match events {
            Some(events) => run.take_events(folder, &text(events))?,
            None => run.note("There is no events.jsonl: curves are missing."),
        }
        match timeline {
            Some(json) => {
                let record = Record::parse(&json).map_err(|fault| {
                    let file = folder.join("timeline.json");
                    let mend = "restore it, or remove it to report the rest";
                    Fail::asked(format!("{}: {fault}: {mend}", file.display()))
                })?;
                run.record = Some(record);
            }
            None => run.note("There is no timeline.json: the timeline is missing."),
        }
        Ok(run)
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn take_events(&mut self, folder: &Path, text: &str) -> Result<()> {
        let mut steps = BTreeMap::new();
        let mut evaluations = BTreeMap::new();
        let (mut damaged, mut lines) = (0_usize, 0_usize);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            lines += 1;
            match serde_json::from_str(line) {
                Ok(Line::Start(start)) => self.start = Some(start),
                Ok(Line::Step(step)) => drop(steps.insert(step.step, step)),
                Ok(Line::Eval(Evaluation { step, loss })) => {
                    evaluations.extend(loss.map(|loss| (step, loss)));
                }
                Ok(Line::End(end)) => self.end = Some(end),
                Ok(Line::Other) => {}
                Err(_) => damaged += 1,
            }
        }
        if damaged == lines && lines > 0 {
            let file = folder.join("events.jsonl");
            return Err(Fail::asked(format!(
                "{}: no line of it is an event: restore it, or remove it to report the rest",
                file.display()
            )));
        }
        if damaged > 0 {
            let verb = if damaged == 1 { "line" } else { "lines" };
            self.note(format!(
                "{damaged} damaged {verb} of events.jsonl left out."
            ));
        }
        self.steps = steps.into_values().collect();
        self.evaluations = evaluations.into_iter().collect();
        if self.end.is_none() {
            self.note("The run has not ended, or did not end well.");
        }
        Ok(())
    }
}

/// The bytes of a file of a run, if there is one. A pipe or a device, which may never end, is none.
fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    let fault = |fault: &dyn Display| Fail::asked(format!("{}: {fault}", path.display()));
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(about) if !about.is_file() => {
            return Err(fault(&"is no regular file: remove it to report the rest"));
        }
        _ => {}
    }
    let bytes = fs::read(&path);
    let bytes = bytes.map_err(|error| fault(&format!("{error}: make it readable")))?;
    Ok(Some(bytes))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
