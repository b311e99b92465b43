//! A run, read back from its folder.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use gpipe_files::{Fault, Links, read_capped};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::folder::names::{CONFIG, EVENTS, TIMELINE};
use crate::timeline::record::Record;

/// More bytes of a file are not read: a gibibyte of events is several million steps.
const LARGEST: u64 = 1 << 32;

/// A run as its folder tells it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// The name of its folder.
    pub name: String,
    /// `config.toml`.
    pub config: Option<String>,
    /// `timeline.json`.
    pub record: Option<Record>,
    /// How it began.
    pub start: Option<RunStart>,
    /// Its steps, ascending, without those that were lost before the run was resumed.
    pub steps: Vec<RunStep>,
    /// Evaluations: step and loss.
    pub evaluations: Vec<(u64, f64)>,
    /// Steps before those of its last process, if that has resumed it.
    pub resumed_after: Option<u64>,
    /// How often it was resumed, ascending by steps, without those whose steps were lost.
    pub resumptions: Vec<Resumption>,
    /// How it ended, if it did.
    pub end: Option<RunEnd>,
    /// Why it failed, if it did and was not resumed since.
    pub error: Option<String>,
    /// What a reader should know about missing or damaged files, in sentences.
    pub notes: Vec<String>,
}

/// The event `start`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct RunStart {
    /// Parameters of the model, a tied one counted once.
    pub parameters: u64,
    /// Those of them that train. Earlier versions did not write it.
    pub trained_parameters: Option<u64>,
    /// Steps that were to be run.
    pub steps: u64,
    /// What a step has: `tokens` or `images`. Earlier versions did not write it.
    pub unit: Option<String>,
}

impl Run {
    /// Parameters that train, if not all do.
    pub(crate) fn trained(&self) -> Option<u64> {
        let start = self.start.as_ref()?;
        (start.trained_parameters).filter(|trained| *trained != start.parameters)
    }

    /// The steps of its last process, or all if that has made none. One before it may have had other stages, or run on
    /// another machine.
    pub(crate) fn last_steps(&self) -> &[RunStep] {
        let before = self.resumed_after.unwrap_or(0);
        let first = self.steps.partition_point(|step| step.step <= before);
        match &self.steps[first..] {
            [] => &self.steps,
            last => last,
        }
    }

    /// What is counted as tokens of a step: tokens or images.
    pub(crate) fn unit(&self) -> &'static str {
        let unit = self.start.as_ref().and_then(|start| start.unit.as_deref());
        match unit {
            Some("images") => "images",
            _ => "tokens",
        }
    }
}

/// The event `step`; numbers that are not finite are missing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct RunStep {
    /// Number, from 1.
    pub step: u64,
    /// Mean over the targets of the batch in nats, before the update.
    pub loss: Option<f64>,
    /// Norm of all gradients together, before clipping.
    pub grad_norm: Option<f64>,
    /// Learning rate.
    pub lr: Option<f64>,
    /// Tokens of the batch divided by the seconds of the step.
    pub tokens_per_second: Option<f64>,
    /// Seconds from the batch to the updated parameters.
    pub step_seconds: Option<f64>,
    /// Measured share of the pipeline's time in which stages idle, from 0 to 1.
    pub bubble: Option<f64>,
    /// Peak bytes of each stage.
    #[serde(default)]
    pub peak_bytes: Vec<u64>,
}

/// The event `end`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct RunEnd {
    /// Peak bytes of each stage in any step.
    #[serde(default)]
    pub peak_bytes: Vec<u64>,
    /// Seconds since the start of the process.
    pub seconds: Option<f64>,
}

/// The event `resume`: later steps were lost with the process that made them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Resumption {
    /// Steps before it.
    pub step: u64,
    /// What differs from the process before, in words.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Evaluation {
    /// `None` where nothing was trained: no point of a curve.
    step: Option<u64>,
    loss: Option<f64>,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

/// Any event, as far as a report needs it.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Start(RunStart),
    Step(RunStep),
    Eval(Evaluation),
    Resume(Resumption),
    Error(Failure),
    End(RunEnd),
    #[serde(other)]
    Other,
}

