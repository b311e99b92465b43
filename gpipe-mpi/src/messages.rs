//! Messages under way.
//!
//! A message is a slot of fixed size under one tag, for which a receive is always posted, and then, under
//! another tag, its head, if that does not fit into the slot, and its bodies in pieces. MPI keeps the order of
//! messages of one tag between two ranks, so nothing has to be probed. A sign of life is a slot alone.

use std::collections::VecDeque;
use std::time::Instant;

use gpipe_sched::{Gauge, Parcel};

use crate::error::{Error, text};
use crate::session::{Calls, Request, keep};

const SLOT_TAG: i32 = 1;
const DATA_TAG: i32 = 2;
/// Bytes of a slot: a flow's head fits in it.
const SLOT: usize = 512;
/// A slot begins with the length of the head and the number of bodies; the head with their lengths.
const NUMBERS: usize = 16;
/// The largest piece: counts of MPI are C ints.
const PIECE: usize = 1 << 30;
/// In the place of the number of bodies: a sign of life.
const ALIVE: u64 = u64::MAX;
/// The most bytes of one message: more is a fault of the sender.
const MOST: u64 = 1 << 40;

/// A message that is being sent: its bytes, kept where they are until the calls are over.
pub(crate) struct Leaving {
    _parts: Vec<Vec<u8>>,
    /// Of the bodies.
    pub bytes: u64,
    requests: Vec<Request>,
}

/// What arrives from one rank.
pub(crate) struct Arriving {
    pub from: usize,
    slot: Box<[u8; SLOT]>,
    /// The receive of the slot, unless a message's head or bodies come first.
    next_slot: Option<Request>,
    /// A head that does not fit into a slot, and the number of bodies.
    head: Option<(Vec<u8>, usize, Vec<Request>)>,
    /// Messages with all receives posted, in order.
    messages: VecDeque<(Parcel, Vec<Request>)>,
    /// When something last arrived.
    pub heard: Instant,
}

/// Whether all calls are over.
fn all_over(mpi: &mut dyn Calls, requests: &mut Vec<Request>) -> Result<bool, Error> {
    while let Some(last) = requests.last_mut() {
        if !mpi.test(last)? {
            return Ok(false);
        }
        requests.pop();
    }
    Ok(true)
}

impl Leaving {
    /// Starts to send a message.
    pub fn send(mpi: &mut dyn Calls, to: usize, parcel: Parcel) -> Result<Self, Error> {
        let bytes = parcel.bytes();
        let Parcel { head, bodies } = parcel;
        let mut whole: Vec<u8> = Vec::with_capacity(8 * bodies.len() + head.len());
        for body in &bodies {
            whole.extend((body.len() as u64).to_le_bytes());
        }
        whole.extend(head);
        let mut slot = vec![0; SLOT];
        slot[..8].copy_from_slice(&(whole.len() as u64).to_le_bytes());
        slot[8..NUMBERS].copy_from_slice(&(bodies.len() as u64).to_le_bytes());
        let mut parts = vec![slot];
        match parts[0].get_mut(NUMBERS..NUMBERS + whole.len()) {
            Some(inside) => inside.copy_from_slice(&whole),
            None => parts.push(whole),
        }
        parts.extend(bodies);
        let pieces = parts.iter().enumerate().flat_map(|(place, part)| {
            let tag = match place {
                0 => SLOT_TAG,
                _ => DATA_TAG,
            };
            part.chunks(PIECE).map(move |piece| (piece, tag))
        });
        // SAFETY: the parts move into the message, which is kept until all calls are over, or are leaked; moving a
        // vector leaves its bytes in place.
        let requests = pieces.map(|(piece, tag)| unsafe { mpi.send(piece, to, tag) });
        let requests = requests.collect();
        let (parts, requests) = keep(parts, requests)?;
        Ok(Self {
            _parts: parts,
            bytes,
            requests,
        })
    }

    /// Starts to send a sign of life.
    pub fn alive(mpi: &mut dyn Calls, to: usize) -> Result<Self, Error> {
        let mut slot = vec![0; SLOT];
        slot[8..NUMBERS].copy_from_slice(&ALIVE.to_le_bytes());
        // SAFETY: the slot moves into the message, which is kept until the call is over; moving a vector leaves its
        // bytes in place.
        let request = unsafe { mpi.send(&slot, to, SLOT_TAG)? };
        Ok(Self {
            _parts: vec![slot],
            bytes: 0,
            requests: vec![request],
        })
    }

