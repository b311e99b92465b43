//! Timelines as Chrome trace events, which Perfetto and chrome://tracing open.
//!
//! The format is the Chromium project's "Trace Event Format": an object with a list of events,
//! whose times are microseconds. It contains no text from outside, so no escaping is needed.

use std::io::{self, BufWriter, Write};

use crate::schedule::action::Op;
use crate::schedule::portal::Portal;
use crate::schedule::transfer::{Direction, Transfer};
use crate::simulate::timeline::{Span, Timeline};

impl Timeline {
    /// Writes the timeline as JSON trace events: a row per device, a slice per span, an arrow for
    /// every flow from one stage to another and for every portal, and a counter for the memory of each device.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write_trace(&self, out: impl Write) -> io::Result<()> {
        let mut events = Events {
            out: BufWriter::new(out),
            count: 0,
        };
        let process = format_args!(r#""name":"process_name","args":{{"name":"gpipe"}}"#);
        events.write('M', 0, 0.0, process)?;
        for device in 0..self.devices() {
            let name = format_args!(r#""name":"thread_name","args":{{"name":"device {device}"}}"#);
            events.write('M', device, 0.0, name)?;
            let order =
                format_args!(r#""name":"thread_sort_index","args":{{"sort_index":{device}}}"#);
            events.write('M', device, 0.0, order)?;
        }
        let most = |of: fn(&Span) -> usize| {
            let most = self.spans().iter().map(of).max();
            most.map_or(0, |most| most.saturating_add(1))
        };
        let stages = most(|span| span.action.stage);
        let micro_batches = most(|span| span.action.micro_batch);
        for span in self.spans() {
            events.span(span)?;
            let crosses = |transfer: &Transfer| {
                transfer
                    .sender(stages)
                    .is_some_and(|sender| sender != transfer.stage)
            };
            if let Some(transfer) = span.action.sends(stages).filter(crosses) {
                events.arrow('s', span, 0.999, transfer, micro_batches)?;
            }
            if let Some(transfer) = span.action.receives().filter(crosses) {
                events.arrow('f', span, 0.001, transfer, micro_batches)?;
            }
            for (index, portal) in self.portals().iter().enumerate() {
                // Behind the numbers of the flows.
                let table = (2 * stages as u128).saturating_mul(micro_batches as u128);
                let first = table.saturating_mul(1 + index as u128);
                events.portal(span, *portal, first, micro_batches)?;
            }
        }
        for level in self.levels() {
            let (device, bytes) = (level.device, level.bytes);
            let rest =
                format_args!(r#""name":"memory of device {device}","args":{{"bytes":{bytes}}}"#);
            events.write('C', device, level.time, rest)?;
        }
        events.finish()
    }
}

struct Events<W> {
    out: W,
    count: usize,
}

impl<W: Write> Events<W> {
    /// Writes an event of a phase: `M` is a name, `X` a slice, `C` a counter's value, `s` and `f`
    /// are the ends of an arrow.
    fn write(
        &mut self,
        phase: char,
        device: usize,
        time: f64,
        rest: std::fmt::Arguments,
    ) -> io::Result<()> {
        let open = if self.count == 0 {
            "{\"traceEvents\":[\n"
        } else {
            ",\n"
        };
        self.count += 1;
        let time = microseconds(time);
        write!(
            self.out,
            r#"{open}{{"ph":"{phase}","pid":0,"tid":{device},"ts":{time},{rest}}}"#
        )
    }

    fn span(&mut self, span: &Span) -> io::Result<()> {
        let (action, letter) = (span.action, span.action.op.letter());
        let rest = format_args!(
            r#""name":"{letter}{m}","cat":"{op}","dur":{duration},"args":{{"stage":{stage},"micro_batch":{m}}}"#,
            m = action.micro_batch,
            op = action.op,
            duration = microseconds(span.end - span.start),
            stage = action.stage,
        );
        self.write('X', span.device, span.start, rest)
    }

    /// Writes one end of an arrow, at a `share` of its span: it is bound to the slice that encloses
    /// it, so it must lie strictly inside.
    fn arrow(
        &mut self,
        phase: char,
        span: &Span,
        share: f64,
        transfer: Transfer,
        micro_batches: usize,
    ) -> io::Result<()> {
        let name = match transfer.direction {
            Direction::Forward => "activations",
            Direction::Backward => "gradients",
        };
        self.end(phase, span, share, name, id(transfer, micro_batches))
    }

    /// Writes the end of a portal's arrow that is in this span, if one is.
    fn portal(
        &mut self,
        span: &Span,
        portal: Portal,
        first_id: u128,
        micro_batches: usize,
    ) -> io::Result<()> {
        let m = span.action.micro_batch;
        let (direction, name) = match span.action.op {
            Op::Forward => (Direction::Forward, "portal: activations"),
            Op::Backward | Op::InputGrad => (Direction::Backward, "portal: gradients"),
            Op::WeightGrad | Op::Recompute => return Ok(()),
        };
        let arrives = portal.arrives(direction, m);
        let id = first_id.saturating_add(id(arrives, micro_batches));
        if span.action.stage == portal.sender(direction) {
            self.end('s', span, 0.998, name, id)
        } else if span.action.stage == arrives.stage {
            self.end('f', span, 0.002, name, id)
        } else {
            Ok(())
        }
    }

    fn end(
        &mut self,
        phase: char,
        span: &Span,
        share: f64,
        name: &str,
        id: u128,
    ) -> io::Result<()> {
        let time = span.start + share * (span.end - span.start);
        let rest = format_args!(r#""name":"{name}","cat":"flow","id":{id},"bp":"e""#);
        self.write(phase, span.device, time, rest)
    }

    fn finish(mut self) -> io::Result<()> {
        writeln!(self.out, "\n],\"displayTimeUnit\":\"ms\"}}")?;
        self.out.flush()
    }
}

/// The number of a flow's arrow. Those of spans from elsewhere may be too large for a `usize`.
fn id(transfer: Transfer, micro_batches: usize) -> u128 {
    let row = 2 * transfer.stage as u128 + transfer.direction as u128;
    let first = row.saturating_mul(micro_batches as u128);
    first.saturating_add(transfer.micro_batch as u128)
}

/// JSON cannot represent numbers that are not finite; they become 0.
fn microseconds(seconds: f64) -> f64 {
    let microseconds = seconds * 1e6;
    if microseconds.is_finite() {
        microseconds
    } else {
        0.0
    }
}
