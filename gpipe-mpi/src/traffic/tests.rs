//! The order of what the communication thread does.

use std::sync::mpsc;

use super::*;
use crate::error::Error;
use crate::session::Request;

/// Calls of a rank whose one peer answers the first message: from then on all that was sent has left.
#[derive(Default)]
struct Answering {
    sent: bool,
    answered: bool,
}

const SEND: Request = Request(1);
const RECEIVE: Request = Request(2);
const BARRIER: Request = Request(3);

impl Calls for Answering {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        2
    }

    // SAFETY: nothing is kept of the bytes.
    unsafe fn send(&mut self, _: &[u8], _: usize, _: i32) -> Result<Request, Error> {
        self.sent = true;
        Ok(SEND)
    }

    // SAFETY: as above. A slot of zeros is an empty message.
    unsafe fn receive(&mut self, _: &mut [u8], _: usize, _: i32) -> Result<Request, Error> {
        Ok(RECEIVE)
    }

    fn test(&mut self, request: &mut Request) -> Result<bool, Error> {
        match request.0 {
            request if request == SEND.0 => Ok(self.answered),
            request if request == RECEIVE.0 => {
                let now = self.sent && !self.answered;
                self.answered |= now;
                Ok(now)
            }
            _ => Ok(true),
        }
    }

    fn barrier(&mut self) -> Result<Request, Error> {
        Ok(BARRIER)
    }

    fn cancel(&mut self, _: &mut Request) -> Result<(), Error> {
        Ok(())
    }

    fn hosts(&mut self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    fn finalize(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&mut self, _: i32) {}
}

/// What reads an answer may send at once: that would count beside the message that was answered.
#[test]
fn a_message_has_left_before_its_answer_is_delivered() {
    let (shared, gauge) = (Arc::new(Shared::default()), Arc::new(Gauge::default()));
    let parcel = Parcel {
        head: Vec::new(),
        bodies: vec![vec![0; 8]],
    };
    gauge.add(parcel.bytes());
    lock(&shared.queue).push_back((1, parcel));
    assert!(shared.gauge.set(gauge.clone()).is_ok());
    let (told, held) = mpsc::channel();
    let of_delivery = shared.clone();
    let deliver = move |from, _| {
        gauge.take_most();
        told.send((from, gauge.take_most())).unwrap();
        of_delivery.is_over.store(true, Ordering::Release);
    };
    let mut traffic = Traffic::default();
    let silence = Duration::from_secs(60);
    let ended = traffic.run(&mut Answering::default(), &shared, &deliver, silence);
    assert_eq!(ended, Ok(()));
    assert_eq!(held.recv(), Ok((1, 0)));
}
