//! One worker's handle to a device, which counts the bytes of its buffers.

mod open;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(feature = "cuda")]
use crate::cuda::{Event, Gpu};
use crate::device_id::DeviceId;
use crate::error::{Error, Result};
use crate::graph_counts::GraphCounts;
use crate::host::Host;
use crate::known_gpu::KNOWN_GPUS;
use crate::thread_budget::{CpuReservation, CpuSlot};

impl std::str::FromStr for DeviceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || Error::UnknownDevice(text.to_owned());
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu),
            Some(("cuda", name)) => {
                let mut known = KNOWN_GPUS.iter().map(|gpu| gpu.name);
                match known.find(|known| known.eq_ignore_ascii_case(name)) {
                    Some(known) => Ok(Self::Known(known)),
                    None => name.parse().map(Self::Cuda).map_err(|_| unknown()),
                }
            }
            _ => Err(unknown()),
        }
    }
}

/// One worker's handle to a device. Every buffer belongs to one handle, which counts its bytes;
/// several handles may share a physical device.
#[derive(Clone)]
pub struct Device(Arc<Handle>);

struct Handle {
    id: DeviceId,
    host: Host,
    /// Streams and library handles of a GPU; none for the CPU.
    #[cfg(feature = "cuda")]
    gpu: Option<Gpu>,
    live: AtomicU64,
    peak: AtomicU64,
    /// The peak since it was last taken.
    recent: AtomicU64,
    /// Upper limit of `live`.
    limit: AtomicU64,
    /// For tests: allocations until one is refused; negative for none.
    #[cfg(feature = "failing")]
    countdown: std::sync::atomic::AtomicI64,
    /// Threads that an operation may use now.
    share: Arc<AtomicUsize>,
    /// Called at the beginning of each operation.
    observer: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Device {
    /// A handle to the CPU.
    pub(crate) fn cpu(host: Host) -> Self {
        Self::new(
            DeviceId::Cpu,
            host,
            #[cfg(feature = "cuda")]
            None,
        )
    }

    pub(crate) fn new(id: DeviceId, host: Host, #[cfg(feature = "cuda")] gpu: Option<Gpu>) -> Self {
        let share = Arc::new(AtomicUsize::new(host.threads()));
        Self(Arc::new(Handle {
            id,
            host,
            #[cfg(feature = "cuda")]
            gpu,
            live: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            recent: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            #[cfg(feature = "failing")]
            countdown: std::sync::atomic::AtomicI64::new(-1),
            share,
            observer: OnceLock::new(),
        }))
    }

    /// The name of the device.
    pub fn id(&self) -> DeviceId {
        self.0.id
    }

    /// The host whose threads and buffers this handle shares.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// The UUID of a GPU, by which two processes know whether they have the same one; `None` for the CPU, and on
    /// paper.
    ///
    /// # Errors
    /// If the device does not answer.
    #[cfg(feature = "cuda")]
    pub fn uuid(&self) -> Result<Option<[u8; 16]>> {
        let gpu = self.gpu().filter(|gpu| !gpu.is_on_paper());
        gpu.map(Gpu::uuid).transpose()
    }

    /// The streams and library handles of a GPU; `None` for the CPU.
    #[cfg(feature = "cuda")]
    pub(crate) fn gpu(&self) -> Option<&Gpu> {
        self.0.gpu.as_ref()
    }

    /// Waits until all operations so far are done. Operations on a GPU are asynchronous, and their failures
    /// are reported here or by a later operation.
    ///
    /// # Errors
    /// If an operation so far has failed on the device.
    pub fn finish(&self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            return gpu.synchronize();
        }
        Ok(())
    }

