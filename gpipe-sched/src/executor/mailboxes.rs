//! Flows in transit between stages. Those for a stage of another rank are sent there, and arrive in its
//! mailboxes; what arrives for a step that this rank has not begun is parked.
//!
//! `send` never blocks; only `recv` waits. Flows are received by name, so a lane may take them in
//! another order than they were sent, and none can be mistaken for another.

use std::sync::PoisonError;

use crate::executor::clock::Clock;
use crate::executor::far::Far;
use crate::executor::mailbox::{Arrived, Mailbox, State};
use crate::executor::stage::Reserve;
use crate::executor::sync::{Mutex, MutexGuard, thread};
use crate::executor::tag::Tag;
use crate::executor::wire::{Reader, Route};
use crate::executor::world::{Arrivals, World};
use crate::schedule::transfer::{Direction, Transfer};

/// Yields of a worker before it sleeps: for a flow that is microseconds away, polling is cheaper
/// than a wake-up, and yielding leaves the processor to other threads.
const YIELDS: usize = if cfg!(shuttle) { 1 } else { 16 };

/// Why a flow was not delivered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another worker ended the step.
    Stopped,
    /// The step has no such flow.
    Unknown,
    /// The flow was sent before.
    Twice,
    /// The flow cannot be sent to another rank.
    Unsent(String),
}

/// The mailboxes of all devices.
pub(crate) struct Mailboxes<F> {
    mailboxes: Vec<Mailbox<F>>,
    device_of: Vec<usize>,
    /// The index of each stage among those of its device.
    slot_of: Vec<usize>,
    far: Option<Far<F>>,
    parked: Mutex<Parked<F>>,
}

/// What arrives from other ranks ahead of a step.
struct Parked<F> {
    /// The step that is open.
    epoch: u64,
    clock: Clock,
    flows: Vec<(Tag, F)>,
    /// The newest step that another rank has ended.
    stopped: u64,
}

impl<F> Mailboxes<F> {
    pub fn new(devices: usize, device_of: &[usize], far: Option<Far<F>>) -> Self {
        let mut owned = vec![0; devices];
        let mut settle = |&device: &usize| {
            owned[device] += 1;
            owned[device] - 1
        };
        let slot_of = device_of.iter().map(&mut settle).collect();
        Self {
            mailboxes: owned.into_iter().map(Mailbox::new).collect(),
            device_of: device_of.to_vec(),
            slot_of,
            far,
            parked: Mutex::new(Parked {
                epoch: 0,
                clock: Clock::start(),
                flows: Vec::new(),
                stopped: 0,
            }),
        }
    }

    /// The other ranks, if there are any.
    pub fn far(&self) -> Option<&Far<F>> {
        self.far.as_ref()
    }

    /// Drops the flows of older steps and makes room for those of a new one. Every mailbox is
    /// opened before any worker starts.
    pub fn open(&self, epoch: u64, micro_batches: usize, clock: Clock) {
        // Nothing arrives meanwhile.
        let mut parked = self.parked();
        (parked.epoch, parked.clock) = (epoch, clock);
        for mailbox in &self.mailboxes {
            mailbox.open(epoch, micro_batches, parked.stopped == epoch);
        }
        let arrived = parked.flows.extract_if(.., |(tag, _)| tag.epoch <= epoch);
        for (tag, flow) in arrived.filter(|(tag, _)| tag.epoch == epoch) {
            // The receiver reports a refusal: it misses the flow.
            let _ = self.put(tag, flow, 0.0);
        }
    }

    /// Puts a flow into the mailbox of its receiver at the time `now`, or sends it to the receiver's rank.
    /// Never blocks.
    pub fn send(&self, tag: Tag, flow: F, now: f64) -> Result<(), Refusal> {
        let device = self.device_of.get(tag.transfer.stage);
        let (Some(far), Some(&device)) = (&self.far, device) else {
            return self.put(tag, flow, now);
        };
        let rank = far.rank_of[device];
        if rank == far.world.rank() {
            return self.put(tag, flow, now);
        }
        let mut out = World::flow_head(tag);
        let packed = far
            .codec
            .pack_flow(flow, self.route(tag.transfer), &mut out);
        packed.map_err(Refusal::Unsent)?;
        far.world.send_flow(rank, out);
        Ok(())
    }