    /// Whether the message was sent.
    pub fn is_over(&mut self, mpi: &mut dyn Calls) -> Result<bool, Error> {
        all_over(mpi, &mut self.requests)
    }
}

impl Arriving {
    /// Posts the first receive.
    pub fn begin(mpi: &mut dyn Calls, from: usize) -> Result<Self, Error> {
        let mut this = Self {
            from,
            slot: Box::new([0; SLOT]),
            next_slot: None,
            head: None,
            messages: VecDeque::new(),
            heard: Instant::now(),
        };
        this.post_slot(mpi)?;
        Ok(this)
    }

    /// Takes back the posted receive.
    pub fn end(&mut self, mpi: &mut dyn Calls) -> Result<(), Error> {
        match &mut self.next_slot {
            Some(request) => mpi.cancel(request),
            None => Ok(()),
        }
    }

    fn post_slot(&mut self, mpi: &mut dyn Calls) -> Result<(), Error> {
        // SAFETY: the slot is boxed, and is not touched until the receive is over.
        self.next_slot = Some(unsafe { mpi.receive(&mut self.slot[..], self.from, SLOT_TAG)? });
        Ok(())
    }

    /// Adds the messages that have arrived to `arrived`, with their rank; whether anything had.
    pub fn advance(
        &mut self,
        mpi: &mut dyn Calls,
        arrived: &mut Vec<(usize, Parcel)>,
        gauge: &Gauge,
    ) -> Result<bool, String> {
        let mut any = false;
        if let Some(mut request) = self.next_slot.take() {
            match mpi.test(&mut request).map_err(text)? {
                true => {
                    any = true;
                    self.take_slot(mpi, gauge)?;
                }
                false => self.next_slot = Some(request),
            }
        }
        if let Some((_, _, requests)) = &mut self.head
            && all_over(mpi, requests).map_err(text)?
            && let Some((head, bodies, _)) = self.head.take()
        {
            any = true;
            self.post_bodies(mpi, head, bodies, gauge)?;
        }
        // In the order in which they were sent.
        while let Some((_, requests)) = self.messages.front_mut()
            && all_over(mpi, requests).map_err(text)?
            && let Some((parcel, _)) = self.messages.pop_front()
        {
            any = true;
            gauge.remove(parcel.bytes());
            arrived.push((self.from, parcel));
        }
        if any {
            self.heard = Instant::now();
        }
        Ok(any)
    }

    fn take_slot(&mut self, mpi: &mut dyn Calls, gauge: &Gauge) -> Result<(), String> {
        if self.slot[8..NUMBERS] == ALIVE.to_le_bytes() {
            return self.post_slot(mpi).map_err(text);
        }
        let (length, bodies) = (number(&self.slot[..8])?, number(&self.slot[8..NUMBERS])?);
        if let Some(head) = self.slot.get(NUMBERS..NUMBERS + length) {
            let head = head.to_vec();
            return self.post_bodies(mpi, head, bodies, gauge);
        }
        let mut head = zeros(length)?;
        let requests = post(mpi, [&mut head], self.from);
        let (head, requests) = keep(head, requests).map_err(text)?;
        // The next slot is received when the bodies are: they have the same tag as the next head.
        self.head = Some((head, bodies, requests));
        Ok(())
    }

    fn post_bodies(
        &mut self,
        mpi: &mut dyn Calls,
        mut head: Vec<u8>,
        bodies: usize,
        gauge: &Gauge,
    ) -> Result<(), String> {
        let lengths = bodies.checked_mul(8).and_then(|end| head.get(..end));
        let lengths = lengths.ok_or_else(|| {
            let (from, length) = (self.from, head.len());
            format!("a message of rank {from} is too short: {bodies} bodies, {length} bytes")
        })?;
        let lengths = lengths.chunks(8).map(number);
        let lengths = lengths.collect::<Result<Vec<usize>, _>>()?;
        head.drain(..8 * bodies);
        let mut parcel = Parcel {
            head,
            bodies: lengths.into_iter().map(zeros).collect::<Result<_, _>>()?,
        };
        gauge.add(parcel.bytes());
        let requests = post(mpi, &mut parcel.bodies, self.from);
        let message = keep(parcel, requests).map_err(text)?;
        self.messages.push_back(message);
        self.post_slot(mpi).map_err(text)
    }
}

