//! Status codes of the driver, cuBLAS and NVRTC as errors of this crate.

use std::ffi::CStr;
use std::fmt::Debug;

use cudarc::cublas::sys::cublasStatus_t;
use cudarc::cublaslt::sys::cublasStatus_t as LtStatus;
use cudarc::driver::sys::{self, CUresult};
use cudarc::nvrtc::sys::nvrtcResult;

use crate::{Error, Result};

/// A status code.
pub(crate) trait Status {
    /// `Ok` for success, else the error of `call`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    fn check(self, call: &'static str) -> Result<()>;
}

impl Status for CUresult {
    fn check(self, call: &'static str) -> Result<()> {
        match self {
            Self::CUDA_SUCCESS => Ok(()),
            status if is_lost(status) => Err(Error::GpuLost {
                call,
                message: described(status),
            }),
            status => Err(Error::Cuda {
                call,
                message: described(status),
            }),
        }
    }
}

/// Whether the process's context of the device is dead after this: every later call gives the error again,
/// in a new handle too.
fn is_lost(status: CUresult) -> bool {
    use CUresult::*;
    matches!(
        status,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_UNKNOWN
    )
}

/// The error of a library's call, unless its status is `success`.
fn unless_equal<S: PartialEq + Debug>(status: S, success: S, call: &'static str) -> Result<()> {
    match status == success {
        true => Ok(()),
        false => Err(Error::Cuda {
            call,
            message: format!("{status:?}"),
        }),
    }
}

impl Status for cublasStatus_t {
    fn check(self, call: &'static str) -> Result<()> {
        unless_equal(self, Self::CUBLAS_STATUS_SUCCESS, call)
    }
}

impl Status for LtStatus {
    fn check(self, call: &'static str) -> Result<()> {
        unless_equal(self, Self::CUBLAS_STATUS_SUCCESS, call)
    }
}

impl Status for nvrtcResult {
    fn check(self, call: &'static str) -> Result<()> {
        unless_equal(self, Self::NVRTC_SUCCESS, call)
    }
}

/// The driver's description of a status.
fn described(status: CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the function writes an address of a text that lives as long as the library, or null.
    let known = unsafe { sys::cuGetErrorString(status, &mut text) } == CUresult::CUDA_SUCCESS;
    if !known || text.is_null() {
        return format!("{status:?}");
    }
    // SAFETY: the driver's texts end in zeros and are never freed.
    let text = unsafe { CStr::from_ptr(text) };
    format!("{status:?}, {}", text.to_string_lossy())
}
