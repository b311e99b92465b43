//! Opaque handles of the driver and the libraries.

use std::ffi::c_void;

use cudarc::cublas::sys::cublasHandle_t;
use cudarc::cublaslt::sys::{cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t};
use cudarc::driver::sys::{
    CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmemoryPool, CUmodule,
    CUstream,
};

use super::nccl::RawComm;

/// An opaque handle that the driver or a library gave: this process never dereferences it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHandle<T>(pub T);

macro_rules! shared_by_threads {
    ($($handle:ty),*) => {$(
        // SAFETY: the driver's functions may be called from any thread, also at once, with any handle
        // that it gave; what a handle stands for is freed once, by its owner.
        unsafe impl Send for RawHandle<$handle> {}
        // SAFETY: as above.
        unsafe impl Sync for RawHandle<$handle> {}
    )*};
}

shared_by_threads!(
    CUcontext,
    CUevent,
    CUfunction,
    CUmemoryPool,
    CUmodule,
    CUstream
);

// SAFETY: a cuBLAS handle may be used by any thread, one at a time: hence no `Sync`.
unsafe impl Send for RawHandle<cublasHandle_t> {}

// SAFETY: so may one of cuBLASLt, which is bound to no thread.
unsafe impl Send for RawHandle<cublasLtHandle_t> {}
// SAFETY: descriptors are memory of the process, with one owner.
unsafe impl Send for RawHandle<cublasLtMatmulDesc_t> {}
// SAFETY: as above.
unsafe impl Send for RawHandle<cublasLtMatrixLayout_t> {}

// SAFETY: graphs may be used by any thread, one at a time, too.
unsafe impl Send for RawHandle<CUgraph> {}

// SAFETY: as above.
unsafe impl Send for RawHandle<CUgraphExec> {}

// SAFETY: a node is used with its graph alone.
unsafe impl Send for RawHandle<CUgraphNode> {}

// SAFETY: so may a communicator of NCCL, whose owner holds a lock.
unsafe impl Send for RawHandle<RawComm> {}

// SAFETY: pinned memory is the process's; its one owner reads and writes it.
unsafe impl Send for RawHandle<*mut c_void> {}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::testing::assert_not_impl;

    // Compiles for the listed handles alone.
    assert_not_impl!(RawHandle<*mut f32>: Send);
    assert_not_impl!(RawHandle<*mut f32>: Sync);
    assert_not_impl!(RawHandle<Rc<u8>>: Send);
    assert_not_impl!(RawHandle<cublasHandle_t>: Sync);
    assert_not_impl!(RawHandle<cublasLtHandle_t>: Sync);
    assert_not_impl!(RawHandle<cublasLtMatmulDesc_t>: Sync);
    assert_not_impl!(RawHandle<*mut c_void>: Sync);
    assert_not_impl!(RawHandle<CUgraphExec>: Sync);
}
