//! Flows between GPUs of different ranks by NCCL: the head of a message passes as all others do, the elements go from
//! GPU to GPU.
//!
//! One channel leads from each worker to each that it sends flows to, so that a transfer waits for none of another
//! direction. The receiver asks for the elements of a message when its head arrives: heads of a worker arrive in the
//! order in which their elements were sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gpipe_sched::{Codec, Parcel, PipelineError, Reader, Route, Schedule, World, Writer};
use gpipe_tensor::{
    ChannelEnd, DeviceId, Host, Nccl, NcclChannel, Tensor, Tensors, UNIQUE_ID_BYTES,
};

use crate::wire::{HostFlows, get_form, pack, put_form, unpack};

/// How often the ends of all channels may look for each other: this crate reads no clock.
const CONNECTING: usize = 60_000;
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How often to look for the news of a rank's failure.
const HEARING: usize = 1_000;
/// How often a watcher looks for faults.
const WATCHING: Duration = Duration::from_millis(20);

/// How many channels of NCCL carry the flows of this rank, or why all go through host memory.
pub(crate) type Found = Result<usize, String>;

/// Where the workers of a pipeline are.
pub(crate) struct Places<'a> {
    pub schedule: &'a Schedule,
    /// The rank of each worker in the world.
    pub rank_of: &'a [usize],
    /// The device of each stage, by its name on its own rank.
    pub devices: &'a [DeviceId],
}

impl Places<'_> {
    /// The workers between which flows pass on different ranks, in both directions.
    fn routes(&self) -> Vec<Route> {
        let device_of = self.schedule.device_of();
        let next = device_of.windows(2).flat_map(|pair| {
            let (from, to) = (pair[0], pair[1]);
            [Route { from, to }, Route { from: to, to: from }]
        });
        let mut routes: Vec<Route> = next
            .filter(|route| self.rank_of[route.from] != self.rank_of[route.to])
            .collect();
        routes.sort_unstable();
        routes.dedup();
        routes
    }

    /// The device of a worker, which all its stages have.
    fn device(&self, worker: usize) -> DeviceId {
        let stages = self.schedule.device_of().iter();
        let stage = stages.zip(self.devices).find(|(own, _)| **own == worker);
        stage.map_or(DeviceId::Cpu, |(_, &device)| device)
    }
}

/// A codec of flows that pass by NCCL where both ends are GPUs, and through host memory elsewhere.
pub(crate) struct GpuFlows {
    host: HostFlows,
    channels: Arc<Channels>,
    watcher: Option<JoinHandle<()>>,
}

struct Channels {
    of: BTreeMap<Route, NcclChannel>,
    world: Arc<World>,
    /// Why they were ended.
    cause: Mutex<Option<String>>,
    is_closed: AtomicBool,
}

/// Connects the channels of this rank. Every rank of the world calls it.
///
/// # Errors
/// [`PipelineError::Remote`] if a rank fails. That NCCL cannot be used is none: flows go through host memory then, on
/// all ranks.
pub(crate) fn connect(
    nccl: &Nccl,
    host: &Host,
    world: &Arc<World>,
    places: &Places,
    flows: HostFlows,
) -> Result<(Arc<dyn Codec<Tensors>>, Found), PipelineError> {
    let rank = world.rank();
    let told = Told::own(nccl, host, rank, places).map(|own| {
        let mut out = Writer::default();
        own.put(&mut out);
        out.finish()
    });
    let connected = match agree(world, told)? {
        Err(fault) => Err(fault),
        Ok(said) => {
            let connected = begin(nccl, host, rank, places, said);
            let connected = connected.and_then(|channels| {
                advance(&channels, world)?;
                Ok(channels)
            });
            let answer = connected.as_ref().map(|_| Parcel::default());
            match agree(world, answer.map_err(String::clone))? {
                Err(fault) => Err(fault),
                Ok(_) => connected,
            }
        }
    };
    let channels = match connected {
        Ok(channels) if channels.is_empty() => {
            let why = "no flow of this rank is between two GPUs of different ranks";
            return Ok((Arc::new(flows), Err(why.to_owned())));
        }
        Ok(channels) => channels,
        Err(fault) => return Ok((Arc::new(flows), Err(fault))),
    };
    let number = channels.len();
    let channels = Arc::new(Channels {
        of: channels,
        world: world.clone(),
        cause: Mutex::default(),
        is_closed: AtomicBool::new(false),
    });
    let watched = channels.clone();
    let watcher = thread::Builder::new().name("gpipe-nccl".to_owned());
    let watcher = watcher.spawn(move || watched.watch());
    let watcher = watcher.map_err(|source| PipelineError::Thread { device: 0, source })?;
    let flows = GpuFlows {
        host: flows,
        channels,
        watcher: Some(watcher),
    };
    Ok((Arc::new(flows), Ok(number)))
}

