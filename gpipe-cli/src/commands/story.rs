//! What a training run tells: a line a step, and the whole at the end.

use std::path::Path;
use std::time::Instant;

use super::begin::Begun;
use super::train::{Evaluation, Step};
use crate::args::Talk;
use crate::checkpoint::Saved;
use crate::config::Config;
use crate::data::Samples;
use crate::fail::Result;
use crate::machine;
use crate::output::{Console, Event, Pace, RunFolder, median, numbers, print, table};
use crate::report::Tracer;
use crate::setup::Forecast;

/// What was predicted of a run, and what has become of it so far.
pub struct Story<'a> {
    config: &'a Config,
    talk: Talk,
    forecast: Forecast,
    folder: RunFolder,
    console: Console,
    started: Instant,
    pace: Pace,
    bubbles: Vec<f64>,
    peaks: Vec<u64>,
    first_step: u64,
    first_loss: f64,
    last_loss: f64,
    held_out: Option<String>,
    tracer: Tracer,
}

impl<'a> Story<'a> {
    /// Tells what is about to be done.
    pub fn begin(
        config: &'a Config,
        samples: &Samples,
        forecast: Forecast,
        tracer: Tracer,
        begun: Begun,
        talk: Talk,
    ) -> Result<Self> {
        let Begun {
            folder,
            made,
            mut from,
            ..
        } = begun;
        let steps = config.run.steps.u64();
        let mut story = Self {
            config,
            talk,
            folder,
            console: Console::new(talk, steps)?,
            started: Instant::now(),
            pace: Pace::default(),
            bubbles: Vec::new(),
            peaks: vec![0; forecast.peaks.len()],
            first_step: made + 1,
            first_loss: 0.0,
            last_loss: 0.0,
            held_out: None,
            tracer,
            forecast,
        };
        let pipeline = &config.pipeline;
        story.say(&format!(
            "{}: {} parameters; {}: {}, {} a step in {}",
            config.model.name,
            numbers::short(story.forecast.parameters as f64),
            config.data.source,
            samples.described(),
            config.data.batch_size.get(),
            numbers::counted(pipeline.micro_batches.u64(), "micro-batch"),
        ))?;
        let cut: Vec<String> = story.forecast.cut.iter().map(usize::to_string).collect();
        story.say(&format!(
            "{} of {} layers on {}; schedule {}, remat {}; {} bytes a parameter",
            numbers::counted(cut.len() as u64, "stage"),
            cut.join(","),
            numbers::counted(pipeline.threads.u64(), "thread"),
            pipeline.schedule,
            pipeline.remat,
            story.forecast.parameter_bytes.iter().sum::<u64>(),
        ))?;
        let start = Event::Start {
            cut: story.forecast.cut.clone(),
            parameters: story.forecast.parameters,
            steps,
            tokens: story.tokens(),
        };
        story.folder.event(&start)?;
        if let Some((_, warnings)) = &mut from {
            warnings.extend(story.tracer.go_on(&story.folder, made)?);
        }
        story.tracer.write(&story.folder)?;
        if let Some((path, warnings)) = from {
            story.resumed(made, &path, warnings)?;
        }
        Ok(story)
    }

    /// Tells what people should know although it stops nothing.
    pub fn warn(&mut self, text: &str) -> Result<()> {
        self.say(&format!("warning: {text}"))
    }

    /// Tokens of a step.
    fn tokens(&self) -> u64 {
        self.config.data.batch_size.u64() * self.config.data.seq_len.u64()
    }

    fn say(&mut self, text: &str) -> Result<()> {
        self.folder.log(text)?;
        self.console.say(text)
    }

    /// An event in the run's folder and, with `--json`, on stdout.
    fn publish(&mut self, event: &Event) -> Result<()> {
        self.folder.event(event)?;
        if self.talk.json {
            print(&event.to_json()?)
        } else {
            Ok(())
        }
    }

    /// Tells a step.
    pub fn step(&mut self, step: Step) -> Result<()> {
        let Step {
            step,
            loss,
            grad_norm,
            lr,
            seconds,
            asking,
            cpu_seconds,
            timeline,
            peak_bytes,
        } = step;
        let (steps, bubble) = (self.config.run.steps.u64(), timeline.bubble());
        self.pace.add(seconds);
        self.bubbles.push(bubble);
        for (most, &bytes) in self.peaks.iter_mut().zip(&peak_bytes) {
            *most = bytes.max(*most);
        }
        if step == self.first_step {
            self.first_loss = loss;
        }
        self.last_loss = loss;

        let [unit, _] = self.config.model.unit();
        let worst = peak_bytes.iter().copied().max().unwrap_or(0);
        let line = format!(
            "step {step}/{steps}  loss {loss:.3}  norm {grad_norm:.2}  lr {lr:.1e}  {} {unit}/s  bubble {}  mem {}  \
             ETA {}",
            numbers::short(self.tokens() as f64 / self.pace.seconds()),
            numbers::percent(bubble),
            numbers::bytes(worst),
            numbers::duration(self.pace.seconds() * (steps - step) as f64),
        );
        self.folder.log(&line)?;
        self.console.step(step, &line)?;
        let tokens_per_second = self.tokens() as f64 / seconds;
        self.publish(&Event::Step {
            step,
            loss,
            grad_norm,
            lr,
            tokens_per_second,
            step_seconds: seconds,
            asking_seconds: asking,
            cpu_seconds,
            bubble,
            peak_bytes,
        })?;
        self.tracer.step(step, timeline);
        Ok(())
    }

