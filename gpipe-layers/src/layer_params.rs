//! The parameters of a layer, all together.

use gpipe_tensor::{DType, Device};

use crate::Result;
use crate::layer::Layer;
use crate::param::Param;

/// Visits the parameters of a layer with a closure that may fail; the first error ends the visit.
///
/// # Errors
/// That of the closure.
pub fn try_params(
    layer: &mut dyn Layer,
    mut visit: impl FnMut(&mut Param) -> Result<()>,
) -> Result<()> {
    let mut result = Ok(());
    layer.params(&mut |param| {
        if result.is_ok() {
            result = visit(param);
        }
    });
    result
}

/// Lets a layer compute with values of this type, which its parameters are made of from now on.
pub fn compute_in(layer: &mut dyn Layer, dtype: DType) {
    layer.params(&mut |param| param.dtype = dtype);
}

/// Freezes the parameters of a layer that `which` names: before they are made.
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
