//! Status codes of the driver, cuBLAS and NVRTC as errors of this crate.

use std::ffi::CStr;

use cudarc::cublas::sys::cublasStatus_t;
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
            status => Err(Error::Cuda {
                call,
                message: described(status),
            }),
        }
    }
}

impl Status for cublasStatus_t {
    fn check(self, call: &'static str) -> Result<()> {
        match self {
            Self::CUBLAS_STATUS_SUCCESS => Ok(()),
            status => Err(Error::Cuda {
                call,
                message: format!("{status:?}"),
            }),
        }
    }
}

impl Status for nvrtcResult {
    fn check(self, call: &'static str) -> Result<()> {
        match self {
            Self::NVRTC_SUCCESS => Ok(()),
            status => Err(Error::Cuda {
                call,
                message: format!("{status:?}"),
            }),
        }
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