    /// Tells an evaluation.
    pub fn evaluation(&mut self, step: u64, found: &Evaluation) -> Result<()> {
        let told = format!(
            "held-out loss {:.3}  perplexity {:.2}  accuracy {}",
            found.loss,
            found.loss.exp(),
            numbers::per_mille(found.accuracy)
        );
        self.say(&format!("step {step}  {told}"))?;
        self.held_out = Some(told);
        self.publish(&Event::eval(
            Some(step),
            found.loss,
            found.accuracy,
            found.targets,
        ))
    }

    /// Tells what the run goes on from.
    fn resumed(&mut self, step: u64, from: &Path, warnings: Vec<String>) -> Result<()> {
        for warning in &warnings {
            self.folder.log(&format!("warning: {warning}"))?;
            self.console.warn(warning)?;
        }
        let path = from.display().to_string();
        self.say(&format!("goes on after step {step}, from {path}"))?;
        self.publish(&Event::Resume {
            step,
            path,
            warnings,
        })
    }

    /// Tells of a checkpoint that stands.
    pub fn saved(&mut self, saved: Option<Saved>) -> Result<()> {
        let Some(saved) = saved else { return Ok(()) };
        let Saved {
            step,
            folder,
            bytes,
            seconds,
            trouble,
        } = saved;
        let path = folder.display().to_string();
        self.folder.log(&format!(
            "step {step}  saved {} in {} to {path}",
            numbers::bytes(bytes),
            numbers::step_time(seconds)
        ))?;
        if let Some(trouble) = trouble {
            let warning =
                format!("step {step} is saved, but older checkpoints are left: {trouble}");
            self.folder.log(&format!("warning: {warning}"))?;
            self.console.warn(&warning)?;
        }
        self.publish(&Event::Save {
            step,
            path,
            bytes,
            seconds,
        })
    }

    /// Tells that a signal ended the run after a step, which was saved unless nothing is.
    pub fn stopped(mut self, step: u64) -> Result<()> {
        let mend = match self.config.run.keep.get() {
            0 => "not saved, as run.keep is 0".to_owned(),
            _ => format!(
                "saved; gpipe train --resume {} goes on",
                self.folder.path().display()
            ),
        };
        self.say(&format!("stopped after step {step}: {mend}"))
    }

    /// Tells the whole.
    pub fn end(mut self) -> Result<()> {
        self.tracer.write(&self.folder)?;
        let (pace, steps) = (self.pace.seconds(), self.config.run.steps.u64());
        let bubble = median(&mut self.bubbles);
        let seconds = self.started.elapsed().as_secs_f64();
        let tokens_per_second = self.tokens() as f64 / pace;
        self.folder.event(&Event::End {
            step: steps,
            loss: self.last_loss,
            tokens_per_second,
            bubble,
            ideal_bubble: self.forecast.ideal_bubble,
            peak_bytes: self.peaks.clone(),
            predicted_peak_bytes: self.forecast.peaks.clone(),
            in_flight: self.forecast.in_flight.clone(),
            peak_resident_bytes: machine::peak_resident(),
            seconds,
        })?;
        let [_, units] = self.config.model.unit();
        let held_out = self
            .held_out
            .as_ref()
            .map_or(String::new(), |told| format!("\n{told}"));
        let summary = format!(
            "\n{} in {}: loss {:.3} -> {:.3}{held_out}\n{}\
             bubble  {} measured; {}\n\
             speed   {} {units}/s, {} a step (medians)\n\
             run     {}",
            numbers::counted(steps + 1 - self.first_step, "step"),
            numbers::duration(seconds),
            self.first_loss,
            self.last_loss,
            self.stages(),
            numbers::percent(bubble),
            self.forecast.bubbles(),
            numbers::short(tokens_per_second),
            numbers::step_time(pace),
            self.folder.path().display(),
        );
        self.folder.log(&summary)?;
        drop(self.console);
        match (self.talk.quiet, self.talk.json) {
            (true, _) => Ok(()),
            (false, true) => Console::new(self.talk, 1)?.say(&summary),
            (false, false) => print(&summary),
        }
    }

    /// A row a stage.
    fn stages(&self) -> String {
        let forecast = &self.forecast;
        let row = |stage: usize| {
            vec![
                stage.to_string(),
                forecast.cut[stage].to_string(),
                forecast.in_flight[stage].to_string(),
                numbers::bytes(self.peaks[stage]),
                numbers::bytes(forecast.peaks[stage]),
            ]
        };
        let rows: Vec<_> = (0..forecast.cut.len()).map(row).collect();
        table(
            &["stage", "layers", "in flight", "peak bytes", "predicted"],
            &[],
            &rows,
        )
    }
}
