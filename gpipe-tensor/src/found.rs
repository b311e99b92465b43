//! What of CUDA there is on this machine, for those who choose devices.

use crate::DeviceId;

/// The libraries and devices of CUDA that this process can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCuda {
    /// The newest CUDA that the driver knows, such as `13.0`.
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
    /// What `--devices` calls it.
    pub id: DeviceId,
    /// What its maker calls it.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Its compute capability, such as 9 and 0: what kernels are compiled for.
    pub capability: (u32, u32),
    /// The devices whose memory it reaches without the host.
    pub peers: Vec<DeviceId>,
}

/// Looks for the driver, cuBLAS, NVRTC and the devices. Nothing of CUDA is touched before it.
///
/// # Errors
/// The first part that is missing, and the mend.
#[cfg(feature = "cuda")]
pub fn find_cuda() -> Result<FoundCuda, String> {
    crate::cuda::probe::find()
}

/// Says that this build knows nothing of CUDA.
///
/// # Errors
/// Always, with the mend.
#[cfg(not(feature = "cuda"))]
pub fn find_cuda() -> Result<FoundCuda, String> {
    Err(NO_SUPPORT.into())
}

/// Why there is no CUDA device, and the mend.
#[cfg(not(feature = "cuda"))]
pub(crate) const NO_SUPPORT: &str =
    "this build has no CUDA support: build with `--features cuda`, or use --devices cpu";
