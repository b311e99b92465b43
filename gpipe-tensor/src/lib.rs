#![doc = include_str!("../README.md")]

#[cfg(any(test, feature = "cuda"))]
mod cuda;
mod device;
mod dtype;
mod error;
mod floats;
mod found;
mod host;
mod initial;
#[cfg(feature = "cuda")]
mod kernel_cache;
mod lent;
mod math;
pub mod ops;
mod parallel;
pub mod philox;
mod pool;
pub mod safetensors;
mod shape;
mod simd;
mod tensor;
#[cfg(test)]
mod testing;
mod turns;

pub use device::{Device, DeviceId, Moment};
pub use dtype::DType;
pub use error::{Error, Result};
pub use found::{CudaDevice, FoundCuda, find_cuda};
pub use host::{Host, Precision};
pub use initial::{init_normal, init_uniform};
#[cfg(feature = "cuda")]
pub use kernel_cache::KernelCache;
pub use shape::Shape;
pub use tensor::Tensor;
pub use turns::Busy;

/// For tests alone: a host with GPUs that are emulated, as C++ for one shared library. See GPU.md.
#[cfg(feature = "emulated")]
pub mod emulated {
    pub use crate::cuda::text::{host as source, kernels};
}

/// What crosses a stage boundary: one tensor, or a few.
pub type Tensors = smallvec::SmallVec<[Tensor; 2]>;
