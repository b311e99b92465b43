#![doc = include_str!("../README.md")]

mod device;
mod dtype;
mod error;
mod host;
pub mod ops;
mod shape;
mod tensor;

pub use device::{Device, DeviceId};
pub use dtype::DType;
pub use error::{Error, Result};
pub use host::{Busy, Host};
pub use shape::Shape;
pub use tensor::Tensor;

/// What crosses a stage boundary: one tensor, or a few.
pub type Tensors = smallvec::SmallVec<[Tensor; 2]>;
