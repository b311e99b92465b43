//! Products of matrices by cuBLAS, with one handle per worker.

use std::sync::PoisonError;

use cudarc::cublas::sys::{self, cublasHandle_t, cublasMath_t};
use smallvec::smallvec;

use super::blas_lt::{BlasLt, WORKSPACE};
use super::entry::Pointer;
use super::mixed::Mixed;
use super::product::{Added, Product, form};
use super::raw_handle::RawHandle;
use super::status::Status;
use super::stream::Stream;
use crate::{DType, Result};

#[cfg(feature = "link-cublas")]
use super::linked::sgemm;

/// A handle of the library, bound to a stream.
pub(super) struct Blas {
    raw: RawHandle<cublasHandle_t>,
    workspace: u64,
    /// For products that something is added to; none where that library is missing.
    lt: Option<BlasLt>,
    tf32: bool,
    /// The mode of the last product.
    mode: Option<cublasMath_t>,
}

impl Blas {
    /// A handle for products on `stream`: in true single precision, or with factors rounded to TF32.
    pub fn new(stream: &Stream, tf32: bool) -> Result<Self> {
        stream.context().bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the stream's context is the thread's; the call writes one name.
        unsafe { sys::cublasCreate_v2(&mut raw) }.check("cublasCreate_v2")?;
        let mut blas = Self {
            raw: RawHandle(raw),
            workspace: 0,
            lt: None,
            tf32,
            mode: None,
        };
        match blas.prepare(stream) {
            Ok(()) => Ok(blas),
            Err(error) => {
                blas.end(stream);
                Err(error)
            }
        }
    }

    /// Sets stream and workspace.
    fn prepare(&mut self, stream: &Stream) -> Result<()> {
        let raw = self.raw.0;
        self.lt = BlasLt::new(self.tf32)?;
        self.workspace = stream.alloc(WORKSPACE)?;
        // SAFETY: handle and stream are of the same context; the workspace is memory of this stream,
        // is as large as said, and is freed on it when the handle is gone.
        unsafe {
            sys::cublasSetStream_v2(raw, stream.raw().cast()).check("cublasSetStream_v2")?;
            sys::cublasSetWorkspace_v2(raw, self.workspace as *mut _, WORKSPACE)
                .check("cublasSetWorkspace_v2")
        }
    }

    /// Sets the precision for factors of a type: partial sums of bf16 results stay in single precision, and
    /// single precision is TF32 only where that was asked for.
    fn set_mode(&mut self, stored: DType) -> Result<()> {
        let mode = match stored == DType::F32 && self.tf32 {
            false => cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION,
            true => cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH,
        };
        if self.mode != Some(mode) {
            // SAFETY: the handle is alive.
            unsafe { sys::cublasSetMathMode(self.raw.0, mode) }.check("cublasSetMathMode")?;
            self.mode = Some(mode);
        }
        Ok(())
    }

    /// Ends the handle, after all products on its stream so far.
    pub fn end(&mut self, stream: &Stream) {
        // The libraries wait for the whole device as their handles end (cuBLAS's manual, cublasDestroy), which would break the capture of
        // another handle's stream.
        let capturing = stream.context().capturing.lock();
        let held = capturing.unwrap_or_else(PoisonError::into_inner);
        // A destructor cannot report an error.
        if stream.context().bind().is_ok() {
            if let Some(lt) = &mut self.lt {
                lt.end();
            }
            // SAFETY: the handle is alive and destroyed once.
            let _destroyed = unsafe { sys::cublasDestroy_v2(self.raw.0) };
        }
        drop(held);
        // SAFETY: only products on this stream used the workspace, and it is freed once.
        let _freed = unsafe { stream.free(std::mem::take(&mut self.workspace)) };
    }

    /// cuBLASLt, if that is there and has an algorithm for a product to which something is added, with the workspace
    /// of this stream.
    pub fn lt_for(
        &mut self,
        product: Product,
        added: &Added,
    ) -> Result<Option<(&mut BlasLt, u64)>> {
        let Some(lt) = &mut self.lt else {
            return Ok(None);
        };
        Ok(lt.has(product, added)?.then_some((lt, self.workspace)))
    }

