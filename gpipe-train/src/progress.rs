//! Progress reports of a run: a line and an event per step, and a summary at the end.

mod summary;

use std::path::Path;
use std::time::{Duration, Instant};

use gpipe_checkpoint::{Identity, Saved};
use gpipe_data::Dataset;
use gpipe_report::{Event, Tracer, numbers};

use crate::config::TrainConfig;
use crate::error::{Error, FailedRun, Result, one_line};
use crate::evaluation::Evaluation;
use crate::pace::Pace;
use crate::printable::printable;
use crate::progress_sink::ProgressSink;
use crate::resume::StartedRun;
use crate::run_record::RunRecord;
use crate::setup::Forecast;
use crate::training_loop::Step;

/// Writes the progress of a run to its folder and to a sink.
pub(crate) struct ProgressReporter<'a, S: ProgressSink> {
    config: &'a TrainConfig,
    forecast: Forecast,
    record: RunRecord,
    sink: &'a mut S,
    /// The first event that the sink did not take.
    lost: Option<Error>,
    started: Instant,
    pace: Pace,
    bubbles: Vec<f64>,
    peaks: Vec<u64>,
    message_bytes: Option<u64>,
    first_step: u64,
    first_loss: f64,
    last_loss: f64,
    held_out: Option<String>,
    /// Evaluations, and the seconds that they took.
    evaluations: (u64, f64),
}

impl<'a, S: ProgressSink> ProgressReporter<'a, S> {
    /// Reports the start of a run.
    pub fn begin(
        config: &'a TrainConfig,
        dataset: &Dataset,
        forecast: Forecast,
        tracer: Tracer,
        started: StartedRun,
        sink: &'a mut S,
    ) -> Self {
        let StartedRun {
            folder,
            made,
            mut from,
            ..
        } = started;
        let steps = config.run.steps.u64();
        sink.begin(steps);
        let mut reporter = Self {
            config,
            record: RunRecord::new(folder, tracer),
            sink,
            lost: None,
            started: Instant::now(),
            pace: Pace::default(),
            bubbles: Vec::new(),
            peaks: vec![0; forecast.peaks.len()],
            message_bytes: None,
            first_step: made + 1,
            first_loss: 0.0,
            last_loss: 0.0,
            held_out: None,
            evaluations: (0, 0.0),
            forecast,
        };
        let pipeline = &config.pipeline;
        reporter.line(&format!(
            "{}: {}; {}: {}, {} a step in {}",
            printable(&config.model.name),
            numbers::parameters(reporter.forecast.parameters, reporter.forecast.trained),
            printable(&config.data.source),
            dataset.summary(),
            config.data.batch_size.get(),
            numbers::counted(pipeline.micro_batches.u64(), "micro-batch"),
        ));
        let cut: Vec<String> = (reporter.forecast.cut.iter())
            .map(usize::to_string)
            .collect();
        reporter.line(&format!(
            "{} of {} layers on {}; schedule {}, remat {}; {}",
            numbers::counted(cut.len() as u64, "stage"),
            cut.join(","),
            numbers::counted(pipeline.threads.u64(), "thread"),
            pipeline.schedule,
            pipeline.remat,
            numbers::bytes_a_parameter(
                reporter.forecast.parameter_bytes,
                reporter.forecast.trained == reporter.forecast.parameters,
            ),
        ));
        let start = Event::Start {
            cut: reporter.forecast.cut.clone(),
            parameters: reporter.forecast.parameters,
            trained_parameters: reporter.forecast.trained,
            steps,
            tokens: reporter.tokens(),
            unit: config.model.unit()[1],
        };
        reporter.record.event(&start);
        if let Some((_, warnings)) = &mut from {
            warnings.extend(reporter.record.resume_timelines(made));
        }
        reporter.record.write_timelines();
        if let Some((path, warnings)) = from {
            reporter.resumed(made, &path, warnings);
        }
        reporter.tell_faults();
        reporter
    }

    /// Whether there is an earlier run in the folder, which this one has not replaced yet.
    pub fn replaces(&self) -> bool {
        self.record.replaces()
    }

    /// Replaces an earlier run in the folder.
    pub fn take_place(&mut self, identity: &Identity) -> Result<()> {
        self.record.take_place(identity)
    }

    /// Positions per step, padding included.
    fn tokens(&self) -> u64 {
        self.config.data.batch_size.u64() * self.config.data.seq_len.u64()
    }

    /// Reports a line of text.
    pub fn line(&mut self, text: &str) {
        self.record.log(text);
        self.sink.line(text);
    }

    /// Reports a warning as such to the sink.
    pub fn warning(&mut self, text: &str) {
        let text = printable(text);
        self.record.log(&format!("warning: {text}"));
        self.sink.warning(&text);
    }

    /// Warns of files that tell of the run and cannot be written, each once.
    fn tell_faults(&mut self) {
        while let Some(fault) = self.record.next_fault() {
            self.warning(&format!("{fault}; training goes on without it"));
        }
    }

    /// Repeats them at the end of the run, which nobody may have watched.
    fn repeat_faults(&mut self) {
        self.tell_faults();
        let faults = self.record.faults().join("; ");
        if !faults.is_empty() {
            self.warning(&format!("the record of the run is incomplete: {faults}"));
        }
    }

    /// Whether the sink has lost the program that reads events.
    pub fn has_lost_reader(&self) -> bool {
        self.lost.is_some()
    }

    /// The error of the sink, if it has lost the program that reads events.
    pub fn lost_reader(&mut self) -> Option<Error> {
        self.lost.take()
    }

    /// Sends an event to the folder of the run and to the sink.
    fn publish(&mut self, event: &Event) {
        self.record.event(event);
        if self.lost.is_none() {
            self.lost = self.sink.event(event).err();
        }
    }