    /// Records an event after all operations so far, on a device that works asynchronously; `None` on
    /// the CPU.
    ///
    /// # Errors
    /// If the device does not answer.
    pub fn record_event(&self) -> Result<Option<DeviceEvent>> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            return gpu.record_event().map(DeviceEvent).map(Some);
        }
        Ok(None)
    }

    /// Whether `other` is the same handle (not merely the same physical device).
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Bytes of all live buffers of this handle.
    pub fn live_bytes(&self) -> u64 {
        self.0.live.load(Ordering::Relaxed)
    }

    /// The peak of [`live_bytes`](Self::live_bytes) since the last [`reset_peak`](Self::reset_peak).
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak.load(Ordering::Relaxed)
    }

    /// The most bytes that the pool of the device's memory took, by all handles of this process and with what
    /// lies between buffers; `None` on the CPU.
    ///
    /// # Errors
    /// If the device does not answer.
    pub fn most_reserved_bytes(&self) -> Result<Option<u64>> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            return gpu.most_reserved().map(Some);
        }
        Ok(None)
    }

    /// Waits for all operations so far, and gives every launch of this handle since the last call;
    /// `None` on the CPU, and unless the host was made
    /// [`with_traced_launches`](Host::with_traced_launches).
    ///
    /// # Errors
    /// If the device does not answer.
    #[cfg(feature = "cuda")]
    pub fn take_launches(&self) -> Result<Option<crate::LaunchTrace>> {
        match self.gpu() {
            Some(gpu) => gpu.take_launches(),
            None => Ok(None),
        }
    }

    /// Begins a step: what belongs to no action of the step before is given back. See
    /// [`begin_action`](Self::begin_action).
    ///
    /// # Errors
    /// If the device does not answer.
    pub fn begin_step(&self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            return gpu.begin_step();
        }
        Ok(())
    }

    /// Begins an action of a step: a run of operations that will come again in later steps, which a GPU of a host
    /// [`with_cuda_graphs`](Host) does by a few calls then. Its operations may begin as late as at
    /// [`end_action`](Self::end_action), unless something waits for them.
    pub fn begin_action(&self) {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            gpu.begin_action();
        }
    }

    /// Ends the action that is under way, if one is.
    ///
    /// # Errors
    /// If the device does not answer.
    pub fn end_action(&self) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            return gpu.end_action();
        }
        Ok(())
    }

    /// Whether a GPU ran out of memory since the last [`begin_step`](Self::begin_step) while arenas of CUDA graphs had some of
    /// it. The next step leaves that to buffers: one that failed for want of memory is worth beginning again.
    pub fn is_short_by_graphs(&self) -> bool {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            return gpu.is_short();
        }
        false
    }

    /// What became of the operations of actions so far; `None` without CUDA graphs.
    pub fn graph_counts(&self) -> Option<GraphCounts> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu() {
            return gpu.graph_counts();
        }
        None
    }

    /// Resets the peak to the bytes that are live now.
    pub fn reset_peak(&self) {
        self.0.peak.store(self.live_bytes(), Ordering::Relaxed);
    }

    /// The peak of [`live_bytes`](Self::live_bytes) since the last call of this function. It is counted
    /// apart from [`peak_bytes`](Self::peak_bytes), to measure single actions.
    pub fn take_recent_peak(&self) -> u64 {
        self.0.recent.swap(self.live_bytes(), Ordering::Relaxed)
    }

    /// Limits [`live_bytes`](Self::live_bytes) to `bytes`: an allocation beyond it fails. `u64::MAX` means
    /// no limit. Live buffers stay.
    pub fn set_limit(&self, bytes: u64) {
        self.0.limit.store(bytes, Ordering::Relaxed);
    }

    /// For tests: the allocation after the next `buffers` ones fails, once.
    #[cfg(feature = "failing")]
    pub fn fail_after(&self, buffers: u32) {
        self.0.countdown.store(buffers.into(), Ordering::Relaxed);
    }

    /// For tests: cancels [`the failure`](Self::fail_after) to come; returns whether there was one.
    #[cfg(feature = "failing")]
    pub fn disarm(&self) -> bool {
        self.0.countdown.swap(-1, Ordering::Relaxed) >= 0
    }

    /// Waits for a free CPU slot and holds a share of the host's threads until the slot is dropped.
    ///
    /// A stage takes a slot at the beginning of an action. At most [`Host::threads`] actions run at
    /// once, and running actions share the threads evenly: a single action uses all of them until
    /// another begins. An action on a GPU needs no slot and gets one at once.
    pub fn cpu_slot(&self) -> CpuSlot {
        if self.id() != DeviceId::Cpu {
            return CpuSlot::elsewhere();
        }
        self.0.host.thread_budget().begin(self.0.share.clone())
    }

    /// What reserves a [`cpu_slot`](Self::cpu_slot) for the calling thread, which is about to sleep.
    ///
    /// Another thread calls it before it wakes this one, which drops the reservation once it has its slot.
    /// Meanwhile the operations of other actions leave its share of the threads, and a processor to wake up on.
    /// None for a handle to a GPU.
    pub fn cpu_reservation(&self) -> Option<impl FnOnce() -> CpuReservation + Send + use<>> {
        let on_cpu = self.id() == DeviceId::Cpu;
        on_cpu.then(|| CpuReservation::for_this_thread(self.0.host.thread_budget().clone()))
    }

    /// Threads that an operation may use now. The number never decides how work is cut.
    pub(crate) fn share(&self) -> usize {
        if let Some(observer) = self.0.observer.get() {
            observer();
        }
        self.0.share.load(Ordering::Relaxed)
    }

    /// Calls `observer` whenever an operation on the CPU takes its threads: those of a [`cpu_slot`](Self::cpu_slot) whose
    /// share changes are of use from then on. For measurements; false if there is an observer already.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// use gpipe_tensor::{DeviceId, Host, Tensor, ops};
    ///
    /// let device = Host::new(1)?.device(DeviceId::Cpu)?;
    /// let operations = Arc::new(AtomicUsize::new(0));
    /// let count = operations.clone();
    /// assert!(device.on_operation(move || drop(count.fetch_add(1, Ordering::Relaxed))));
    /// let x = Tensor::zeros(&device, [2, 3])?;
    /// ops::add(&x, &x)?;
    /// assert!(operations.load(Ordering::Relaxed) > 0);
    /// # Ok::<(), gpipe_tensor::Error>(())
    /// ```
    pub fn on_operation(&self, observer: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.observer.set(Box::new(observer)).is_ok()
    }

    /// Adds bytes of a buffer to be allocated, and returns the sum, to be passed to [`saw`](Self::saw) after
    /// the allocation.
    pub(crate) fn count(&self, bytes: usize) -> Result<u64> {
        #[cfg(feature = "failing")]
        if self.0.countdown.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(Error::OutOfMemory { bytes });
        }
        let live = self.0.live.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let limit = self.0.limit.load(Ordering::Relaxed);
        if live > limit {
            self.discount(bytes);
            return Err(Error::Limit { bytes, limit });
        }
        Ok(live)
    }

    /// Updates the peaks: `live` bytes were live at once.
    pub(crate) fn saw(&self, live: u64) {
        self.0.peak.fetch_max(live, Ordering::Relaxed);
        self.0.recent.fetch_max(live, Ordering::Relaxed);
    }

    pub(crate) fn discount(&self, bytes: usize) {
        self.0.live.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// A point in the work of a GPU, with its time: see [`Device::record_event`].
pub struct DeviceEvent(
    #[cfg(feature = "cuda")] Event,
    #[cfg(not(feature = "cuda"))] std::convert::Infallible,
);

impl fmt::Debug for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceEvent").finish_non_exhaustive()
    }
}

impl DeviceEvent {
    /// Seconds from this event to a later one of the same device. Both must have occurred, as they have
    /// after [`Device::finish`].
    ///
    /// # Errors
    /// If one has not occurred, or the device has failed.
    pub fn seconds_until(&self, later: &Self) -> Result<f64> {
        #[cfg(feature = "cuda")]
        return self.0.seconds_until(&later.0);
        #[cfg(not(feature = "cuda"))]
        match (self.0, later.0) {}
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {} bytes)", self.id(), self.live_bytes())
    }
}
