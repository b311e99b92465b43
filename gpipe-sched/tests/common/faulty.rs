//! A transport that does something to one message of one rank.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
#[cfg(not(shuttle))]
use std::{sync::Mutex, thread};

use gpipe_sched::{Deliver, InMemory, Parcel, Transport};
#[cfg(shuttle)]
use shuttle::{sync::Mutex, thread};

/// What is done to a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Dropped,
    Doubled,
    /// Sent after the next one to the same rank.
    Reordered,
    /// A bit of the head, or of a body.
    Corrupted,
    /// Sent late, but in order.
    Late,
}

/// The transport of a rank.
pub struct Faulty {
    inner: Arc<InMemory>,
    fault: Option<Fault>,
    state: Arc<Mutex<State>>,
    /// Set when the transport is started.
    pub deliver: Arc<OnceLock<Arc<Deliver>>>,
}

#[derive(Default)]
struct State {
    /// Messages sent so far.
    sent: usize,
    /// The number of the one with the fault.
    chosen: usize,
    /// A message that is sent after the next one to its rank.
    kept: Option<(usize, Parcel)>,
    /// Messages that wait behind a late one, which another thread sends.
    behind: Option<VecDeque<(usize, Parcel)>>,
}

impl Faulty {
    /// With a fault in the message of this number, counted from 0.
    pub fn new(inner: InMemory, fault: Option<Fault>, chosen: usize) -> Self {
        let state = State {
            chosen,
            ..State::default()
        };
        Self {
            inner: Arc::new(inner),
            fault,
            state: Arc::new(Mutex::new(state)),
            deliver: Arc::default(),
        }
    }

    /// Reads how many messages were sent, whenever it is called.
    #[cfg(shuttle)]
    pub fn counter(&self) -> impl Fn() -> usize + Send + use<> {
        let state = Arc::clone(&self.state);
        move || state.lock().unwrap().sent
    }

    /// Sends what waits, in order.
    fn send_late(&self) {
        let (inner, state) = (Arc::clone(&self.inner), Arc::clone(&self.state));
        thread::spawn(move || {
            #[cfg(not(shuttle))]
            thread::sleep(std::time::Duration::from_millis(20));
            loop {
                let mut waiting = state.lock().unwrap();
                let Some((to, parcel)) = waiting.behind.as_mut().and_then(VecDeque::pop_front)
                else {
                    waiting.behind = None;
                    return;
                };
                drop(waiting);
                inner.send(to, parcel);
            }
        });
    }
}

impl Transport for Faulty {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn host(&self, rank: usize) -> String {
        self.inner.host(rank)
    }

    fn start(&self, deliver: Arc<Deliver>) {
        assert!(self.deliver.set(deliver.clone()).is_ok(), "started twice");
        self.inner.start(deliver);
    }

    fn send(&self, to: usize, mut parcel: Parcel) {
        let mut state = self.state.lock().unwrap();
        let fault = self.fault.filter(|_| state.sent == state.chosen);
        state.sent += 1;
        if let Some(behind) = &mut state.behind {
            return behind.push_back((to, parcel));
        }
        let mut after = state.kept.take_if(|(kept_for, _)| *kept_for == to);
        match fault {
            Some(Fault::Dropped) => return,
            Some(Fault::Doubled) => after = Some((to, parcel.clone())),
            Some(Fault::Reordered) => return state.kept = Some((to, parcel)),
            Some(Fault::Corrupted) => match parcel.bodies.first_mut().filter(|b| b.len() > 3) {
                Some(body) => body[3] ^= 16,
                None => parcel.head[8] ^= 16,
            },
            Some(Fault::Late) => {
                state.behind = Some(VecDeque::from([(to, parcel)]));
                drop(state);
                return self.send_late();
            }
            None => {}
        }
        drop(state);
        self.inner.send(to, parcel);
        if let Some((to, parcel)) = after {
            self.inner.send(to, parcel);
        }
    }
}