/// Reads the folder of a run. Missing files are noted, if anything is left to report.
///
/// # Errors
/// [`Error::Damaged`] if it is no folder of a run, or if a file of it is damaged; [`Error::File`] if a
/// file cannot be read.
pub fn read_run(folder: &Path) -> Result<Run> {
    let shown = folder.display();
    if !folder.is_dir() {
        let is_locked = |fault: io::Error| fault.kind() == io::ErrorKind::PermissionDenied;
        let fault = match folder.metadata().is_err_and(is_locked) {
            true => "cannot be read by this user: change the permissions of the folders above it",
            false => "is no folder: name the folder of a run, such as runs/NAME",
        };
        return Err(damaged(folder, fault));
    }
    let name = folder
        .canonicalize()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let mut run = Run {
        name: name.unwrap_or_else(|| shown.to_string()),
        config: read(folder, CONFIG)?.map(text),
        record: None,
        start: None,
        steps: Vec::new(),
        evaluations: Vec::new(),
        resumed_after: None,
        resumptions: Vec::new(),
        end: None,
        error: None,
        notes: Vec::new(),
    };
    let (events, timeline) = (read(folder, EVENTS)?, read(folder, TIMELINE)?);
    if events.is_none() && timeline.is_none() {
        let fault =
            "holds neither events.jsonl nor timeline.json: name the folder of a run of gpipe train";
        return Err(damaged(folder, fault));
    }
    if run.config.is_none() {
        run.note("There is no config.toml: the configuration is missing.");
    }
    match events {
        Some(events) => run.take_events(folder, &text(events))?,
        None => run.note("There is no events.jsonl: curves are missing."),
    }
    match timeline {
        Some(json) => {
            let record = Record::parse(&json).map_err(|fault| {
                let mend = "restore it, or remove it to report the rest";
                damaged(&folder.join(TIMELINE), format!("{fault}: {mend}"))
            })?;
            run.record = Some(record);
        }
        None => run.note("There is no timeline.json: the timeline is missing."),
    }
    Ok(run)
}

impl Run {
    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn take_events(&mut self, folder: &Path, text: &str) -> Result<()> {
        let mut steps = BTreeMap::new();
        let mut evaluations = BTreeMap::new();
        let (mut broken, mut lines) = (0_usize, 0_usize);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            lines += 1;
            match serde_json::from_str(line) {
                Ok(Line::Start(start)) => self.start = Some(start),
                Ok(Line::Step(step)) => drop(steps.insert(step.step, step)),
                Ok(Line::Eval(Evaluation { step, loss })) => {
                    evaluations.extend(step.zip(loss));
                }
                Ok(Line::Error(Failure { message })) => self.error = Some(message),
                Ok(Line::Resume(resumption)) => {
                    let made = resumption.step;
                    steps.retain(|&step, _| step <= made);
                    evaluations.retain(|&step, _| step <= made);
                    (self.error, self.end) = (None, None);
                    self.resumed_after = Some(made);
                    self.resumptions.retain(|before| before.step < made);
                    self.resumptions.push(resumption);
                }
                Ok(Line::End(end)) => self.end = Some(end),
                Ok(Line::Other) => {}
                Err(_) => broken += 1,
            }
        }
        if broken == lines && lines > 0 {
            let fault = "no line of it is an event: restore it, or remove it to report the rest";
            return Err(damaged(&folder.join(EVENTS), fault));
        }
        if broken > 0 {
            let noun = if broken == 1 { "line" } else { "lines" };
            self.note(format!("{broken} damaged {noun} of events.jsonl left out."));
        }
        self.steps = steps.into_values().collect();
        self.evaluations = evaluations.into_iter().collect();
        if self.end.is_none() && self.error.is_none() {
            self.note("The run has not ended, or did not end well.");
        }
        Ok(())
    }
}

/// The bytes of a file of a run, if there is one. A pipe or a device, which may never end, is refused.
fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    match read_capped(
        &folder.join(name),
        LARGEST,
        Links::Followed,
        "make it readable",
    ) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(match error.fault() {
            Fault::Read(_) => error,
            _ => error.with_mend("remove it to report the rest"),
        }
        .into()),
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn damaged(path: &Path, fault: impl Into<String>) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        fault: fault.into(),
    }
}
