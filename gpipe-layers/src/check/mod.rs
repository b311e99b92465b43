//! Checks of the contract of a layer, for tests of custom layers: gradients, bytes and the split backward
//! pass.
//!
//! Each takes a layer whose parameters are made ([`make`](crate::make)), the context of a training
//! pass and the tensors that the layer takes, on a device that nothing else uses meanwhile. Afterwards,
//! the values of the parameters are unchanged and their gradients zero.
//!
//! ```
//! use gpipe_layers::layers::{Layout, Linear};
//! use gpipe_layers::{PassContext, check, make};
//! use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};
//!
//! let device = Host::new(1)?.device(DeviceId::Cpu)?;
//! let mut layer = Linear::new("scores", 3, 2, Layout::OutIn);
//! make(&mut layer, &device, 42)?;
//! let cx = PassContext::training(42, 0, 0..2);
//! let x = Tensors::from_iter([Tensor::from_f32(&device, [2, 3], [0.5, -1., 2., 1., 0.3, -0.7])?]);
//!
//! check::gradients(&mut layer, &cx, &x)?;
//! check::bytes(&mut layer, &cx, &x)?;
//! check::split(&mut layer, &cx, &x)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod gradients;
mod split;
mod tensors;

pub use bytes::bytes;
pub use gradients::{REFERENCE_TOLERANCE, Reference, TOLERANCE, gradients, gradients_of};
pub use split::split;
pub use tensors::{CheckError, Result};
