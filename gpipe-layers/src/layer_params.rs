//! Operations on all parameters of a layer.

use gpipe_tensor::{DType, Device};

use crate::Result;
use crate::layer::Layer;
use crate::param::{Kind, Param};

/// Visits the parameters of a layer with a closure that may fail; the first error, of any type, ends the visit.
///
/// # Errors
/// That of the closure.
pub fn try_params<E>(
    layer: &mut dyn Layer,
    mut visit: impl FnMut(&mut Param) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut result = Ok(());
    layer.params(&mut |param| {
        if result.is_ok() {
            result = visit(param);
        }
    });
    result
}

/// Sets the element type of a layer's parameters, which it computes with; before they are made.
/// Statistics keep single precision.
pub fn compute_in(layer: &mut dyn Layer, dtype: DType) {
    layer.params(&mut |param| {
        if param.kind != Kind::Statistic {
            param.dtype = dtype;
        }
    });
}

/// Says that a layer's parameters live on a GPU whose products round their factors to TF32
/// (`gpipe_tensor::Host::with_tf32`); before they are made. The result of a [`Head`](crate::layers::Head) then lies in
/// memory as tensor cores read it.
pub fn round_to_tf32(layer: &mut dyn Layer) {
    layer.params(&mut |param| param.tf32 = true);
}

/// Freezes the parameters of a layer for which `which` returns true; before they are made.
pub fn freeze(layer: &mut dyn Layer, which: impl Fn(&Param) -> bool) {
    layer.params(&mut |param| param.frozen |= which(param));
}

/// Makes every parameter of a layer ([`Param::make`]).
///
/// # Errors
/// If there is no room for them.
pub fn make(layer: &mut dyn Layer, device: &Device, seed: u64) -> Result<()> {
    try_params(layer, |param| param.make(device, seed))
}
