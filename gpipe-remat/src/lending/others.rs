//! Rank 0's way to what other ranks lend.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gpipe_sched::{Label, Parcel, Reader, World, Writer};
use gpipe_tensor::{Device, Tensor};

use super::lender::{ANSWER, COPY, NO_MORE, QUESTION, label};
use crate::wire::unpack;

/// Rank 0's way to the copies of other ranks. Dropped, it tells them that no more are needed.
pub(super) struct Borrowed {
    pub world: Arc<World>,
    /// Of what arrives.
    pub device: Device,
    pub place: usize,
    /// By rank: how often it was asked; held while the request is sent.
    pub asked: Vec<Mutex<usize>>,
}

impl Borrowed {
    /// Asks a rank, and returns the label of what it posts.
    fn ask(&self, rank: usize, request: Writer) -> Result<Label, String> {
        let asked = self.asked.get(rank).ok_or("no such rank")?;
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let label = label(self.place, *asked);
        let posted = self.world.post(rank, label, request.finish());
        posted.map_err(|error| error.to_string())?;
        *asked += 1;
        Ok(label)
    }

    fn take(&self, rank: usize, label: Label) -> Result<Reader, String> {
        let parcel = self.world.take_posted(rank, label);
        Ok(Reader::new(parcel.map_err(|error| error.to_string())?))
    }

    pub fn fetch(&self, rank: usize, number: usize) -> Result<Tensor, String> {
        let mut request = Writer::default();
        request.bits(COPY);
        request.number(number);
        let label = self.ask(rank, request)?;
        unpack(&mut self.take(rank, label)?, &self.device)
    }

    fn answer(&self, rank: usize, label: Label) -> Result<Parcel, String> {
        let mut said = self.take(rank, label)?;
        match said.bits()? {
            ANSWER => Ok(said.rest()),
            _ => Err(format!(
                "rank {rank} ({}): {}",
                self.world.host(rank),
                said.text()?
            )),
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        for rank in 1..self.asked.len() {
            let mut request = Writer::default();
            request.bits(NO_MORE);
            // The rank exists.
            let _ = self.ask(rank, request);
        }
    }
}

/// Rank 0's way to the other ranks, which lend as long as it is held.
#[derive(Clone)]
pub struct Others(pub(super) Arc<Borrowed>);

impl Others {
    /// Asks several ranks at a time, does something `meanwhile`, and waits for what [each answers](super::Lender::start), or for
    /// the error that names it.
    pub fn ask<R>(
        &self,
        questions: Vec<(usize, Parcel)>,
        meanwhile: impl FnOnce() -> R,
    ) -> (R, Vec<Result<Parcel, String>>) {
        let asked = questions.into_iter().map(|(rank, question)| {
            let mut request = Writer::default();
            request.bits(QUESTION);
            request.append(question);
            (rank, self.0.ask(rank, request))
        });
        let asked: Vec<_> = asked.collect();
        let done = meanwhile();
        let answers = asked.into_iter();
        let answers = answers.map(|(rank, label)| self.0.answer(rank, label?));
        (done, answers.collect())
    }
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}
