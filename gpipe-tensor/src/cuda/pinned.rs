//! Page-locked memory of the host, for asynchronous copies.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CU_MEMHOSTALLOC_PORTABLE};

use super::context::Context;
use super::raw_handle::RawHandle;
use super::status::Status;
use crate::error::Result;

/// Page-locked memory; freed on drop.
pub(crate) struct Pinned {
    at: RawHandle<*mut c_void>,
    pub(super) bytes: usize,
    context: Arc<Context>,
}

impl Pinned {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        context.bind()?;
        let bytes = bytes.next_power_of_two().max(4096);
        let mut at = std::ptr::null_mut();
        // SAFETY: the context is the thread's; the call writes one address.
        unsafe { sys::cuMemHostAlloc(&mut at, bytes, CU_MEMHOSTALLOC_PORTABLE) }
            .check("cuMemHostAlloc")?;
        Ok(Self {
            at: RawHandle(at),
            bytes,
            context: context.clone(),
        })
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.at.0
    }

    /// Copies bytes to the beginning.
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes, "there is room for as many bytes");
        // SAFETY: the memory is large enough, exclusively owned, and not part of a pending copy.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.0.cast(), bytes.len()) }
    }

    /// Copies the first bytes out; the copy that wrote them must be done.
    pub fn read(&self, bytes: &mut [u8]) {
        assert!(bytes.len() <= self.bytes, "there are as many bytes");
        // SAFETY: as above; the memory was written by the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at.0.cast(), bytes.as_mut_ptr(), bytes.len());
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: the memory is freed once, and no copy of it is on its way.
            let _freed = unsafe { sys::cuMemFreeHost(self.at.0) };
        }
    }
}
