//! The ranks of a run: frames that are numbered and checked, flows for stages elsewhere, and rounds in which
//! every rank tells all others the result of a call.

mod arrivals;
mod busy;
mod early;
mod flow;
mod label;
mod posts;
mod rounds;

pub(crate) use arrivals::Arrivals;
pub use busy::Busy;
use flow::Flow;
pub use label::Label;

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, PoisonError};

use crate::executor::failure::PipelineError;
use crate::executor::frame::{seal, unseal};
use crate::executor::gauge::Gauge;
use crate::executor::offsets::Offsets;
use crate::executor::sync::{Condvar, Mutex, MutexGuard};
use crate::executor::tag::Tag;
use crate::executor::transport::{Parcel, Transport};
use crate::executor::wire::{Reader, Writer};
use crate::schedule::transfer::{Direction, Transfer};

/// This process among the ranks of a run, from their start to their end. A pipeline is built over it with
/// [`Pipeline::join`](crate::Pipeline::join); calls on it are made by all ranks, in the same order.
///
/// Every message has a number and a checksum: one that is lost, doubled, out of order or damaged ends the
/// run on all ranks with an error that says so.
pub struct World {
    transport: Arc<dyn Transport>,
    /// The number of the next message to each rank; held while it is sent, so that numbers ascend.
    next: Vec<Mutex<u64>>,
    /// How many things this rank does that others do not cut off.
    own_work: Mutex<usize>,
    state: Mutex<State>,
    changed: Arc<Condvar>,
    /// Bytes of messages that are being sent, arrive, or are not read.
    gauge: Arc<Gauge>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("rank", &self.rank())
            .field("ranks", &self.ranks())
            .finish_non_exhaustive()
    }
}

impl Drop for World {
    /// A rank that panics is heard of: the others would wait for it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("a panic", 101);
        }
    }
}

struct State {
    /// Messages received from each rank.
    received: Vec<u64>,
    /// Calls begun on this rank.
    calls: u64,
    offsets: Offsets,
    /// What each rank said of calls that are not over.
    rounds: BTreeMap<u64, Vec<Option<Said>>>,
    /// What ranks posted and nobody took, by the rank and the label.
    posted: BTreeMap<(usize, Label), Parcel>,
    /// The newest call that a rank stopped, and the rank.
    stopped: Option<(u64, usize)>,
    /// The rank that ended the run, and why.
    failed: Option<(usize, String)>,
    /// The first rank from which nothing arrives any more.
    lost: Option<usize>,
    /// Whether each other rank is busy and still heard.
    busy: Vec<bool>,
    /// The code with which the first rank that failed ends.
    exit_code: Option<u8>,
    /// Of the pipelines that are built over the world, the newest last: it gets what arrives.
    arrivals: Vec<Arc<dyn Arrivals>>,
    /// Flows of calls that this rank has not begun.
    early: Vec<Flow>,
}

/// A rank's result of a call, or the kind of its error and its text.
type Said = Result<Parcel, (u64, String)>;

const FLOW: u64 = 0;
const STOP: u64 = 1;
const RESULT: u64 = 2;
const FAULT: u64 = 3;
const FAILED: u64 = 4;
const POSTED: u64 = 5;
const BUSY: u64 = 6;

