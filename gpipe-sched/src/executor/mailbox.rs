//! A mailbox: the flows of a step for the stages of one device.

use std::sync::PoisonError;

use crate::executor::stage::{Reservation, Reserve};
use crate::executor::sync::{Condvar, Mutex, MutexGuard};
use crate::schedule::transfer::Transfer;

pub(crate) struct Mailbox<F> {
    /// Stages of the device.
    stages: usize,
    state: Mutex<State<F>>,
    /// Wakes the worker of the device.
    pub arrived: Condvar,
}

pub(crate) struct State<F> {
    pub epoch: u64,
    pub micro_batches: usize,
    pub flows: Vec<Option<Arrived<F>>>,
    /// The flow for which the worker sleeps.
    pub wanted: Option<usize>,
    /// Makes its reservation before it wakes up.
    pub reserve: Option<Reserve>,
    /// The flow for which it slept when the run ended.
    pub missed: Option<Transfer>,
    pub stopped: bool,
    /// A worker has ended.
    pub closed: bool,
}

/// A flow in a mailbox.
pub(crate) struct Arrived<F> {
    pub flow: F,
    /// The time of its arrival.
    pub time: f64,
    /// What was reserved for the worker that it wakes.
    pub reservation: Option<Reservation>,
}

impl<F> Mailbox<F> {
    /// A mailbox for this number of stages, of no step yet.
    pub fn new(stages: usize) -> Self {
        Self {
            stages,
            state: Mutex::new(State {
                epoch: 0,
                micro_batches: 0,
                flows: Vec::new(),
                wanted: None,
                reserve: None,
                missed: None,
                stopped: false,
                closed: false,
            }),
            arrived: Condvar::new(),
        }
    }

    /// Drops the flows of older steps and makes room for those of a new one, which may be stopped already.
    pub fn open(&self, epoch: u64, micro_batches: usize, stopped: bool) {
        let mut flows = Vec::new();
        flows.resize_with(Transfer::table(self.stages, micro_batches), || None);
        let old = {
            let mut state = self.lock();
            state.epoch = epoch;
            state.micro_batches = micro_batches;
            state.stopped = stopped;
            std::mem::replace(&mut state.flows, flows)
        };
        // Destructors of flows run after the lock is released.
        drop(old);
    }

    /// Changes the state and wakes the worker.
    pub fn wake(&self, change: impl FnOnce(&mut State<F>)) {
        change(&mut self.lock());
        self.arrived.notify_all();
    }

    pub fn lock(&self) -> MutexGuard<'_, State<F>> {
        // No code that panics runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