    fn put(&self, tag: Tag, flow: F, now: f64) -> Result<(), Refusal> {
        let mailbox = self.mailbox(tag)?;
        // Before the flow is there: its worker may look for it at any time. Not under the lock.
        let reserve = {
            let mut state = mailbox.lock();
            let index = self.index(tag, &state)?;
            let is_wanted = state.wanted == Some(index);
            state.reserve.take_if(|_| is_wanted)
        };
        let mut reservation = reserve.map(|reserve| reserve());
        let mut state = mailbox.lock();
        let index = self.index(tag, &state)?;
        let wakes = state.wanted == Some(index);
        let place = state.flows.get_mut(index).ok_or(Refusal::Unknown)?;
        if place.is_some() {
            return Err(Refusal::Twice);
        }
        *place = Some(Arrived {
            flow,
            time: now,
            // A worker that was told to stop meanwhile would not take it.
            reservation: reservation.take_if(|_| wakes),
        });
        drop(state);
        if wakes {
            mailbox.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes a flow; waits until it arrives or the step is stopped. `reserve` is called before the worker sleeps.
    pub fn recv(
        &self,
        tag: Tag,
        reserve: impl FnOnce() -> Option<Reserve>,
    ) -> Result<Arrived<F>, Refusal> {
        let mailbox = self.mailbox(tag)?;
        let mut yields = 0;
        let mut reserve = Some(reserve);
        let mut state = mailbox.lock();
        loop {
            if state.stopped || state.closed {
                // A flow may have arrived too, with a reservation that must not outlive the step.
                let index = self.index(tag, &state).ok();
                let place = index.and_then(|index| state.flows.get_mut(index));
                let arrived = place.and_then(Option::take);
                drop(state);
                drop(arrived);
                return Err(Refusal::Stopped);
            }
            let index = self.index(tag, &state)?;
            if let Some(arrived) = state.flows.get_mut(index).ok_or(Refusal::Unknown)?.take() {
                return Ok(arrived);
            }
            if yields < YIELDS {
                yields += 1;
                drop(state);
                thread::yield_now();
                state = mailbox.lock();
                continue;
            }
            if let Some(reserve) = reserve.take() {
                drop(state);
                let reserve = reserve();
                state = mailbox.lock();
                state.reserve = reserve;
                continue;
            }
            state.wanted = Some(index);
            state.missed = Some(tag.transfer);
            self.waiting(true);
            state = mailbox
                .arrived
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            self.waiting(false);
            state.wanted = None;
            if !state.closed {
                state.missed = None;
            }
        }
    }

    /// Whether a flow has arrived and was not taken.
    pub fn holds(&self, tag: Tag) -> bool {
        let Ok(mailbox) = self.mailbox(tag) else {
            return false;
        };
        let state = mailbox.lock();
        let index = self.index(tag, &state).ok();
        let place = index.and_then(|index| state.flows.get(index));
        place.is_some_and(Option::is_some)
    }

    /// The flows from a rank for which workers slept when the run ended.
    pub fn missed(&self, rank: usize) -> Vec<Transfer> {
        let missed = self
            .mailboxes
            .iter()
            .filter_map(|mailbox| mailbox.lock().missed);
        let is_from = |transfer: &Transfer| {
            let stage = match transfer.direction {
                Direction::Forward => transfer.stage.checked_sub(1),
                Direction::Backward => Some(transfer.stage + 1),
            };
            let device = stage.and_then(|stage| self.device_of.get(stage));
            let far = self.far.as_ref().zip(device);
            far.is_some_and(|(far, &device)| far.rank_of[device] == rank)
        };
        missed.filter(is_from).collect()
    }

    /// The workers of a flow between two stages; the stage that receives it is one of them.
    fn route(&self, transfer: Transfer) -> Route {
        let stages = self.device_of.len();
        let to = self.device_of[transfer.stage];
        let from = transfer
            .sender(stages)
            .map_or(to, |stage| self.device_of[stage]);
        Route { from, to }
    }

    /// Tells a transport that a worker sleeps.
    fn waiting(&self, waits: bool) {
        if let Some(far) = &self.far {
            far.world.waiting(waits);
        }
    }

    /// Ends a step on all ranks: wakes all waiting workers. Has no effect on a later step.
    pub fn stop(&self, epoch: u64) {
        if let Some(far) = &self.far {
            far.world.stop(epoch);
        }
        self.stop_here(epoch);
    }

    fn stop_here(&self, epoch: u64) {
        self.wake(|state| state.stopped |= state.epoch == epoch);
    }

    /// Wakes all waiting workers and refuses further waits: a worker has ended.
    pub fn close(&self) {
        self.wake(|state| state.closed = true);
    }

    fn wake(&self, change: impl Fn(&mut State<F>)) {
        for mailbox in &self.mailboxes {
            mailbox.wake(&change);
        }
    }

    fn parked(&self) -> MutexGuard<'_, Parked<F>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mailbox(&self, tag: Tag) -> Result<&Mailbox<F>, Refusal> {
        let device = *self
            .device_of
            .get(tag.transfer.stage)
            .ok_or(Refusal::Unknown)?;
        self.mailboxes.get(device).ok_or(Refusal::Unknown)
    }

    fn index(&self, tag: Tag, state: &State<F>) -> Result<usize, Refusal> {
        if tag.epoch != state.epoch || tag.transfer.micro_batch >= state.micro_batches {
            return Err(Refusal::Unknown);
        }
        let local = Transfer {
            stage: self.slot_of[tag.transfer.stage],
            ..tag.transfer
        };
        Ok(local.index(state.micro_batches))
    }
}

impl<F: Send> Arrivals for Mailboxes<F> {
    fn flow(&self, tag: Tag, flow: &mut Reader) -> Result<(), String> {
        let Some(far) = &self.far else {
            return Ok(());
        };
        if tag.transfer.stage >= self.device_of.len() {
            return Err(format!("it sent {} for no stage", tag.transfer));
        }
        let flow = far.codec.unpack_flow(self.route(tag.transfer), flow)?;
        let mut parked = self.parked();
        if tag.epoch > parked.epoch {
            parked.flows.push((tag, flow));
        } else if tag.epoch == parked.epoch {
            // One of an older step was left by a failure.
            let put = self.put(tag, flow, parked.clock.seconds());
            put.map_err(|_| format!("it sent {} twice, or for no step", tag.transfer))?;
        }
        Ok(())
    }

    fn stop(&self, call: u64) {
        let mut parked = self.parked();
        parked.stopped = parked.stopped.max(call);
        self.stop_here(call);
    }

    fn close(&self) {
        self.wake(|state| state.closed = true);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
