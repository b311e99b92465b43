//! The timelines of a run that are kept, and the files that they go to.

use std::collections::VecDeque;
use std::fmt;

use gpipe_sched::Timeline;

use super::record::Record;
use crate::error::Result;
use crate::folder::run_folder::RunFolder;

/// Keeps the timelines of chosen steps of a run, and writes `timeline.json` and `trace.json`.
pub struct Tracer {
    record: Record,
    most: usize,
    is_chosen: Box<dyn Fn(u64) -> bool + Send + Sync>,
    kept: VecDeque<(u64, Timeline)>,
    /// Steps of the record that an earlier process of the run has kept.
    earlier: usize,
}

impl Tracer {
    /// Keeps the last `most` of the steps that `is_chosen`, given their numbers from 1: the last three
    /// of a run are `(3, |_| true)`, its first and its tenth `(2, |step| step == 1 || step == 10)`. Those of an earlier
    /// process ([`resume`](Self::resume)) stay beside them.
    pub fn new(
        record: Record,
        most: usize,
        is_chosen: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            record,
            most,
            is_chosen: Box::new(is_chosen),
            kept: VecDeque::new(),
            earlier: 0,
        }
    }

    /// Goes on with the steps that were kept before the run was resumed after step `made`. Steps of
    /// another plan go to files of their own, and the sentence that is returned names them.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if a file cannot be renamed.
    pub fn resume(&mut self, folder: &RunFolder, made: u64) -> Result<Option<String>> {
        let Some(earlier) = folder.earlier_timeline() else {
            return Ok(None);
        };
        let same = match Record::parse(&earlier) {
            // Nothing of it is kept: later steps were lost with the process that made them.
            Ok(earlier) if earlier.measured.iter().all(|kept| kept.step > made) => true,
            Ok(earlier) => self.record.resume(earlier, made),
            Err(_) => false,
        };
        if same {
            self.earlier = self.record.measured.len();
            return Ok(None);
        }
        let name = folder.set_timelines_aside(made)?;
        Ok(Some(format!(
            "the timelines of the steps before were made by another plan: they are in {name}"
        )))
    }

    /// Keeps the timeline of a step, if it is one of the chosen.
    ///
    /// # Errors
    /// [`Error::Record`](crate::Error::Record) if the timeline has other actions than the schedule of the record, and is not
    /// kept.
    pub fn step(&mut self, step: u64, timeline: Timeline) -> Result<()> {
        if !self.record.keeps() || !(self.is_chosen)(step) {
            return Ok(());
        }
        self.record.check_actions(&timeline)?;
        self.kept.push_back((step, timeline));
        if self.kept.len() > self.most {
            self.kept.pop_front();
        }
        Ok(())
    }

    /// Writes `timeline.json` with the steps so far, and `trace.json` if steps were kept since the
    /// last time.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if a file cannot be written.
    pub fn write(&mut self, folder: &RunFolder) -> Result<()> {
        let news = !self.kept.is_empty();
        for (step, timeline) in self.kept.drain(..) {
            self.record.add(step, &timeline)?;
        }
        // Those that were written before are the oldest.
        let own = self.record.measured.len().saturating_sub(self.earlier);
        let oldest = self.earlier..self.earlier + own.saturating_sub(self.most);
        self.record.measured.drain(oldest);
        if news {
            let measured = self.record.measured.iter();
            let timelines = measured.map(|measured| self.record.timeline(measured));
            let timelines = timelines.collect::<Result<Vec<_>>>()?;
            let trace = Timeline::in_a_row(&timelines);
            folder.write_trace(|file| trace.write_trace(file))?;
        }
        let mut json = serde_json::to_vec(&self.record)?;
        json.push(b'\n');
        folder.write_timeline(&json)
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<u64> = self.kept.iter().map(|(step, _)| *step).collect();
        f.debug_struct("Tracer")
            .field("most", &self.most)
            .field("kept", &steps)
            .finish_non_exhaustive()
    }
}
