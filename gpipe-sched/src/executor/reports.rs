//! The reports of a rank's workers as a message.

use crate::executor::step::Gathered;
use crate::executor::transport::Parcel;
use crate::executor::wire::{Reader, Writer};
use crate::schedule::action::{Action, Op};
use crate::simulate::level::Held;
use crate::simulate::timeline::Span;

/// The reports, with what is to be added to their time for that of rank 0.
pub(crate) fn pack(own: &Gathered, to_root: f64) -> Parcel {
    let mut out = Writer::default();
    out.float(own.began + to_root);
    out.number(own.losses.len());
    own.losses.iter().for_each(|&loss| out.float(loss));
    out.number(own.spans.len());
    for span in &own.spans {
        let Action {
            stage,
            op,
            micro_batch,
        } = span.action;
        out.number(span.device);
        out.number(stage);
        out.number(op as usize);
        out.number(micro_batch);
        [span.ready, span.start, span.end]
            .into_iter()
            .for_each(|time| out.float(time));
    }
    out.number(own.host_seconds.len());
    own.host_seconds
        .iter()
        .for_each(|&seconds| out.float(seconds));
    for held in &own.held {
        out.number(held.len());
        for held in held {
            out.bits(held.now);
            out.bits(held.most);
        }
    }
    out.finish()
}

/// Reads the losses; the time from which the rank counts.
pub(crate) fn unpack_losses(from: &mut Reader, all: &mut Gathered) -> Result<f64, String> {
    let began = from.float()?;
    for _ in 0..from.number()? {
        all.losses.push(from.float()?);
    }
    Ok(began)
}

/// Reads the reports; the time from which the rank counts.
pub(crate) fn unpack(from: &mut Reader, all: &mut Gathered) -> Result<f64, String> {
    let began = unpack_losses(from, all)?;
    for _ in 0..from.number()? {
        let device = from.number()?;
        let stage = from.number()?;
        let number = from.number()?;
        let op = Op::ALL.into_iter().find(|&op| op as usize == number);
        let action = Action::new(stage, op.ok_or("no such action")?, from.number()?);
        all.spans.push(Span {
            device,
            action,
            ready: from.float()?,
            start: from.float()?,
            end: from.float()?,
        });
    }
    for place in 0..from.number()? {
        // Zero for the devices of other ranks.
        let seconds = from.float()?;
        if let Some(sum) = all.host_seconds.get_mut(place) {
            *sum += seconds;
        }
    }
    for stage in &mut all.held {
        for _ in 0..from.number()? {
            stage.push(Held {
                now: from.bits()?,
                most: from.bits()?,
            });
        }
    }
    Ok(began)
}
