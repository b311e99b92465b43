//! The summary of a finished run.

use gpipe_report::{Event, numbers};

use super::ProgressReporter;
use crate::machine;
use crate::progress_sink::ProgressSink;
use crate::text_table::table;

impl<S: ProgressSink> ProgressReporter<'_, S> {
    /// Reports the summary of a finished run.
    pub fn end(mut self) {
        self.record.write_timelines();
        let (pace, steps) = (self.pace.of_all(), self.config.run.steps.u64());
        let bubble = numbers::median(&mut numbers::after_warm_up(&self.bubbles).to_vec());
        let seconds = self.started.elapsed().as_secs_f64();
        let tokens_per_second = self.tokens() as f64 / pace;
        self.record.event(&Event::End {
            step: steps,
            loss: self.last_loss,
            tokens_per_second,
            bubble,
            ideal_bubble: self.forecast.ideal_bubble,
            peak_bytes: self.peaks.clone(),
            predicted_peak_bytes: self.forecast.peaks.clone(),
            message_bytes: self.message_bytes,
            predicted_message_bytes: self.message_bytes.and(self.forecast.message_bytes),
            in_flight: self.forecast.in_flight.clone(),
            peak_resident_bytes: machine::peak_resident(),
            seconds,
        });
        self.repeat_faults();
        let [_, units] = self.config.model.unit();
        let held_out = self
            .held_out
            .as_ref()
            .map_or(String::new(), |text| format!("\n{text}"));
        let evaluations = match self.evaluations {
            (0, _) => String::new(),
            (_, seconds) => format!(", {} of it evaluations", numbers::duration(seconds)),
        };
        let messages = match (self.message_bytes, self.forecast.message_bytes) {
            (Some(most), Some(predicted)) => format!(
                "messages {} on a rank; predicted at most {}\n",
                numbers::bytes(most),
                numbers::bytes(predicted)
            ),
            _ => String::new(),
        };
        let summary = format!(
            "\n{} in {}{evaluations}: loss {} -> {}{held_out}\n{}{messages}\
             bubble  {} measured; {}\n\
             speed   {} {units}/s, {} a step (medians)\n\
             run     {}",
            numbers::counted(steps + 1 - self.first_step, "step"),
            numbers::duration(seconds),
            numbers::figure(self.first_loss, 3),
            numbers::figure(self.last_loss, 3),
            self.stages(),
            numbers::percent(bubble),
            self.forecast.bubbles(),
            numbers::short(tokens_per_second),
            numbers::step_time(pace),
            self.record.path().display(),
        );
        self.record.log(&summary);
        self.sink.summary(&summary);
    }

    /// The table of the stages.
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