/// What the ranks of a pipeline tell each other of their channels.
#[derive(Default)]
struct Told {
    /// The UUIDs of the workers' GPUs.
    uuids: BTreeMap<usize, [u64; 2]>,
    /// The names of the channels, which their senders choose.
    ids: BTreeMap<Route, [u8; UNIQUE_ID_BYTES]>,
}

impl Told {
    /// What this rank tells.
    fn own(nccl: &Nccl, host: &Host, rank: usize, places: &Places) -> Result<Self, String> {
        let fault = |error: gpipe_tensor::Error| error.to_string();
        let mut own = Self::default();
        for worker in (0..places.rank_of.len()).filter(|&worker| places.rank_of[worker] == rank) {
            if let device @ DeviceId::Cuda(_) = places.device(worker)
                && let Some(uuid) = host
                    .device(device)
                    .and_then(|gpu| gpu.uuid())
                    .map_err(fault)?
            {
                let whole = u128::from_le_bytes(uuid);
                own.uuids
                    .insert(worker, [whole as u64, (whole >> 64) as u64]);
            }
        }
        let is_sent = |route: &Route| own.uuids.contains_key(&route.from);
        let sent: Vec<Route> = places.routes().into_iter().filter(is_sent).collect();
        for route in sent {
            own.ids.insert(route, nccl.unique_id().map_err(fault)?);
        }
        Ok(own)
    }

    fn put(&self, out: &mut Writer) {
        out.number(self.uuids.len());
        for (worker, uuid) in &self.uuids {
            out.number(*worker);
            uuid.iter().for_each(|&half| out.bits(half));
        }
        out.number(self.ids.len());
        for (route, id) in &self.ids {
            out.number(route.from);
            out.number(route.to);
            for part in id.as_chunks::<8>().0 {
                out.bits(u64::from_le_bytes(*part));
            }
        }
    }

    fn add(&mut self, from: &mut Reader) -> Result<(), String> {
        for _ in 0..from.number()? {
            self.uuids
                .insert(from.number()?, [from.bits()?, from.bits()?]);
        }
        for _ in 0..from.number()? {
            let route = Route {
                from: from.number()?,
                to: from.number()?,
            };
            let mut id = [0; UNIQUE_ID_BYTES];
            for part in id.as_chunks_mut::<8>().0 {
                *part = from.bits()?.to_le_bytes();
            }
            self.ids.insert(route, id);
        }
        Ok(())
    }
}

/// Shares what each rank has to tell, or its fault; the parcels of the ranks, or the first fault and its rank.
fn agree(
    world: &Arc<World>,
    own: Result<Parcel, String>,
) -> Result<Result<Vec<Reader>, String>, PipelineError> {
    let mut out = Writer::default();
    out.text(own.as_ref().err().map_or("", String::as_str));
    let mut parcel = out.finish();
    parcel.head.extend(own.unwrap_or_default().head);
    let mut said = Vec::new();
    for (rank, parcel) in world.share(parcel, None)?.into_iter().enumerate() {
        let mut from = Reader::new(parcel);
        let fault = from.text().unwrap_or_else(|fault| fault);
        if !fault.is_empty() {
            return Ok(Err(format!(
                "{fault}, on rank {rank} ({})",
                world.host(rank)
            )));
        }
        said.push(from);
    }
    Ok(Ok(said))
}

/// Begins the channels of this rank.
fn begin(
    nccl: &Nccl,
    host: &Host,
    rank: usize,
    places: &Places,
    said: Vec<Reader>,
) -> Result<BTreeMap<Route, NcclChannel>, String> {
    let mut told = Told::default();
    for (other, mut said) in said.into_iter().enumerate() {
        // Workers of other replicas have the same numbers.
        if places.rank_of.contains(&other) {
            told.add(&mut said)?;
        }
    }
    let mut channels = BTreeMap::new();
    for route in places.routes() {
        let ends = [route.from, route.to];
        let Some(place) = ends.iter().position(|&end| places.rank_of[end] == rank) else {
            continue;
        };
        let uuids = ends.map(|end| told.uuids.get(&end));
        let (Some(id), [Some(one), Some(other)]) = (told.ids.get(&route), uuids) else {
            continue;
        };
        // Two ends on one GPU would wait for each other's kernels.
        if one == other {
            continue;
        }
        let end = [ChannelEnd::Sender, ChannelEnd::Receiver][place];
        let device = places.device(ends[place]);
        let channel = NcclChannel::begin(nccl, host, device, id, end);
        channels.insert(route, channel.map_err(|error| error.to_string())?);
    }
    Ok(channels)
}