impl World {
    /// The world of a transport, which is started.
    pub fn new(transport: impl Transport) -> Arc<Self> {
        let ranks = transport.ranks();
        let world = Arc::new(Self {
            transport: Arc::new(transport),
            next: (0..ranks).map(|_| Mutex::new(0)).collect(),
            own_work: Mutex::new(0),
            state: Mutex::new(State {
                received: vec![0; ranks],
                calls: 0,
                offsets: Offsets::new(ranks),
                rounds: BTreeMap::new(),
                posted: BTreeMap::new(),
                stopped: None,
                failed: None,
                lost: None,
                busy: vec![false; ranks],
                exit_code: None,
                arrivals: Vec::new(),
                early: Vec::new(),
            }),
            changed: Arc::new(Condvar::new()),
            gauge: Arc::default(),
        });
        world.transport.count(world.gauge.clone());
        let weak = Arc::downgrade(&world);
        world.transport.start(Arc::new(move |from, parcel| {
            if let Some(world) = weak.upgrade() {
                world.deliver(from, parcel);
            }
        }));
        world
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The number of processes.
    pub fn ranks(&self) -> usize {
        self.transport.ranks()
    }

    /// The name of a rank's host.
    pub fn host(&self, rank: usize) -> String {
        self.transport.host(rank)
    }

    /// Seconds since the start of this rank, and what is to be added for the time of rank 0.
    pub(crate) fn time(&self) -> (f64, f64) {
        let state = self.lock();
        (state.offsets.now(), state.offsets.to_root())
    }

    /// The most bytes of messages that this rank held at a time since the last call of this: sent and not gone,
    /// arriving, or not read. They are in no device's count.
    pub fn take_most_bytes(&self) -> u64 {
        self.gauge.take_most()
    }

    /// Tells all ranks that this one fails, outside of a call that all make: they end with this error, and know the
    /// [code](Self::exit_code) with which it ends.
    pub fn fail(&self, message: &str, exit_code: u8) {
        let mut out = Writer::default();
        out.bits(FAILED);
        out.bits(exit_code.into());
        out.text(message);
        self.send_all(&out.finish());
    }

    /// Ends the run on all ranks and on this one, whose results are worth nothing from here on: no call succeeds any
    /// more, not even one to which all other ranks said yes. `message` is the cause, unless another rank failed before.
    pub fn give_up(&self, message: &str, exit_code: u8) {
        if !self.is_over() {
            self.fail(message, exit_code);
        }
        self.end(self.rank(), message.to_owned());
    }

    /// The code with which the first other rank that failed ends.
    pub fn exit_code(&self) -> Option<u8> {
        self.lock().exit_code
    }

    /// Whether a rank has ended the run.
    pub fn is_over(&self) -> bool {
        self.lock().failed.is_some()
    }

    /// The first rank from which nothing arrives any more.
    pub fn lost(&self) -> Option<usize> {
        self.lock().lost
    }

    /// Sets where flows go from here on.
    pub(crate) fn attach(&self, arrivals: Arc<dyn Arrivals>) {
        self.lock().arrivals.push(arrivals);
    }

    /// Sets flows back to where they went before, unless others were attached after these.
    pub(crate) fn detach<A: Arrivals>(&self, arrivals: &Arc<A>) {
        let own = Arc::as_ptr(arrivals);
        let is_other = |attached: &Arc<dyn Arrivals>| !ptr::addr_eq(Arc::as_ptr(attached), own);
        self.lock().arrivals.retain(is_other);
    }

    /// The error of a run that is over, if it is.
    pub(crate) fn check(&self) -> Result<(), PipelineError> {
        self.lock()
            .failed
            .clone()
            .map_or(Ok(()), |(rank, message)| Err(self.remote(rank, message)))
    }

    pub(crate) fn send_flow(&self, to: usize, flow: Writer) {
        self.send(to, flow.finish());
    }

    /// A message with the head of a flow, to which the flow is appended.
    pub(crate) fn flow_head(tag: Tag) -> Writer {
        let mut out = Writer::default();
        out.bits(FLOW);
        out.bits(tag.epoch);
        out.bits(u64::from(tag.transfer.direction == Direction::Backward));
        out.number(tag.transfer.stage);
        out.number(tag.transfer.micro_batch);
        out
    }

    /// Ends a call on the other ranks, and the waits for what is posted for it.
    pub(crate) fn stop(&self, call: u64) {
        self.take_stop(self.rank(), call);
        let mut out = Writer::default();
        out.bits(STOP);
        out.bits(call);
        self.send_all(&out.finish());
    }

    pub(crate) fn waiting(&self, waits: bool) {
        self.transport.waiting(waits);
    }

    fn remote(&self, rank: usize, message: String) -> PipelineError {
        PipelineError::Remote {
            rank,
            host: self.host(rank),
            message,
        }
    }

    fn send_all(&self, parcel: &Parcel) {
        for to in self.others() {
            self.send(to, parcel.clone());
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank();
        (0..self.ranks()).filter(move |&rank| rank != own)
    }

    /// Sends a message with its number and its checksum.
    fn send(&self, to: usize, mut parcel: Parcel) {
        let mut next = self.next[to].lock().unwrap_or_else(PoisonError::into_inner);
        seal(&mut parcel, *next);
        *next += 1;
        self.transport.send(to, parcel);
    }

    fn deliver(&self, from: usize, parcel: Result<Parcel, String>) {
        if parcel.is_err() {
            self.lock().lost.get_or_insert(from);
        }
        let taken = parcel.and_then(|parcel| self.take(from, parcel));
        if let Err(message) = taken {
            self.unheard(from);
            self.end(from, message);
        }
    }

    /// The run is over, because of this rank.
    fn end(&self, rank: usize, message: String) {
        let mut state = self.lock();
        state.failed.get_or_insert((rank, message));
        let arrivals = state.arrivals.last().cloned();
        drop(state);
        self.changed.notify_all();
        if let Some(arrivals) = arrivals {
            arrivals.close();
        }
    }

    fn take(&self, from: usize, mut parcel: Parcel) -> Result<(), String> {
        let number = unseal(&mut parcel)?;
        let mut state = self.lock();
        let expected = state.received[from];
        if number != expected {
            let how = match number < expected {
                true => "came twice",
                false => "is missing or out of order",
            };
            let place = number.min(expected);
            return Err(format!(
                "its message {place} to rank {} {how}: the run cannot go on",
                self.rank()
            ));
        }
        state.received[from] += 1;
        let arrivals = state.arrivals.last().cloned();
        let (ranks, bytes) = (self.ranks(), parcel.bytes());
        let mut message = Reader::new(parcel);
        let kind = message.bits()?;
        match kind {
            RESULT | FAULT => {
                let call = message.bits()?;
                if kind == RESULT {
                    state.offsets.take(from, &mut message)?;
                }
                let said = match kind {
                    RESULT => {
                        let parcel = message.rest();
                        self.gauge.add(parcel.bytes());
                        Ok(parcel)
                    }
                    _ => Err((message.bits()?, message.text()?)),
                };
                let round = state
                    .rounds
                    .entry(call)
                    .or_insert_with(|| vec![None; ranks]);
                round[from] = Some(said);
                drop(state);
                self.changed.notify_all();
                // A worker that ended by a panic stopped nobody.
                if let (FAULT, Some(arrivals)) = (kind, arrivals) {
                    arrivals.stop(call);
                }
                Ok(())
            }
            FLOW => {
                let epoch = message.bits()?;
                let direction = match message.bits()? {
                    0 => Direction::Forward,
                    _ => Direction::Backward,
                };
                let (stage, micro_batch) = (message.number()?, message.number()?);
                let transfer = Transfer::new(direction, stage, micro_batch);
                let tag = Tag { epoch, transfer };
                self.gauge.add(bytes);
                let flow = Flow {
                    from,
                    tag,
                    message,
                    bytes,
                };
                if tag.epoch > state.calls {
                    state.early.push(flow);
                    return Ok(());
                }
                drop(state);
                self.pass_on(flow, arrivals.as_ref())
            }
            POSTED => {
                let call = message.bits()?;
                let (place, part) = (message.number()?, message.number()?);
                let label = Label { call, place, part };
                self.gauge.add(bytes);
                let before = state.posted.insert((from, label), message.rest());
                drop(state);
                self.changed.notify_all();
                before.map_or(Ok(()), |before| {
                    self.gauge.remove(before.bytes());
                    Err(format!("it posted a second message before the first was taken ({label}): the run cannot go on"))
                })
            }
            STOP => {
                drop(state);
                let call = message.bits()?;
                self.take_stop(from, call);
                if let Some(arrivals) = arrivals {
                    arrivals.stop(call);
                }
                Ok(())
            }
            BUSY => {
                state.busy[from] = message.bits()? != 0;
                drop(state);
                self.changed.notify_all();
                Ok(())
            }
            _ => {
                let exit_code = u8::try_from(message.bits()?).unwrap_or(1);
                state.exit_code.get_or_insert(exit_code);
                drop(state);
                self.end(from, message.text()?);
                Ok(())
            }
        }
    }

    fn take_stop(&self, rank: usize, call: u64) {
        let mut state = self.lock();
        if state.stopped.is_none_or(|(newest, _)| call > newest) {
            state.stopped = Some((call, rank));
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
