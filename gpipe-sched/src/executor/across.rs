//! Pipelines over several ranks: every rank runs the stages of its devices, and every call ends with one
//! exchange, so that all ranks return the same results or an error.
//!
//! Every rank makes the same calls with the same batches, in the same order; what differs between them, such
//! as a signal, is agreed on first ([`Pipeline::any`]). Replicas of a pipeline run other micro-batches of a step, and
//! are otherwise alike: what is gathered comes from the ranks of the own replica.

use std::error::Error;
use std::sync::Arc;

use crate::executor::failure::PipelineError;
use crate::executor::far::Far;
use crate::executor::loss_stage::LossStage;
use crate::executor::part::Part;
use crate::executor::pipeline::{GRACE, Pipeline};
use crate::executor::reports::{pack, unpack, unpack_losses};
use crate::executor::stage::Stage;
use crate::executor::step::Gathered;
use crate::executor::transport::Parcel;
use crate::executor::wire::{Codec, Reader, Writer};
use crate::executor::world::World;
use crate::schedule::data::Schedule;

impl<S, T> Pipeline<S, T>
where
    S: Stage + 'static,
    T: LossStage<S::Flow> + 'static,
{
    /// [`build`](Self::build) over the ranks of a world: as many ranks, one behind the other, run each of `replicas`
    /// replicas of the pipeline; `rank_of` is the rank of each device of the schedule, counted from the first rank of
    /// the replica. Every rank of a replica calls it with the same arguments; the replicas' schedules may differ in
    /// the number of micro-batches. `make_stage` is called for the stages of the rank's own devices alone. Flows to
    /// stages of other ranks pass through `codec`. Of several pipelines over a world the newest alone can be called, until
    /// it is dropped.
    ///
    /// # Errors
    /// As [`build`](Self::build), on every rank: [`PipelineError::Remote`] where another one failed.
    pub fn join<E, G>(
        schedule: Schedule,
        world: &Arc<World>,
        replicas: usize,
        rank_of: Vec<usize>,
        codec: Arc<dyn Codec<S::Flow>>,
        make_stage: impl Fn(usize) -> Result<S, E> + Send + Sync + 'static,
        make_loss_stage: impl FnOnce() -> Result<T, G> + Send + 'static,
    ) -> Result<Self, PipelineError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
        G: Into<Box<dyn Error + Send + Sync>>,
    {
        let devices = schedule.devices();
        if replicas == 0 || !world.ranks().is_multiple_of(replicas) {
            return Err(PipelineError::Batch(format!(
                "{replicas} replicas on {} ranks: use as many that each has the same number",
                world.ranks()
            )));
        }
        let ranks = world.ranks() / replicas;
        if rank_of.len() != devices || rank_of.iter().any(|&rank| rank >= ranks) {
            return Err(PipelineError::Batch(format!(
                "{} ranks of devices for {devices} devices on {ranks} ranks: give the rank of each",
                rank_of.len(),
            )));
        }
        let first = world.rank() / ranks * ranks;
        let far = Far {
            world: world.clone(),
            replicas,
            rank_of: rank_of.into_iter().map(|rank| first + rank).collect(),
            codec,
        };
        Self::build_over(schedule, Some(far), make_stage, make_loss_stage)
    }

    /// The number of replicas of the pipeline.
    pub fn replicas(&self) -> usize {
        self.mailboxes.far().map_or(1, |far| far.replicas)
    }

    /// The number of this replica, from 0.
    pub fn replica(&self) -> usize {
        let far = self.mailboxes.far();
        far.map_or(0, |far| far.replica_of(far.world.rank()))
    }

    /// The world that the pipeline was built over, if any.
    pub fn world(&self) -> Option<&Arc<World>> {
        Some(&self.mailboxes.far()?.world)
    }

    /// The codec of flows to other ranks, if there are any.
    pub fn codec(&self) -> Option<Arc<dyn Codec<S::Flow>>> {
        Some(self.mailboxes.far()?.codec.clone())
    }

    /// Whether a device is one of this rank; always without other ranks.
    pub fn is_here(&self, device: usize) -> bool {
        self.check_here(device).is_ok()
    }

    pub(crate) fn check_here(&self, device: usize) -> Result<(), PipelineError> {
        match self.mailboxes.far().map(|far| (far, far.rank_of[device])) {
            Some((far, rank)) if rank != far.world.rank() => Err(PipelineError::Elsewhere {
                part: Part::LossStage,
                rank,
            }),
            _ => Ok(()),
        }
    }

    /// Whether a flag is set on any rank: how all ranks come to the same decision.
    ///
    /// # Errors
    /// If a rank fails, or does not answer in time.
    pub fn any(&mut self, flag: bool) -> Result<bool, PipelineError> {
        let Some(world) = self.world() else {
            return Ok(flag);
        };
        let mut out = Writer::default();
        out.bits(u64::from(flag));
        let mut any = false;
        let parcels = self.exchange(world.begin(), Ok(out.finish()), &|_| true)?;
        for (from, parcel) in parcels.into_iter().enumerate() {
            let bits = Reader::new(parcel).bits();
            any |= bits.map_err(unreadable(world, from))? != 0;
        }
        Ok(any)
    }

    /// Closes a call whose results stay on their ranks.
    pub(crate) fn agree<R>(
        &self,
        call: u64,
        own: Result<R, PipelineError>,
    ) -> Result<R, PipelineError> {
        if self.world().is_none() {
            return own;
        }
        let (own, told) = match own {
            Ok(own) => (Some(own), Ok(Parcel::default())),
            Err(error) => (None, Err(error)),
        };
        self.exchange(call, told, &|_| false)?;
        own.ok_or(PipelineError::Gone { device: 0 })
    }

    /// Begins a call: its number. Without other ranks steps and evaluations alone are counted.
    pub(crate) fn begin_call(&self) -> u64 {
        self.world().map_or(self.epoch, |world| world.begin())
    }

    /// Begins a step or an evaluation, which ends what was posted for the one before.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch = match self.world() {
            Some(world) => {
                let call = world.begin();
                world.forget(call);
                call
            }
            None => self.epoch + 1,
        };
    }

    /// Closes a step or an evaluation: the reports of the ranks of this replica, on each of them. Those of a step have
    /// the losses of all replicas, one behind the other.
    pub(crate) fn join_results(
        &self,
        own: Result<Gathered, PipelineError>,
        is_step: bool,
    ) -> Result<Gathered, PipelineError> {
        let Some(far) = self.mailboxes.far() else {
            return own;
        };
        let packed = own.map(|own| pack(&own, far.world.time().1));
        let to = |to: usize| is_step || far.is_near(to);
        let parcels = self.exchange(self.epoch, packed, &to)?;
        let mut all = Gathered::new(self.workers.len(), self.schedule.stages());
        // The times from which the ranks count, and where their spans begin.
        let mut begun = Vec::new();
        for (from, parcel) in parcels.into_iter().enumerate() {
            let parcel = &mut Reader::new(parcel);
            let first = all.spans.len();
            match (far.is_near(from), is_step) {
                (true, _) => unpack(parcel, &mut all).map(|began| begun.push((began, first))),
                (false, true) => unpack_losses(parcel, &mut all).map(drop),
                (false, false) => Ok(()),
            }
            .map_err(unreadable(&far.world, from))?;
        }
        let earliest = begun
            .iter()
            .map(|(began, _)| *began)
            .fold(f64::INFINITY, f64::min);
        let mut last = all.spans.len();
        for (began, first) in begun.into_iter().rev() {
            let later = began - earliest;
            for span in &mut all.spans[first..last] {
                span.ready += later;
                span.start += later;
                span.end += later;
            }
            last = first;
        }
        Ok(all)
    }

    /// Exchanges what the ranks say at the end of a call: the parcels of all ranks.
    pub(crate) fn exchange(
        &self,
        call: u64,
        own: Result<Parcel, PipelineError>,
        to: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Parcel>, PipelineError> {
        let Some(world) = self.world() else {
            return own.map(|own| vec![own]);
        };
        // A rank that is late names what it waits for, if it is given the time.
        let deadline = self.deadline.map(|limit| limit.saturating_add(3 * GRACE));
        let exchanged = world.exchange(call, own, to, deadline);
        exchanged.map_err(|error| match error {
            // What it kept this rank waiting for says where it was.
            PipelineError::Remote {
                rank,
                host,
                mut message,
            } if world.lost() == Some(rank) => {
                for transfer in self.mailboxes.missed(rank) {
                    message += &format!("; rank {} waits for {transfer} from it", world.rank());
                }
                PipelineError::Remote {
                    rank,
                    host,
                    message,
                }
            }
            error => error,
        })
    }

    /// The stages of a rank of this replica.
    pub(crate) fn stages_of(&self, rank: usize) -> impl Iterator<Item = usize> {
        let far = self.mailboxes.far();
        let devices = self.schedule.device_of().iter().enumerate();
        devices.filter_map(move |(stage, &device)| {
            let here = far.is_none_or(|far| far.rank_of[device] == rank);
            here.then_some(stage)
        })
    }
}

/// A value of this rank that cannot be sent.
pub(crate) fn unsendable(world: &World) -> impl Fn(String) -> PipelineError + use<> {
    let (rank, host) = (world.rank(), world.host(world.rank()));
    move |message| PipelineError::Remote {
        rank,
        host: host.clone(),
        message,
    }
}

/// What a rank said of the newest call, which cannot be read.
pub(crate) fn unreadable(world: &World, from: usize) -> impl Fn(String) -> PipelineError + use<> {
    let (call, reader, host) = (world.call(), world.rank(), world.host(from));
    move |message| PipelineError::Remote {
        rank: from,
        host: host.clone(),
        message: format!("rank {reader} cannot read what it said of call {call}: {message}"),
    }
}
