//! Sums of tensors in the buffers of one side.

use gpipe_tensor::{Result, Tensor, Tensors, ops};

/// a + b, in the buffer of `a` if nothing else holds it.
pub(crate) fn sum(mut a: Tensor, b: &Tensor) -> Result<Tensor> {
    if !a.is_unique() {
        return ops::add(&a, b);
    }
    ops::add_assign(&mut a, b)?;
    Ok(a)
}

/// The sum of each of these and `onto`.
pub(crate) fn sums(flow: Tensors, onto: &Tensor) -> Result<Tensors> {
    flow.into_iter().map(|a| sum(a, onto)).collect()
}