/// Posts receives for all bytes of buffers, which the caller keeps until they are over.
fn post<'a>(
    mpi: &mut dyn Calls,
    buffers: impl IntoIterator<Item = &'a mut Vec<u8>>,
    from: usize,
) -> Result<Vec<Request>, Error> {
    let buffers = buffers.into_iter();
    let pieces = buffers.flat_map(|bytes| bytes.chunks_mut(PIECE));
    // SAFETY: the buffers are vectors that lie in `Arriving` until their calls are over, or are leaked.
    let post = |piece: &mut [u8]| unsafe { mpi.receive(piece, from, DATA_TAG) };
    pieces.map(post).collect()
}

/// Room for as many bytes of a message.
fn zeros(bytes: usize) -> Result<Vec<u8>, String> {
    // `vec!` has pages of zeros from the system without writing them, and ends the process where there is no room: hence
    // a try, which the compiler must not leave out.
    let mut room: Vec<u8> = Vec::new();
    let tried = room.try_reserve_exact(bytes);
    std::hint::black_box(&room);
    drop(room);
    tried.map_err(|_| format!("no memory for a message of {bytes} bytes"))?;
    Ok(vec![0; bytes])
}

fn number(bytes: &[u8]) -> Result<usize, String> {
    let number = bytes
        .iter()
        .rev()
        .fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    match number {
        0..MOST => Ok(number as usize),
        _ => Err(format!("a message of {number} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that are begun and never over, until one fails.
    #[derive(Default)]
    struct Failing {
        /// Those that are left.
        left: usize,
        /// Where the buffers begin.
        begun: Vec<usize>,
    }

    impl Failing {
        fn begin(&mut self, bytes: &[u8]) -> Result<Request, Error> {
            self.left = self.left.checked_sub(1).ok_or(Error::Call {
                call: "MPI_Isend",
                message: String::new(),
            })?;
            self.begun.push(bytes.as_ptr() as usize);
            Ok(Request(0))
        }
    }

    impl Calls for Failing {
        fn rank(&self) -> usize {
            0
        }

        fn ranks(&self) -> usize {
            2
        }

        // SAFETY: nothing is kept of the bytes.
        unsafe fn send(&mut self, bytes: &[u8], _: usize, _: i32) -> Result<Request, Error> {
            self.begin(bytes)
        }

        // SAFETY: as above.
        unsafe fn receive(&mut self, bytes: &mut [u8], _: usize, _: i32) -> Result<Request, Error> {
            self.begin(bytes)
        }

        fn test(&mut self, _: &mut Request) -> Result<bool, Error> {
            Ok(false)
        }

        fn barrier(&mut self) -> Result<Request, Error> {
            Ok(Request(0))
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

    /// Bytes that the allocator takes from the system by themselves, and gives back when they are freed.
    const LARGE: usize = 1 << 26;

    /// Whether memory is there.
    #[cfg(target_os = "linux")]
    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let hexadecimal = |number| usize::from_str_radix(number, 16).unwrap();
        maps.lines().any(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            (hexadecimal(start)..hexadecimal(end)).contains(&address)
        })
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_buffer_is_freed_in_which_a_call_may_be_under_way() {
        // The slot and the first body leave, the second body does not.
        let mut mpi = Failing {
            left: 2,
            ..Failing::default()
        };
        let parcel = Parcel {
            head: Vec::new(),
            bodies: vec![vec![1; LARGE]; 2],
        };
        assert!(Leaving::send(&mut mpi, 1, parcel).is_err());
        assert!(is_mapped(mpi.begun[1] + LARGE / 2), "a body that leaves");

        // The slot is posted, and the first body.
        let mut mpi = Failing {
            left: 2,
            ..Failing::default()
        };
        let mut arriving = Arriving::begin(&mut mpi, 1).unwrap();
        let head = [(LARGE as u64).to_le_bytes(); 2].concat();
        let posted = arriving.post_bodies(&mut mpi, head, 2, &Gauge::default());
        assert!(posted.is_err());
        assert!(is_mapped(mpi.begun[1] + LARGE / 2), "a body that arrives");
    }

    #[test]
    fn a_message_without_room_is_an_error() {
        assert_eq!(zeros(3), Ok(vec![0; 3]));
        let error = zeros(isize::MAX as usize).unwrap_err();
        assert!(error.contains("no memory for a message of"), "{error}");
    }
}