    /// Computes on the handle's stream, whose context is the thread's.
    ///
    /// # Safety
    /// The stream may read a and b and write c, which are as large as the product says; none of its
    /// extents is zero.
    pub unsafe fn run(&mut self, product: Product, [a, b, c]: [Pointer; 3]) -> Result<()> {
        let on_tensor_cores = product.stored == DType::BF16 || self.tf32;
        let parts = match on_tensor_cores {
            true => product.parts(),
            false => smallvec![(product, [0; 3])],
        };
        let bytes = [product.stored, product.stored, product.result].map(DType::bytes);
        parts.into_iter().try_for_each(|(part, places)| {
            let at = |place: usize, start: Pointer| {
                Pointer(start.0 + (places[place] * bytes[place]) as u64)
            };
            // SAFETY: the caller vouches for the whole, of which this is a part.
            unsafe { self.run_part(part, [at(0, a), at(1, b), at(2, c)]) }
        })
    }

    /// [`run`](Self::run) by one call.
    ///
    /// # Safety
    /// As there.
    unsafe fn run_part(&mut self, product: Product, [a, b, c]: [Pointer; 3]) -> Result<()> {
        let Product {
            m,
            n,
            k,
            a_transposed,
            b_transposed,
            accumulate,
            items,
            stored,
            result,
            ..
        } = product;
        self.set_mode(stored)?;
        // The functions with 64-bit extents: a product of more than 2³¹ elements, as logits may be, is not
        // left to those that count in 32 bits.
        let int = |extent: usize| extent as i64;
        let [a_stride, b_stride, c_stride] = product.row_strides();
        let widths = [b_stride, a_stride, c_stride].map(int);
        // Elements from item to item.
        let steps = [
            b_stride * if b_transposed { n } else { k },
            a_stride * if a_transposed { k } else { m },
            c_stride * m,
        ];
        let old = if accumulate { 1.0 } else { 0.0 };
        let sizes = [int(n), int(m), int(k)];
        let transposed = [b_transposed, a_transposed];
        if (stored, result) != (DType::F32, DType::F32) {
            let mixed = Mixed {
                transposed,
                sizes,
                widths,
                strides: steps.map(int),
                items: int(items),
                types: [stored, result],
                old,
            };
            // SAFETY: as here.
            return unsafe { mixed.run(self.raw.0, [b, a], c) };
        }
        let (b, a, c) = (b.0 as *const f32, a.0 as *const f32, c.0 as *mut f32);
        // The library counts by columns, so that it sees every matrix transposed: cᵀ = bᵀ·aᵀ.
        if items == 1 || cfg!(feature = "link-cublas") {
            return (0..items).try_for_each(|item| {
                let (b, a) = (
                    b.wrapping_add(item * steps[0]),
                    a.wrapping_add(item * steps[1]),
                );
                let c = c.wrapping_add(item * steps[2]);
                // SAFETY: the caller vouches for the matrices, which lie one after the other.
                unsafe {
                    sgemm(
                        self.raw.0,
                        transposed,
                        sizes,
                        (b, widths[0]),
                        (a, widths[1]),
                        old,
                        (c, widths[2]),
                    )
                }
            });
        }
        let [b_form, a_form] = transposed.map(form);
        let one = 1.0;
        // SAFETY: as above.
        unsafe {
            sys::cublasSgemmStridedBatched_64(
                self.raw.0,
                b_form,
                a_form,
                sizes[0],
                sizes[1],
                sizes[2],
                &one,
                b,
                widths[0],
                int(steps[0]),
                a,
                widths[1],
                int(steps[1]),
                &old,
                c,
                widths[2],
                int(steps[2]),
                int(items),
            )
        }
        .check("cublasSgemmStridedBatched_64")
    }
}

/// `cublasSgemm_v2`, with the factors 1 and `old`.
///
/// # Safety
/// As that function says: the handle is alive, and its stream may read the first two matrices and write
/// the third, which are as large as the sizes say.
#[cfg(not(feature = "link-cublas"))]
unsafe fn sgemm(
    handle: cublasHandle_t,
    transposed: [bool; 2],
    sizes: [i64; 3],
    (left, left_width): (*const f32, i64),
    (right, right_width): (*const f32, i64),
    old: f32,
    (to, width): (*mut f32, i64),
) -> Result<()> {
    let ([left_form, right_form], one) = (transposed.map(form), 1.0);
    // SAFETY: the caller vouches for all but the factors, which outlive the call.
    unsafe {
        sys::cublasSgemm_v2_64(
            handle,
            left_form,
            right_form,
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
    }
    .check("cublasSgemm_v2_64")
}
