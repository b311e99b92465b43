//! cuBLAS's product in single precision, linked at build time, for hosts where a program may not load
//! libraries at run time.
//!
//! Handles are still made by the library that is loaded: the two have to be the same file. The status
//! is an enumeration of Rust in these bindings, which knows no code that came later than 2016.

use std::ffi::c_int;

use cublas_sys as sys;
use cudarc::cublas::sys::cublasHandle_t;

use crate::{Error, Result};

/// `cublasSgemm_v2`, with the factors 1 and `old`.
///
/// # Safety
/// As that function says: the handle is alive, and its stream may read the first two matrices and write
/// the third, which are as large as the sizes say.
pub(super) unsafe fn sgemm(
    handle: cublasHandle_t,
    transposed: [bool; 2],
    sizes: [i64; 3],
    (left, left_width): (*const f32, i64),
    (right, right_width): (*const f32, i64),
    old: f32,
    (to, width): (*mut f32, i64),
) -> Result<()> {
    let form = |transposed| match transposed {
        false => sys::cublasOperation_t::CUBLAS_OP_N,
        true => sys::cublasOperation_t::CUBLAS_OP_T,
    };
    let int = |extent: i64| {
        c_int::try_from(extent).map_err(|_| Error::Argument {
            op: "matmul",
            message: format!("the linked cuBLAS counts to 2³¹ − 1, but an extent is {extent}"),
        })
    };
    let one = 1.0;
    // SAFETY: the caller vouches for all but the factors, which outlive the call.
    let status = unsafe {
        sys::cublasSgemm_v2(
            handle.cast(),
            form(transposed[0]),
            form(transposed[1]),
            int(sizes[0])?,
            int(sizes[1])?,
            int(sizes[2])?,
            &one,
            left,
            int(left_width)?,
            right,
            int(right_width)?,
            &old,
            to,
            int(width)?,
        )
    };
    match status as c_int {
        0 => Ok(()),
        status => Err(Error::Cuda {
            call: "cublasSgemm_v2 (linked)",
            message: format!("status {status}"),
        }),
    }
}
