//! Streams and events: the work of a GPU and its order.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUresult, CUstream};

use super::context::Context;
use super::entry::{Launch, THREADS};
use super::pinned::Pinned;
use super::raw_handle::RawHandle;
use super::status::Status;
use crate::{Error, Result};

/// A queue of work that a GPU does in order; only events order the work of two streams.
pub(crate) struct Stream {
    raw: RawHandle<CUstream>,
    context: Arc<Context>,
}

/// A point in the work of a stream, and its time if recorded with it.
pub(crate) struct Event {
    raw: RawHandle<CUevent>,
    timed: bool,
    context: Arc<Context>,
}

impl Stream {
    /// A new stream, not ordered with any other.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        let flag = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        if context.bind()? {
            // SAFETY: the context is the thread's; the call writes one name.
            unsafe { sys::cuStreamCreate(&mut raw, flag) }.check("cuStreamCreate")?;
        }
        Ok(Self {
            raw: RawHandle(raw),
            context: context.clone(),
        })
    }

    /// The driver's name for it.
    pub(super) fn raw(&self) -> CUstream {
        self.raw.0
    }

    /// The context that it works in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Records an event after all work so far.
    pub fn record(&self) -> Result<Event> {
        self.record_as(false)
    }

    /// Records an event with its time.
    pub fn record_timed(&self) -> Result<Event> {
        self.record_as(true)
    }

    /// Records an event that was used before, if there is one: what waits for its earlier record still waits for
    /// that.
    fn record_as(&self, timed: bool) -> Result<Event> {
        if !self.context.bind()? {
            return Ok(Event::on_paper(timed, &self.context));
        }
        let raw = match self.context.events.take(timed) {
            Some(raw) => raw,
            None => new_event(timed)?,
        };
        let event = Event {
            raw,
            timed,
            context: self.context.clone(),
        };
        // SAFETY: event and stream are of the same context, and both are alive.
        unsafe { sys::cuEventRecord(event.raw.0, self.raw.0) }.check("cuEventRecord")?;
        Ok(event)
    }

    /// Waits on the host after an error, so that the memory of the work so far may be freed; returns whether
    /// it may be.
    pub fn give_up(&self) -> bool {
        // The first error is the one to report.
        self.synchronize().is_ok()
    }

    /// Orders all later work after an event of another stream.
    pub fn wait(&self, event: &Event) -> Result<()> {
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the event is alive and was recorded; it may be of another context.
        unsafe { sys::cuStreamWaitEvent(self.raw.0, event.raw.0, 0) }.check("cuStreamWaitEvent")
    }

    /// Waits on the host until all work so far is done; reports its failures.
    pub fn synchronize(&self) -> Result<()> {
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the stream is alive.
        unsafe { sys::cuStreamSynchronize(self.raw.0) }.check("cuStreamSynchronize")
    }

    /// Allocates uninitialized memory for later work; address 0 for no bytes.
    pub fn alloc(&self, bytes: usize) -> Result<CUdeviceptr> {
        if bytes == 0 {
            return Ok(0);
        }
        if let Some(at) = self.context.paper_address(bytes) {
            return Ok(at);
        }
        self.context.bind()?;
        let mut at = 0;
        let mut ask = || {
            // SAFETY: pool and stream are of the same context; the call writes one address.
            unsafe { sys::cuMemAllocFromPoolAsync(&mut at, bytes, self.context.pool(), self.raw.0) }
        };
        let mut status = ask();
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            // The free memory of the pool may be fragmented.
            self.context.trim()?;
            status = ask();
        }
        match status {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfMemory { bytes }),
            status => status.check("cuMemAllocFromPoolAsync").map(|()| at),
        }
    }

    /// Frees memory after the work so far.
    ///
    /// # Safety
    /// The memory came from [`alloc`](Self::alloc) on a stream of the same context; only earlier
    /// work of this stream, or work that this stream waits for, uses it; and it is freed only once.
    pub unsafe fn free(&self, at: CUdeviceptr) -> Result<()> {
        if at == 0 {
            return Ok(());
        }
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the caller vouches for the address and its users.
        unsafe { sys::cuMemFreeAsync(at, self.raw.0) }.check("cuMemFreeAsync")
    }

    /// Sets `n` words of 32 bits.
    ///
    /// # Safety
    /// There are as many in the memory, which this stream may write.
    pub unsafe fn fill(&self, at: CUdeviceptr, word: u32, n: usize) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { sys::cuMemsetD32Async(at, word, n, self.raw.0) }.check("cuMemsetD32Async")
    }

    /// Copies within the device.
    ///
    /// # Safety
    /// Both memories hold as many bytes, this stream may read the one and write the other.
    pub unsafe fn copy(&self, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the caller vouches for the memories.
        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.raw.0) }
            .check("cuMemcpyDtoDAsync_v2")
    }

    /// Copies to the memory of another device by peer access.
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    pub unsafe fn copy_to_peer(
        &self,
        to: CUdeviceptr,
        peer: &Context,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        if !self.context.bind()? {
            return Ok(());
        }
        let (there, here) = (peer.raw(), self.context.raw());
        // SAFETY: the caller vouches for the memories, and both contexts are retained.
        unsafe { sys::cuMemcpyPeerAsync(to, there, from, here, bytes, self.raw.0) }
            .check("cuMemcpyPeerAsync")
    }

    /// Copies from the host.
    ///
    /// # Safety
    /// As [`copy`](Self::copy); the host's memory stays as it is until that is done.
    pub unsafe fn copy_in(&self, to: CUdeviceptr, from: &Pinned, bytes: usize) -> Result<()> {
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the caller vouches for the memories.
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.address(), bytes, self.raw.0) }
            .check("cuMemcpyHtoDAsync_v2")
    }

    /// Copies to the host.
    ///
    /// # Safety
    /// As [`copy`](Self::copy); the host's memory is not accessed until the copy is done.
    pub unsafe fn copy_out(&self, to: &Pinned, from: CUdeviceptr, bytes: usize) -> Result<()> {
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the caller vouches for the memories.
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.address(), from, bytes, self.raw.0) }
            .check("cuMemcpyDtoHAsync_v2")
    }

    /// Runs a kernel; nothing if there are no blocks to run.
    ///
    /// # Safety
    /// This stream may use the memories that the arguments point to, which are as large as the kernel
    /// takes them to be.
    pub unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        if launch.blocks == 0 {
            return Ok(());
        }
        if !self.context.bind()? {
            return Ok(());
        }
        let module = self.context.module();
        let function = module.and_then(|module| module.function(launch.form));
        let function = function.ok_or_else(|| Error::Cuda {
            call: "cuLaunchKernel",
            message: format!("there is no kernel {}", launch.form.name()),
        })?;
        let args = launch.args.iter().map(|arg| arg.address().cast_mut());
        let mut args: smallvec::SmallVec<[*mut c_void; 16]> = args.collect();
        // SAFETY: there is one argument for each parameter, of its type, since both come from one
        // table; the driver reads them before it answers. The caller vouches for the memories.
        let status = unsafe {
            sys::cuLaunchKernel(
                function,
                launch.blocks,
                1,
                1,
                THREADS,
                1,
                1,
                launch.shared,
                self.raw.0,
                args.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        match status.check("cuLaunchKernel") {
            Err(Error::Cuda { call, message }) => Err(Error::Cuda {
                call,
                message: format!("{launch}: {message}"),
            }),
            other => other,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        if self.context.bind().unwrap_or(false) {
            // SAFETY: the stream is alive and destroyed once; its work goes on.
            let _destroyed = unsafe { sys::cuStreamDestroy_v2(self.raw.0) };
        }
    }
}

impl Event {
    /// An event of a device on paper: it has occurred.
    fn on_paper(timed: bool, context: &Arc<Context>) -> Self {
        Self {
            raw: RawHandle(std::ptr::null_mut()),
            timed,
            context: context.clone(),
        }
    }

    /// Waits on the host.
    pub fn synchronize(&self) -> Result<()> {
        if !self.context.bind()? {
            return Ok(());
        }
        // SAFETY: the event is alive.
        unsafe { sys::cuEventSynchronize(self.raw.0) }.check("cuEventSynchronize")
    }

    /// Seconds from this event to a later one. Both must have occurred, be recorded with their times, and be
    /// of the same device.
    pub fn seconds_until(&self, later: &Self) -> Result<f64> {
        let mut milliseconds = 0.0;
        if !self.context.bind()? {
            return Ok(0.0);
        }
        // SAFETY: both events are alive; the call writes one number.
        unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.raw.0, later.raw.0) }
            .check("cuEventElapsedTime_v2")?;
        Ok(f64::from(milliseconds) / 1e3)
    }

    /// Whether the work before it is done.
    pub fn is_done(&self) -> Result<bool> {
        if !self.context.bind()? {
            return Ok(true);
        }
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.raw.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => status.check("cuEventQuery").map(|()| true),
        }
    }
}

/// A new event of the thread's context.
fn new_event(timed: bool) -> Result<RawHandle<CUevent>> {
    let kind = match timed {
        true => sys::CUevent_flags::CU_EVENT_DEFAULT,
        false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
    };
    let mut raw = std::ptr::null_mut();
    // SAFETY: the call writes one name.
    unsafe { sys::cuEventCreate(&mut raw, kind as u32) }.check("cuEventCreate")?;
    Ok(RawHandle(raw))
}

impl Drop for Event {
    fn drop(&mut self) {
        let raw = std::mem::replace(&mut self.raw, RawHandle(std::ptr::null_mut()));
        if !raw.0.is_null() {
            self.context.events.give(raw, self.timed);
        }
    }
}
