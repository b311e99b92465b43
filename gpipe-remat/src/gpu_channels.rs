//! The channels of NCCL between GPUs of different ranks: which there are, and how all ranks connect theirs together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpipe_sched::{Parcel, PipelineError, Reader, Route, Schedule, World, Writer};
use gpipe_tensor::{ChannelEnd, DeviceId, Host, Nccl, NcclChannel, UNIQUE_ID_BYTES};

/// How often the ends of all channels may look for each other: this crate reads no clock.
const CONNECTING: usize = 60_000;
/// The pause between two looks.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

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

/// Connects the channels of this rank; the reason on all ranks where NCCL cannot be used. Every rank of the world calls
/// it.
///
/// # Errors
/// [`PipelineError::Remote`] if a rank fails.
pub(crate) fn connect(
    nccl: &Nccl,
    host: &Host,
    world: &Arc<World>,
    places: &Places,
) -> Result<Result<BTreeMap<Route, NcclChannel>, String>, PipelineError> {
    let rank = world.rank();
    let told = Told::own(nccl, host, rank, places).map(|own| {
        let mut out = Writer::default();
        own.put(&mut out);
        out.finish()
    });
    let said = match agree(world, told)? {
        Ok(said) => said,
        Err(fault) => return Ok(Err(fault)),
    };
    let connected = begin(nccl, host, rank, places, said);
    let connected = connected.and_then(|channels| {
        advance(&channels, world)?;
        Ok(channels)
    });
    let answer = connected.as_ref().map(|_| Parcel::default());
    Ok(match agree(world, answer.map_err(String::clone))? {
        Ok(_) => connected,
        Err(fault) => Err(fault),
    })
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
    // By their routes: the order is the same on all ranks.
    let channels: Vec<&NcclChannel> = channels.values().collect();
    for _ in 0..CONNECTING {
        if NcclChannel::advance_all(&channels).map_err(|error| error.to_string())? {
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
