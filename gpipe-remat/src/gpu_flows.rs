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

use gpipe_sched::{Codec, PipelineError, Reader, Route, World, Writer};
use gpipe_tensor::{Host, Nccl, NcclChannel, Tensor, Tensors};

use crate::gpu_channels::{self, PAUSE, Places};
use crate::wire::{HostFlows, get_form, pack, put_form, unpack};

/// How often to look for the news of a rank's failure.
const HEARING: usize = 1_000;
/// How often a watcher looks for faults.
const WATCHING: Duration = Duration::from_millis(20);

/// How many channels of NCCL carry the flows of this rank, or why all go through host memory.
pub(crate) type Found = Result<usize, String>;

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
    let channels = match gpu_channels::connect(nccl, host, world, places)? {
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

impl Channels {
    /// Ends all channels when the run is over or NCCL reports a fault: a worker that waits for a GPU, which waits for
    /// another rank, would wait for ever.
    fn watch(&self) {
        while !self.is_closed() {
            thread::park_timeout(WATCHING);
            if self.world.is_over() {
                return self.end("another rank failed");
            }
            if let Some(fault) = self.lasting_fault() {
                return self.end(&fault);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// A fault of a channel whose last transfer is not done.
    fn fault(&self) -> Option<String> {
        self.of.iter().find_map(|(route, channel)| {
            let error = channel.check().err()?;
            Some(named(*route, &error))
        })
    }

    /// A fault that is still there after the moment in which the news of another rank's failure arrive. A rank that has
    /// come to its end is no fault: it has all that was sent, which this rank's GPU may report a little later.
    fn lasting_fault(&self) -> Option<String> {
        let mut fault = self.fault()?;
        for _ in 0..HEARING {
            if self.is_closed() {
                return None;
            }
            if self.world.is_over() {
                break;
            }
            thread::sleep(PAUSE);
            fault = self.fault()?;
        }
        Some(fault)
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
