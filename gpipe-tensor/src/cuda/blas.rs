//! Products of matrices by cuBLAS, one handle a worker.

use std::ffi::c_int;

use cudarc::cublas::sys::{self, cublasHandle_t, cublasMath_t, cublasOperation_t};

use super::context::Name;
use super::entry::Pointer;
use super::status::Status;
use super::stream::Stream;
use crate::{Error, Result};

/// Bytes that products may use besides their operands: what NVIDIA advises for its largest devices.
/// Fixed, so that neither the choice of algorithms nor their bits depend on what is free.
const WORKSPACE: usize = 32 << 20;

/// A handle of the library, bound to a stream.
pub(super) struct Blas {
    raw: Name<cublasHandle_t>,
    workspace: u64,
}

/// Row-major matrices, item after item: c = a·b, or c += a·b.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    /// Rows of c.
    pub m: usize,
    /// Columns of c.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
    /// Whether a lies in memory as (k, m).
    pub a_transposed: bool,
    /// Whether b lies in memory as (n, k).
    pub b_transposed: bool,
    /// Whether c is added to.
    pub accumulate: bool,
    /// How many products.
    pub items: usize,
}

impl Blas {
    /// A handle for products on `stream`, in true single precision.
    pub fn new(stream: &Stream) -> Result<Self> {
        stream.context().bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream's context is the thread's; the call writes one name.
        unsafe { sys::cublasCreate_v2(&mut raw) }.check("cublasCreate_v2")?;
        let mut blas = Self {
            raw: Name(raw),
            workspace: 0,
        };
        blas.workspace = stream.alloc(WORKSPACE)?;
        // SAFETY: handle and stream are of the same context; the workspace is memory of this stream,
        // is as large as said, and is freed on it when the handle is gone.
        unsafe {
            sys::cublasSetStream_v2(raw, stream.raw().cast()).check("cublasSetStream_v2")?;
            sys::cublasSetWorkspace_v2(raw, blas.workspace as *mut _, WORKSPACE)
                .check("cublasSetWorkspace_v2")?;
            sys::cublasSetMathMode(raw, cublasMath_t::CUBLAS_DEFAULT_MATH)
                .check("cublasSetMathMode")?;
        }
        Ok(blas)
    }

    /// Ends the handle, after all products on its stream so far.
    pub fn end(&mut self, stream: &Stream) {
        // Nobody is left who could be told of an error.
        if stream.context().bind().is_ok() {
            // SAFETY: the handle is alive and destroyed once.
            let _destroyed = unsafe { sys::cublasDestroy_v2(self.raw.0) };
        }
        // SAFETY: products on this stream alone used the workspace, and nobody frees it again.
        let _freed = unsafe { stream.free(std::mem::take(&mut self.workspace)) };
    }

    /// Computes on the handle's stream, whose context is the thread's.
    ///
    /// # Safety
    /// The stream may read a and b and write c, which are as large as the product says; none of its
    /// extents is zero.
    pub unsafe fn run(&self, product: Product, a: Pointer, b: Pointer, c: Pointer) -> Result<()> {
        let Product {
            m,
            n,
            k,
            a_transposed,
            b_transposed,
            accumulate,
            items,
        } = product;
        let int = |extent: usize| {
            c_int::try_from(extent).map_err(|_| Error::Argument {
                op: "matmul",
                message: format!("cuBLAS counts to 2³¹ − 1, but an extent is {extent}"),
            })
        };
        let step = |rows: usize, columns: usize| (rows * columns) as i64;
        let operation = |transposed| match transposed {
            false => cublasOperation_t::CUBLAS_OP_N,
            true => cublasOperation_t::CUBLAS_OP_T,
        };
        let a_width = int(if a_transposed { m } else { k })?;
        let b_width = int(if b_transposed { k } else { n })?;
        let (one, old) = (1.0, if accumulate { 1.0 } else { 0.0 });
        let sizes = (int(n)?, int(m)?, int(k)?);
        let (b, a, c) = (b.0 as *const f32, a.0 as *const f32, c.0 as *mut f32);
        let (b_form, a_form) = (operation(b_transposed), operation(a_transposed));
        // The library counts by columns, so that it sees every matrix transposed: cᵀ = bᵀ·aᵀ.
        if items == 1 {
            // SAFETY: the caller vouches for the matrices; the factors outlive the call.
            return unsafe {
                sys::cublasSgemm_v2(
                    self.raw.0, b_form, a_form, sizes.0, sizes.1, sizes.2, &one, b, b_width, a,
                    a_width, &old, c, sizes.0,
                )
            }
            .check("cublasSgemm_v2");
        }
        // SAFETY: as above; the items lie one after the other.
        unsafe {
            sys::cublasSgemmStridedBatched(
                self.raw.0,
                b_form,
                a_form,
                sizes.0,
                sizes.1,
                sizes.2,
                &one,
                b,
                b_width,
                step(k, n),
                a,
                a_width,
                step(m, k),
                &old,
                c,
                sizes.0,
                step(m, n),
                int(items)?,
            )
        }
        .check("cublasSgemmStridedBatched")
    }
}
