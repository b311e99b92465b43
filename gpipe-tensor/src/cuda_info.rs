//! The CUDA libraries and devices of this machine.

use crate::device_id::DeviceId;

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
#[non_exhaustive]
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
