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
    sizes: [c_int; 3],
    (left, left_width): (*const f32, c_int),
    (right, right_width): (*const f32, c_int),
    old: f32,
    (to, width): (*mut f32, c_int),
) -> Result<()> {
    let form = |transposed| match transposed {
        false => sys::cublasOperation_t::CUBLAS_OP_N,
        true => sys::cublasOperation_t::CUBLAS_OP_T,
    };
    let one = 1.0;
    // SAFETY: the caller vouches for all but the factors, which outlive the call.
    let status = unsafe {
        sys::cublasSgemm_v2(
            handle.cast(),
            form(transposed[0]),
            form(transposed[1]),
            sizes[0],
            sizes[1],
            sizes[2],
            &one,
            left,
            left_width,
            right,
            right_width,
            &old,
            to,
            width,
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
