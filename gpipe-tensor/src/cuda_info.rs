//! The CUDA libraries and devices of this machine.

use crate::DeviceId;

/// The libraries and devices of CUDA that this process can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaInfo {
    /// The newest CUDA version that the driver supports, such as `13.0`.
    pub driver: String,
    /// The version of cuBLAS.
    pub cublas: String,
    /// The version of NVRTC, the compiler.
    pub nvrtc: String,
    /// The devices, by ordinal.
    pub devices: Vec<CudaDevice>,
}

/// A CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// Its name, such as `cuda:0`.
    pub id: DeviceId,
    /// The product name.
    pub name: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// The compute capability (major, minor), for which kernels are compiled.
    pub capability: (u32, u32),
    /// Devices whose memory it accesses directly (peer access).
    pub peers: Vec<DeviceId>,
}

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
