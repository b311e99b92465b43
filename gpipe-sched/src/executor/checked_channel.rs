//! Channels for the model checker, in the form of those of the standard library. A wait for a message has a limit,
//! which shuttle's own ignore.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use shuttle::sync::{Condvar, Mutex, MutexGuard};

use crate::executor::clock::{Clock, Limit, Received};

struct Channel<T> {
    state: Mutex<State<T>>,
    changed: Arc<Condvar>,
}

struct State<T> {
    messages: VecDeque<T>,
    senders: usize,
    has_receiver: bool,
}

impl<T> Channel<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        state: Mutex::new(State {
            messages: VecDeque::new(),
            senders: 1,
            has_receiver: true,
        }),
        changed: Arc::new(Condvar::new()),
    });
    (Sender(channel.clone()), Receiver(channel))
}

/// The end that sends.
pub(crate) struct Sender<T>(Arc<Channel<T>>);

impl<T> Sender<T> {
    /// Sends a message; returns it if nobody will receive it.
    pub fn send(&self, message: T) -> Result<(), T> {
        let mut state = self.0.lock();
        if !state.has_receiver {
            drop(state);
            return Err(message);
        }
        state.messages.push_back(message);
        drop(state);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.lock().senders -= 1;
        self.0.changed.notify_all();
    }
}

/// The end that receives.
pub(crate) struct Receiver<T>(Arc<Channel<T>>);

impl<T> Receiver<T> {
    /// The next message, or the news that none will come.
    pub fn recv(&self) -> Result<T, ()> {
        match self.receive(Clock::start(), None) {
            Received::Answer(message) => Ok(message),
            Received::Nobody | Received::Late => Err(()),
        }
    }

    /// The next message, unless the limit passes before.
    pub fn receive(&self, clock: Clock, until: Option<Duration>) -> Received<T> {
        let limit = Limit::new(&self.0.changed, clock, until);
        let mut state = self.0.lock();
        let mut late = false;
        loop {
            if let Some(message) = state.messages.pop_front() {
                return Received::Answer(message);
            }
            if state.senders == 0 {
                return Received::Nobody;
            }
            if late {
                return Received::Late;
            }
            (state, late) = limit.wait(&self.0.changed, state);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_receiver = false;
        // Destructors of messages run after the lock is released.
        let left = std::mem::take(&mut state.messages);
        drop(state);
        drop(left);
    }
}
