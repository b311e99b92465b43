//! Operations in forward/gradient pairs.
//!
//! Every result is a function of the operands' shapes and values, never of the number of threads.
//! A result belongs to the handle of the first operand.

use crate::{Error, Result, Tensor};

mod adamw;
mod add;
mod matmul;
mod scale;
mod sgd;
mod sum;

pub use adamw::{AdamW, adamw};
pub use add::{add, add_assign};
pub use matmul::{Layout, batched_matmul, matmul, matmul_accumulate};
pub use scale::{scale, scale_assign};
pub use sgd::{Sgd, sgd};
pub use sum::{all_finite, max_abs, sum, sum_of_squares, sum_rows_accumulate};

/// An error unless both tensors have the same shape.
fn check_same_shape(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.shape() == b.shape() {
        return Ok(());
    }
    let expected = format!("tensors of the shape {}", a.shape());
    Err(Error::shape(op, expected, b.shape()))
}
