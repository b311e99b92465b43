//! The search for CUDA on this machine.

use crate::cuda_info::CudaInfo;

/// Looks for the driver, cuBLAS, NVRTC and the devices. No other function touches CUDA before this one.
///
/// # Errors
/// A message that names the first missing part and how to get it.
#[cfg(feature = "cuda")]
pub fn find_cuda() -> Result<CudaInfo, String> {
    crate::cuda::probe::find()
}

/// Reports that this build has no CUDA support.
///
/// # Errors
/// Always, with a message that says how to get a build with CUDA support.
#[cfg(not(feature = "cuda"))]
pub fn find_cuda() -> Result<CudaInfo, String> {
    Err(NO_SUPPORT.into())
}

/// Why there is no CUDA device, and how to get one.
#[cfg(not(feature = "cuda"))]
pub(crate) const NO_SUPPORT: &str =
    "this build has no CUDA support: build with `--features cuda`, or use --devices cpu";
