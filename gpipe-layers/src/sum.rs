//! The sum of two tensors in the buffer of one of them.

use gpipe_tensor::{Result, Tensor, ops};

/// a + b, in the buffer of `a` if nothing else holds it.
pub(crate) fn sum(mut a: Tensor, b: &Tensor) -> Result<Tensor> {
    if !a.is_unique() {
        return ops::add(&a, b);
    }
    ops::add_assign(&mut a, b)?;
    Ok(a)
}