    /// Reports a step.
    pub fn step(&mut self, step: Step) {
        let Step {
            step,
            loss,
            grad_norm,
            lr,
            seconds,
            host_seconds,
            cpu_seconds,
            timeline,
            peak_bytes,
            message_bytes,
        } = step;
        // Reports count steps from 1.
        let step = step + 1;
        let (steps, bubble) = (self.config.run.steps.u64(), timeline.bubble());
        self.pace.add(seconds);
        self.bubbles.push(bubble);
        for (most, &bytes) in self.peaks.iter_mut().zip(&peak_bytes) {
            *most = bytes.max(*most);
        }
        self.message_bytes = message_bytes.max(self.message_bytes);
        if step == self.first_step {
            self.first_loss = loss;
        }
        self.last_loss = loss;

        let [unit, _] = self.config.model.unit();
        let worst = peak_bytes.iter().copied().max().unwrap_or(0);
        let line = format!(
            "step {step}/{steps}  loss {}  norm {}  lr {lr:.1e}  {} {unit}/s  bubble {}  mem {}  \
             ETA {}",
            numbers::figure(loss, 3),
            numbers::figure(grad_norm, 2),
            numbers::short(self.tokens() as f64 / self.pace.of_latest()),
            numbers::percent(bubble),
            numbers::bytes(worst),
            numbers::duration(self.seconds_left(step)),
        );
        self.record.log(&line);
        self.sink.step(step, &line);
        let tokens_per_second = self.tokens() as f64 / seconds;
        self.publish(&Event::Step {
            step,
            loss,
            grad_norm,
            lr,
            tokens_per_second,
            step_seconds: seconds,
            host_seconds,
            cpu_seconds,
            bubble,
            peak_bytes,
        });
        self.record.timeline(step, timeline);
        self.tell_faults();
    }

    /// The seconds that the steps after this one should take, and their evaluations by the mean of those so far.
    fn seconds_left(&self, step: u64) -> f64 {
        let run = &self.config.run;
        let (steps, every) = (run.steps.u64(), run.eval_every.u64());
        let (evaluations, seconds) = self.evaluations;
        let left = match evaluations {
            0 => 0.0,
            // After the line of this step, its own.
            _ => (steps / every - (step - 1) / every) as f64 * seconds / evaluations as f64,
        };
        self.pace.of_latest() * (steps - step) as f64 + left
    }

    /// Reports an evaluation and how long it took; `None`: a stop was requested before it ended.
    pub fn evaluation(&mut self, step: u64, found: Option<&Evaluation>, took: Duration) {
        let Some(found) = found else {
            let run = crate::shell::quoted(&self.record.path().to_string_lossy());
            let mend = match self.config.run.keep.get() {
                0 => String::new(),
                _ => format!(": gpipe eval {run} does it"),
            };
            self.line(&format!(
                "step {step}  not evaluated, as a stop was requested{mend}"
            ));
            return;
        };
        self.evaluations.0 += 1;
        self.evaluations.1 += took.as_secs_f64();
        let perplexity = match self.config.model.is_classifier() {
            true => String::new(),
            false => format!("  perplexity {}", numbers::figure(found.loss.exp(), 2)),
        };
        let text = format!(
            "held-out loss {}{perplexity}  accuracy {}",
            numbers::figure(found.loss, 3),
            numbers::per_mille(found.accuracy)
        );
        self.line(&format!("step {step}  {text}"));
        self.held_out = Some(text);
        self.publish(&found.event(Some(step)));
    }

    /// Reports the checkpoint that the run resumes from.
    fn resumed(&mut self, step: u64, from: &Path, warnings: Vec<String>) {
        for warning in &warnings {
            self.warning(warning);
        }
        let path = from.display().to_string();
        self.line(&format!("resumes after step {step}, from {path}"));
        self.publish(&Event::Resume {
            step,
            path,
            warnings,
        });
    }

    /// Reports a complete checkpoint.
    pub fn saved(&mut self, saved: Option<Saved>) {
        let Some(Saved {
            step,
            folder,
            bytes,
            seconds,
            trouble,
            ..
        }) = saved
        else {
            return;
        };
        let path = folder.display().to_string();
        self.record.log(&format!(
            "step {step}  saved {} in {} to {path}",
            numbers::bytes(bytes),
            numbers::step_time(seconds)
        ));
        if let Some(trouble) = trouble {
            self.warning(&format!(
                "step {step} is saved, but older checkpoints were not deleted: {trouble}"
            ));
        }
        self.publish(&Event::Save {
            step,
            path,
            bytes,
            seconds,
        });
        self.tell_faults();
    }

    /// Reports that the run was stopped after a step, which is saved unless `run.keep` is 0.
    pub fn stopped(mut self, step: u64) {
        let mend = match self.config.run.keep.get() {
            0 => "not saved, as run.keep is 0".to_owned(),
            _ => format!(
                "saved; gpipe train --resume {} continues",
                crate::shell::quoted(&self.record.path().to_string_lossy())
            ),
        };
        self.record.write_timelines();
        self.repeat_faults();
        self.line(&format!("stopped after step {step}: {mend}"));
    }

    /// Reports that the run failed after `made` steps, and gives the error together with what is left of
    /// the run. `newest` is its newest checkpoint.
    pub fn failed(mut self, error: Error, made: u64, left: &str, newest: Option<&Path>) -> Error {
        let message = format!("{}; {left}", one_line(&error));
        self.record.write_timelines();
        self.record.log(&format!("error: {message}"));
        self.publish(&Event::Error {
            step: made,
            message: message.clone(),
            checkpoint: newest.map(|path| path.display().to_string()),
        });
        self.repeat_faults();
        Error::run(FailedRun { message, error })
    }
}
