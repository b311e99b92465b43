//! CUDA kernels: their text, their entry points, and how each is launched.
//!
//! Every kernel is CUDA C++ beside its operation (`ops/*/kernel.cu`), written as a template over the
//! stored type. [`source::parts`] puts them together into translation units, and adds an entry point to one of these for
//! each line of the operations' tables ([`entry::entries!`]) and each type: `gelu_tanh_f32`,
//! `gelu_tanh_bf16`. A unit includes no header, so NVRTC compiles it where no toolkit is
//! installed, and a C++ compiler does with the few definitions of the tests' emulator.

#[cfg(feature = "cuda")]
mod arena;
#[cfg(feature = "cuda")]
mod asked;
#[cfg(feature = "cuda")]
mod blas;
#[cfg(feature = "cuda")]
mod blas_lt;
#[cfg(feature = "cuda")]
mod builtins;
#[cfg(feature = "cuda")]
mod compute;
#[cfg(test)]
mod conformance;
#[cfg(feature = "cuda")]
mod context;
#[cfg(test)]
mod cubin;
#[cfg(test)]
mod emulator;
pub(crate) mod entry;
#[cfg(feature = "cuda")]
mod event_pool;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod graph;
mod image;
#[cfg(feature = "link-cublas")]
mod linked;
#[cfg(feature = "cuda")]
mod memory;
#[cfg(feature = "cuda")]
mod mixed;
#[cfg(feature = "cuda")]
mod module;
#[cfg(feature = "cuda")]
mod nccl;
#[cfg(feature = "cuda")]
mod nccl_comm;
#[cfg(test)]
mod nvrtc;
#[cfg(test)]
mod occupancy;
#[cfg(feature = "cuda")]
mod peer;
#[cfg(feature = "cuda")]
mod pinned;
#[cfg(feature = "cuda")]
pub(crate) mod probe;
#[cfg(feature = "cuda")]
mod product;
#[cfg(feature = "cuda")]
mod raw_handle;
#[cfg(feature = "cuda")]
mod replays;
mod seal;
#[cfg(feature = "cuda")]
mod shortage;
mod source;
#[cfg(feature = "cuda")]
mod staging;
#[cfg(feature = "cuda")]
mod status;
#[cfg(feature = "cuda")]
mod stream;
#[cfg(any(test, feature = "cuda"))]
pub(crate) mod table;
#[cfg(any(test, feature = "emulated"))]
pub(crate) mod text;
#[cfg(feature = "cuda")]
mod trace;
#[cfg(feature = "cuda")]
mod transfer;

#[cfg(feature = "cuda")]
pub use nccl::{Nccl, UNIQUE_ID_BYTES};
#[cfg(feature = "cuda")]
pub(crate) use {
    gpu::Gpu,
    memory::Memory,
    nccl_comm::Comm,
    product::{Added, Product},
    stream::Event,
};
