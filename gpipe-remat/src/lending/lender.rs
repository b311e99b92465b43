//! What a rank gives to rank 0: copies of its tensors, and answers.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use gpipe_sched::{Label, Parcel, PipelineError, Reader, World, Writer};
use gpipe_tensor::Tensor;

use crate::Result;
use crate::wire::pack;

/// What a rank answers rank 0, which [asks](super::Others::ask) what this crate knows nothing of.
pub type Answer = Box<dyn FnMut(Parcel) -> std::result::Result<Parcel, String> + Send>;

/// Gives the copies of a rank to rank 0, until that needs no more of them. Dropped, it waits for the end.
#[derive(Default)]
pub struct Lender(State);

#[derive(Default)]
enum State {
    /// There is nothing to give.
    #[default]
    Idle,
    Ready(Gift),
    Giving(JoinHandle<()>),
}

/// The copies of a rank, by their numbers.
pub(super) struct Gift {
    pub world: Arc<World>,
    pub place: usize,
    pub own: Vec<Tensor>,
}

impl Lender {
    pub(super) fn of(gift: Gift) -> Self {
        Self(State::Ready(gift))
    }

    /// Gives in a thread of its own, which also answers what rank 0 asks. Without it [`wait`](Self::wait) gives, and answers
    /// nothing.
    ///
    /// # Errors
    /// If there is no thread: that ends the run on all ranks, since rank 0 waits for this one.
    pub fn start(&mut self, answer: Answer) -> Result<()> {
        self.0 = match std::mem::take(&mut self.0) {
            State::Ready(gift) => {
                let world = gift.world.clone();
                let give = move || gift.give(answer);
                let thread = thread::Builder::new().name("gpipe-lend".into()).spawn(give);
                State::Giving(thread.map_err(|source| {
                    let error = PipelineError::Thread { device: 0, source };
                    world.give_up(&error.to_string(), 1);
                    error
                })?)
            }
            other => other,
        };
        Ok(())
    }

    /// Waits until rank 0 needs no more copies, or cannot get them because a rank failed.
    pub fn wait(&mut self) {
        match std::mem::take(&mut self.0) {
            State::Idle => {}
            State::Ready(gift) => gift.give(Box::new(|_| Err("it answers nothing".to_owned()))),
            // It gives what it has; there is nothing of it that a panic could leave half done.
            State::Giving(thread) => drop(thread.join()),
        }
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").finish_non_exhaustive()
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.wait();
    }
}

impl Gift {
    /// Gives copies and answers until rank 0 asks for no more or a rank fails.
    fn give(self, answer: Answer) {
        let given = panic::catch_unwind(AssertUnwindSafe(|| self.serve(answer)));
        let given = given.unwrap_or_else(|_| Err("panicked".to_owned()));
        if let Err(fault) = given {
            // Rank 0 would wait for the copies that it asks for.
            let message = format!("the thread that gives copies of parameters away: {fault}");
            self.world.fail(&message, 1);
        }
    }

    fn serve(&self, mut answer: Answer) -> std::result::Result<(), String> {
        for part in 0.. {
            let Ok(asked) = self.world.take_posted(0, label(self.place, part)) else {
                break;
            };
            let mut asked = Reader::new(asked);
            let mut out = Writer::default();
            match asked.bits()? {
                COPY => {
                    let tensor = self.own.get(asked.number()?);
                    pack(tensor.ok_or("no copy has this number")?, &mut out)?;
                }
                QUESTION => match answer(asked.rest()) {
                    Ok(said) => {
                        out.bits(ANSWER);
                        out.append(said);
                    }
                    Err(fault) => {
                        out.bits(FAULT);
                        out.text(&fault);
                    }
                },
                _ => break,
            }
            let posted = self.world.post(0, label(self.place, part), out.finish());
            posted.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// What rank 0 asks for: a copy by its number, an answer, or no more.
pub(super) const COPY: u64 = 0;
pub(super) const QUESTION: u64 = 1;
pub(super) const NO_MORE: u64 = 2;

/// How an answer begins.
pub(super) const ANSWER: u64 = 0;
pub(super) const FAULT: u64 = 1;

/// Of a message about what was lent at this place.
pub(super) fn label(place: usize, part: usize) -> Label {
    let call = Label::OF_NO_CALL;
    Label { call, place, part }
}
