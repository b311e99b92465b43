//! A device's primary context, which all handles to the device share.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUmemPool_attribute, CUmemoryPool,
};

use super::event_pool::EventPool;
use super::module::Module;
use super::probe;
use super::raw_handle::RawHandle;
use super::shortage::Spares;
use super::status::Status;
use crate::{KernelCache, Result};

/// The primary context of a device, its memory pool and the kernels that are loaded there.
pub(crate) struct Context {
    pub ordinal: u32,
    pub(super) device: CUdevice,
    raw: RawHandle<CUcontext>,
    pool: RawHandle<CUmemoryPool>,
    /// Events that nobody refers to any more, to be recorded again.
    pub(super) events: EventPool,
    /// Whether copies of another device, by its ordinal, arrive in the pool.
    pub(super) writers: Mutex<BTreeMap<u32, bool>>,
    /// What keeps memory of the device for later.
    pub(super) spares: Spares,
    /// Held while a stream of the device is captured, when nothing may wait for all of the device's work.
    pub(super) capturing: Mutex<()>,
    /// Loaded last, unloaded before the context.
    module: Option<Module>,
    /// The next address of a device on paper, which no call of the driver knows.
    paper: Option<AtomicU64>,
}

/// Bytes between addresses on paper: as much as those of a device are multiples of at least.
const ALIGNMENT: u64 = 256;

/// A device's open context. Its lock is held while the context is made: by then another device's may be.
type Slot = Arc<Mutex<Weak<Context>>>;

/// The open contexts, by ordinal.
static OPEN: Mutex<BTreeMap<u32, Slot>> = Mutex::new(BTreeMap::new());

impl Context {
    /// The context of the device of this ordinal, which the probe has found; takes kernels from the cache if
    /// it has them.
    pub fn open(ordinal: u32, cache: Option<&dyn KernelCache>) -> Result<Arc<Self>> {
        let slot = {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            open.entry(ordinal).or_default().clone()
        };
        let mut open = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = open.upgrade() {
            return Ok(context);
        }
        let device = probe::handle(ordinal as c_int)?;
        let (mut raw, mut pool) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the device is one that the driver gave; the call writes one name.
        unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) }
            .check("cuDevicePrimaryCtxRetain")?;
        let mut context = Self {
            ordinal,
            device,
            raw: RawHandle(raw),
            pool: RawHandle(pool),
            events: EventPool::default(),
            writers: Mutex::default(),
            spares: Spares::default(),
            capturing: Mutex::default(),
            module: None,
            paper: None,
        };
        context.bind()?;
        // What is freed stays with the process: without this every synchronisation gives it back.
        let mut all = u64::MAX;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // Reuse must not add waits between streams that no event asked for.
        let mut never = 0_i32;
        let hidden = CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
        // SAFETY: the call writes one name; the first attribute is a number of 64 bits, the second of 32.
        unsafe {
            sys::cuDeviceGetDefaultMemPool(&mut pool, device).check("cuDeviceGetDefaultMemPool")?;
            sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast())
                .check("cuMemPoolSetAttribute")?;
            sys::cuMemPoolSetAttribute(pool, hidden, (&raw mut never).cast())
                .check("cuMemPoolSetAttribute")?;
        }
        context.pool = RawHandle(pool);
        context.module = Some(Module::load(probe::capability(device)?, cache)?);
        let context = Arc::new(context);
        *open = Arc::downgrade(&context);
        Ok(context)
    }

    /// A device on paper: nothing is called, and addresses are numbers.
    pub fn on_paper() -> Arc<Self> {
        Arc::new(Self {
            ordinal: 0,
            device: 0,
            raw: RawHandle(std::ptr::null_mut()),
            pool: RawHandle(std::ptr::null_mut()),
            events: EventPool::default(),
            writers: Mutex::default(),
            spares: Spares::default(),
            capturing: Mutex::default(),
            module: None,
            paper: Some(AtomicU64::new(ALIGNMENT)),
        })
    }

    /// Whether the device is on paper.
    pub(super) fn is_on_paper(&self) -> bool {
        self.paper.is_some()
    }

    /// The address of as many bytes of a device on paper, where none is given out twice; none of a device.
    pub(super) fn paper_address(&self, bytes: usize) -> Option<CUdeviceptr> {
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT);
        let next = self.paper.as_ref()?;
        Some(next.fetch_add(bytes, Ordering::Relaxed))
    }

    /// Makes this the calling thread's context; false for a device on paper, of which nothing may be asked. Not
    /// remembered from call to call: other code of the thread may have made another one current meanwhile.
    pub fn bind(&self) -> Result<bool> {
        if self.is_on_paper() {
            return Ok(false);
        }
        // SAFETY: the context is retained as long as this lives.
        unsafe { sys::cuCtxSetCurrent(self.raw.0) }.check("cuCtxSetCurrent")?;
        Ok(true)
    }

    /// The driver's name for it.
    pub(super) fn raw(&self) -> CUcontext {
        self.raw.0
    }

    /// The pool that memory comes from.
    pub(super) fn pool(&self) -> CUmemoryPool {
        self.pool.0
    }

    /// The kernels.
    pub(super) fn module(&self) -> Option<&Module> {
        self.module.as_ref()
    }

    /// Waits for all work, then returns the free memory of the pool to the device.
    pub(super) fn trim(&self) -> Result<()> {
        self.bind()?;
        let _held = self
            .capturing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context is the thread's, and the pool is the device's own.
        unsafe {
            sys::cuCtxSynchronize().check("cuCtxSynchronize")?;
            sys::cuMemPoolTrimTo(self.pool.0, 0).check("cuMemPoolTrimTo")
        }
    }

    /// The most bytes that the pool took from the device since it was opened.
    pub(super) fn most_reserved(&self) -> Result<u64> {
        let mut bytes = 0_u64;
        if !self.bind()? {
            return Ok(bytes);
        }
        let most = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
        // SAFETY: the pool is the device's own; this attribute is a number of 64 bits.
        unsafe { sys::cuMemPoolGetAttribute(self.pool.0, most, (&raw mut bytes).cast()) }
            .check("cuMemPoolGetAttribute")?;
        Ok(bytes)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        match self.bind() {
            Ok(false) => return,
            Ok(true) => {
                // The context lives on where other code of the process has it, as cuBLAS's copy of the CUDA runtime does, and the pool with it.
                // SAFETY: the context is the thread's; the pool, where it was found, is the device's own.
                unsafe {
                    let _done = sys::cuCtxSynchronize();
                    if !self.pool.0.is_null() {
                        let _trimmed = sys::cuMemPoolTrimTo(self.pool.0, 0);
                    }
                }
                for event in self.events.drain() {
                    // SAFETY: nobody refers to the event, which is destroyed once.
                    let _destroyed = unsafe { sys::cuEventDestroy_v2(event.0) };
                }
                self.module = None;
            }
            // Unloading would mean the thread's context, which is another one.
            Err(_) => std::mem::forget(self.module.take()),
        }
        // SAFETY: streams, events and memory hold the context, so there are none left.
        let _released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
