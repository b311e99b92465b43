#![doc = include_str!("../README.md")]
#![warn(clippy::too_many_arguments)]

mod box_muller;
#[cfg(any(test, feature = "cuda"))]
mod cuda;
mod cuda_info;
mod device;
mod device_id;
mod dtype;
mod error;
mod find_cuda;
mod floats;
mod fork_join;
mod graph_counts;
mod helpers;
mod host;
#[cfg(all(target_os = "linux", not(miri)))]
mod huge_pages;
mod initial;
mod instruction_set;
mod kernel_cache;
mod known_gpu;
mod launch_trace;
mod math;
#[cfg(feature = "cuda")]
mod nccl_channel;
pub mod ops;
pub mod parallel;
pub mod philox;
#[cfg(all(target_os = "linux", not(miri)))]
mod placement;
mod pool;
mod precision;
pub mod safetensors;
mod shape;
mod simd;
mod tensor;
#[cfg(test)]
mod testing;
mod thread_budget;

#[cfg(feature = "cuda")]
pub use cuda::{Nccl, UNIQUE_ID_BYTES};
pub use cuda_info::{CudaDevice, CudaInfo};
pub use device::{Device, DeviceEvent};
pub use device_id::DeviceId;
pub use dtype::DType;
pub use error::{Error, Result};
pub use find_cuda::find_cuda;
pub use graph_counts::GraphCounts;
pub use host::Host;
pub use initial::{init_normal, init_uniform};
pub use instruction_set::InstructionSet;
pub use kernel_cache::KernelCache;
pub use known_gpu::{KNOWN_GPUS, KnownGpu};
pub use launch_trace::{Arithmetic, LaunchTrace, TracedLaunch};
#[cfg(feature = "cuda")]
pub use nccl_channel::{ChannelEnd, NcclChannel};
pub use precision::Precision;
pub use shape::Shape;
pub use tensor::Tensor;
pub use thread_budget::{CpuReservation, CpuSlot};

/// For tests alone: a host with GPUs that are emulated, as C++ for one shared library. See GPU.md. The C++
/// around the kernels is in the repository, not in the published package: tests pass it in.
#[cfg(feature = "emulated")]
pub mod emulated {
    pub use crate::cuda::text::{host as source, kernels};
}

/// What crosses a stage boundary: one tensor, or a few.
pub type Tensors = smallvec::SmallVec<[Tensor; 2]>;
