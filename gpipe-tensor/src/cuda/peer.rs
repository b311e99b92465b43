//! Access of devices to each other's memory, and a trial of it: whether what one device writes to the memory of another is there afterwards.
//!
//! Some drivers drop writes into a pool that peer access was enabled for, and report success (NVIDIA bug
//! 6098762). A pattern is copied once for each pair of devices; where it does not arrive, copies are
//! staged through the host.

use std::ffi::c_void;
use std::sync::PoisonError;

use cudarc::driver::sys::{
    self, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType,
    CUresult,
};

use super::context::Context;
use super::probe;
use super::status::Status;
use crate::Result;

/// Bytes of the pattern.
const BYTES: usize = 4096;

impl Context {
    /// Whether copies to the memory of `to` reach it directly; tried once for each pair of devices. Where
    /// they do not, they are staged through the host.
    pub(super) fn reaches(&self, to: &Self) -> Result<bool> {
        if self.is_on_paper() {
            return Ok(true);
        }
        let mut writers = to.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&arrives) = writers.get(&self.ordinal) {
            return Ok(arrives);
        }
        let arrives = probe::reaches(self.device, to.device)?
            && self.enable(to).is_ok()
            && arrives(self, to).unwrap_or(false);
        writers.insert(self.ordinal, arrives);
        Ok(arrives)
    }

    /// Enables this device's access to the memory of another one and to its pool.
    fn enable(&self, to: &Self) -> Result<()> {
        self.bind()?;
        // SAFETY: both contexts are retained, and this one is the thread's.
        match unsafe { sys::cuCtxEnablePeerAccess(to.raw(), 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            status => status.check("cuCtxEnablePeerAccess")?,
        }
        let access = CUmemAccessDesc {
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: self.device,
            },
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the call reads one description, and the pool is that of an open context.
        unsafe { sys::cuMemPoolSetAccess(to.pool(), &access, 1) }.check("cuMemPoolSetAccess")
    }
}

/// Whether a pattern that is copied from a device to another one arrives.
///
/// # Errors
/// Those of the calls.
fn arrives(from: &Context, to: &Context) -> Result<bool> {
    let pattern: [u8; BYTES] = std::array::from_fn(|i| (i * 7 + i / 251 + 1) as u8);
    let target = Piece::new(to)?;
    target.write(&[0; BYTES])?;
    // Read back, so that the zeros are there before the other device writes.
    target.read()?;
    let source = Piece::new(from)?;
    source.write(&pattern)?;
    // SAFETY: both contexts are retained, and both pieces have as many bytes; the default stream is that of
    // the thread's context, which is `from`.
    unsafe {
        sys::cuMemcpyPeerAsync(
            target.at,
            to.raw(),
            source.at,
            from.raw(),
            BYTES,
            std::ptr::null_mut(),
        )
    }
    .check("cuMemcpyPeerAsync")?;
    // Behind the copy in its stream, and waited for.
    source.read()?;
    Ok(target.read()? == pattern)
}

/// Memory of a device's pool, used on the default stream of its context.
struct Piece<'a> {
    at: CUdeviceptr,
    context: &'a Context,
}

impl<'a> Piece<'a> {
    fn new(context: &'a Context) -> Result<Self> {
        context.bind()?;
        let mut at = 0;
        let stream = std::ptr::null_mut();
        // SAFETY: the pool is that of the thread's context; the call writes one address.
        unsafe { sys::cuMemAllocFromPoolAsync(&mut at, BYTES, context.pool(), stream) }
            .check("cuMemAllocFromPoolAsync")?;
        Ok(Self { at, context })
    }

    fn write(&self, bytes: &[u8; BYTES]) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both have as many bytes; those of the host are taken before the call returns.
        unsafe { sys::cuMemcpyHtoD_v2(self.at, bytes.as_ptr().cast(), BYTES) }
            .check("cuMemcpyHtoD_v2")
    }

    /// The bytes after all work of the stream.
    fn read(&self) -> Result<[u8; BYTES]> {
        self.context.bind()?;
        let mut bytes = [0; BYTES];
        let to: *mut c_void = bytes.as_mut_ptr().cast();
        // SAFETY: both have as many bytes; they are there when the call returns.
        unsafe { sys::cuMemcpyDtoH_v2(to, self.at, BYTES) }.check("cuMemcpyDtoH_v2")?;
        Ok(bytes)
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        // A destructor cannot report an error.
        if self.context.bind().is_ok() {
            // SAFETY: the memory was allocated on this stream, which has read it last, and is freed once.
            let _freed = unsafe { sys::cuMemFreeAsync(self.at, std::ptr::null_mut()) };
        }
    }
}
