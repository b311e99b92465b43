//! Transports: how the processes of one run, its ranks, pass bytes to each other. No tensor and no library
//! is named here.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::executor::gauge::Gauge;
use crate::executor::sync::Mutex;

/// A message between two ranks: a few bytes, and larger ones that are not copied together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel {
    /// What describes the bodies.
    pub head: Vec<u8>,
    /// The content, such as the bytes of tensors.
    pub bodies: Vec<Vec<u8>>,
}

impl Parcel {
    /// Bytes of the bodies.
    pub fn bytes(&self) -> u64 {
        self.bodies.iter().map(|body| body.len() as u64).sum()
    }
}

/// Takes what arrives: the sending rank, and its message or why it was not received.
pub type Deliver = dyn Fn(usize, Result<Parcel, String>) + Send + Sync;

/// Passes parcels between the ranks of a run. The messages from one rank to another arrive in the order
/// in which they were sent.
pub trait Transport: Send + Sync + 'static {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn ranks(&self) -> usize;

    /// The name of a rank's host.
    fn host(&self, rank: usize) -> String;

    /// Counts on a gauge from here on what it holds of messages: those that are being sent, and those that arrive, until
    /// they are delivered. Called once, before [`start`](Self::start).
    fn count(&self, gauge: Arc<Gauge>) {
        let _ = gauge;
    }

    /// Calls `deliver` with everything that arrives from here on and that arrived before, one message at a
    /// time. Called once.
    fn start(&self, deliver: Arc<Deliver>);

    /// Sends a parcel to another rank. Never waits.
    fn send(&self, to: usize, parcel: Parcel);

    /// Says whether a thread of this process waits for a message from now on, so that a transport that polls
    /// knows how often to. Called under locks that a delivery takes: it returns at once and delivers nothing.
    fn waiting(&self, waits: bool) {
        let _ = waits;
    }

    /// Sends what is left, waits for all other ranks to do so, and ends.
    ///
    /// # Errors
    /// If they do not, in one line.
    fn close(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A transport between threads of one process, for tests: a message is delivered by the thread that sends
/// it.
pub struct InMemory {
    rank: usize,
    ranks: Arc<Vec<Mutex<Inbox>>>,
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory")
            .field("rank", &self.rank)
            .field("ranks", &self.ranks.len())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Inbox {
    deliver: Option<Arc<Deliver>>,
    early: VecDeque<(usize, Parcel)>,
}

impl InMemory {
    /// One end for each of `ranks` ranks.
    pub fn new(ranks: usize) -> Vec<Self> {
        let inboxes = (0..ranks).map(|_| Mutex::new(Inbox::default())).collect();
        let inboxes = Arc::new(inboxes);
        let end = |rank| Self {
            rank,
            ranks: Arc::clone(&inboxes),
        };
        (0..ranks).map(end).collect()
    }
}

impl Transport for InMemory {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks.len()
    }

    fn host(&self, _rank: usize) -> String {
        "here".to_owned()
    }

    fn start(&self, deliver: Arc<Deliver>) {
        let mut inbox = self.ranks[self.rank]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (from, parcel) in std::mem::take(&mut inbox.early) {
            deliver(from, Ok(parcel));
        }
        inbox.deliver = Some(deliver);
    }

    fn send(&self, to: usize, parcel: Parcel) {
        // The lock keeps the order.
        let mut inbox = self.ranks[to]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match inbox.deliver.clone() {
            Some(deliver) => deliver(self.rank, Ok(parcel)),
            None => inbox.early.push_back((self.rank, parcel)),
        }
    }
}