/// Connects and tries all channels.
fn advance(channels: &BTreeMap<Route, NcclChannel>, world: &World) -> Result<(), String> {
    for _ in 0..CONNECTING {
        let mut is_open = true;
        for channel in channels.values() {
            is_open &= channel.advance().map_err(|error| error.to_string())?;
        }
        if is_open {
            return Ok(());
        }
        if world.is_over() {
            return Err("another rank failed".to_owned());
        }
        thread::sleep(PAUSE);
    }
    Err(format!(
        "NCCL did not connect within {CONNECTING} looks, one a millisecond"
    ))
}

impl Channels {
    /// Ends all channels when the run is over or NCCL reports a fault: a worker that waits for a GPU, which waits for
    /// another rank, would wait for ever.
    fn watch(&self) {
        while !self.is_closed.load(Ordering::Acquire) {
            thread::park_timeout(WATCHING);
            let fault = self.of.iter().find_map(|(route, channel)| {
                let error = channel.check().err()?;
                Some(named(*route, &error))
            });
            if fault.is_some() || self.world.is_over() {
                self.await_cause();
                return self.end(&fault.unwrap_or_else(|| "another rank failed".to_owned()));
            }
        }
    }

    /// Waits a moment for news of another rank's failure: NCCL may notice that it is gone before its message arrives,
    /// which says why.
    fn await_cause(&self) {
        for _ in 0..HEARING {
            if self.world.is_over() {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Ends all channels; no call of this rank succeeds any more, since what they still receive is undefined.
    fn end(&self, cause: &str) {
        self.world.give_up(cause, 1);
        let mut told = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        told.get_or_insert_with(|| cause.to_owned());
        drop(told);
        self.of.values().for_each(NcclChannel::abort);
    }

    /// The error of a transfer that could not be asked for: the two ends do not agree any more on what follows.
    fn broken(&self, route: Route, error: &gpipe_tensor::Error) -> String {
        let fault = named(route, error);
        self.end(&fault);
        let cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        cause.clone().unwrap_or(fault)
    }
}

/// A fault of a channel.
fn named(route: Route, error: &gpipe_tensor::Error) -> String {
    let Route { from, to } = route;
    format!("NCCL from worker {from} to worker {to}: {error}")
}

impl Drop for GpuFlows {
    fn drop(&mut self) {
        self.channels.is_closed.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            // It does nothing that could panic halfway.
            let _ = watcher.join();
        }
    }
}

/// How a tensor of a message passes.
const BY_HOST: usize = 0;
const BY_NCCL: usize = 1;

impl Codec<Tensors> for GpuFlows {
    fn pack(&self, flow: Tensors, out: &mut Writer) -> Result<(), String> {
        self.host.pack(flow, out)
    }

    fn unpack(&self, from: &mut Reader) -> Result<Tensors, String> {
        self.host.unpack(from)
    }

    fn pack_flow(&self, flow: Tensors, route: Route, out: &mut Writer) -> Result<(), String> {
        let Some(channel) = self.channels.of.get(&route) else {
            return self.host.pack(flow, out);
        };
        out.number(flow.len());
        // What passes through the host comes first: it may fail, and then nothing has been sent.
        let mut by_nccl: Vec<Tensor> = Vec::new();
        for tensor in flow {
            if tensor.dtype().is_float() && !tensor.is_on_host() {
                out.number(BY_NCCL);
                put_form(tensor.dtype(), tensor.shape(), out)?;
                by_nccl.push(tensor);
            } else {
                out.number(BY_HOST);
                pack(&tensor, out)?;
            }
        }
        let mut sent = by_nccl.into_iter().map(|tensor| channel.send(tensor));
        let sent = sent.try_for_each(|sent| sent);
        sent.map_err(|error| {
            self.channels.await_cause();
            self.channels.broken(route, &error)
        })
    }

    fn unpack_flow(&self, route: Route, from: &mut Reader) -> Result<Tensors, String> {
        let Some(channel) = self.channels.of.get(&route) else {
            return self.host.unpack(from);
        };
        let transit = &self.host.transit;
        let tensors = 0..from.number()?;
        let tensors = tensors.map(|_| match from.number()? {
            BY_HOST => unpack(from, transit),
            _ => {
                let (dtype, shape) = get_form(from)?;
                let received = channel.receive(dtype, shape, transit);
                received.map_err(|error| self.channels.broken(route, &error))
            }
        });
        tensors.collect()
    }
}
