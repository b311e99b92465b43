//! Products of matrices with factors of lower precision and sums of single precision.

use std::ffi::c_void;

use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasHandle_t, cudaDataType,
};

use super::entry::Pointer;
use super::product::form;
use super::status::Status;
use crate::{DType, Error, Result};

/// c = left·right + `old`·c, item after item, as the library sees it: column after column.
pub(super) struct Mixed {
    /// Whether left and right are read transposed.
    pub transposed: [bool; 2],
    /// Rows and columns of c, and what is summed over.
    pub sizes: [i64; 3],
    /// Elements from column to column of left, right and c.
    pub widths: [i64; 3],
    /// Elements from item to item of left, right and c.
    pub strides: [i64; 3],
    /// How many products.
    pub items: i64,
    /// The type of the factors, and that of c.
    pub types: [DType; 2],
    /// Factor of the old c, which is not read if this is 0.
    pub old: f32,
}

impl Mixed {
    /// Computes on the handle's stream, whose context is the thread's.
    ///
    /// # Safety
    /// The handle is alive, and its stream may read the factors and write c, which are as large as is
    /// said here.
    pub unsafe fn run(
        &self,
        handle: cublasHandle_t,
        [left, right]: [Pointer; 2],
        c: Pointer,
    ) -> Result<()> {
        let [factors, result] = [data_type(self.types[0])?, data_type(self.types[1])?];
        let [left_form, right_form] = self.transposed.map(form);
        let ([rows, columns, inner], widths, strides) = (self.sizes, self.widths, self.strides);
        let one = 1.0_f32;
        let (one, old): (*const f32, *const f32) = (&one, &self.old);
        let (left, right) = (left.0 as *const c_void, right.0 as *const c_void);
        let c = c.0 as *mut c_void;
        let (compute, algorithm) = (
            cublasComputeType_t::CUBLAS_COMPUTE_32F,
            cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        );
        // A function of many products takes the strides of left, right and c too, and how many there
        // are.
        macro_rules! call {
            ($function:ident $(, $of_left:expr, $of_right:expr, $of_c:expr, $items:expr)?) => {
                // SAFETY: the caller vouches for all but the factors 1 and `old`, which outlive the call.
                unsafe {
                    sys::$function(
                        handle,
                        left_form,
                        right_form,
                        rows,
                        columns,
                        inner,
                        one.cast(),
                        left,
                        factors,
                        widths[0],
                        $($of_left,)?
                        right,
                        factors,
                        widths[1],
                        $($of_right,)?
                        old.cast(),
                        c,
                        result,
                        widths[2],
                        $($of_c, $items,)?
                        compute,
                        algorithm,
                    )
                }
                .check(stringify!($function))
            };
        }
        match self.items {
            1 => call!(cublasGemmEx_64),
            many => call!(
                cublasGemmStridedBatchedEx_64,
                strides[0],
                strides[1],
                strides[2],
                many
            ),
        }
    }
}

/// The library's name for a type.
fn data_type(dtype: DType) -> Result<cudaDataType> {
    match dtype {
        DType::F32 => Ok(cudaDataType::CUDA_R_32F),
        DType::BF16 => Ok(cudaDataType::CUDA_R_16BF),
        other => Err(Error::Argument {
            op: "matmul",
            message: format!("{other} matrices are not multiplied: use f32 or bf16"),
        }),
    }
}
