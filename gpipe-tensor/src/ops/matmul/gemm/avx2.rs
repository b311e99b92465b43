//! The kernel that the crate `gemm` chooses on processors without AVX-512.

use gemm::Parallelism;
use gemm_common::gemm::gemm_basic_generic;
use gemm_common::simd::{MixedSimd, V3};
use gemm_f32::microkernel::fma::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};

use super::Kernel;

/// Floats in a vector.
const N: usize = 8;

/// The kernel, if the processor has AVX2 and FMA.
pub fn kernel() -> Option<Kernel> {
    <V3 as MixedSimd<f32, f32, f32, f32>>::try_new().map(|_| product as Kernel)
}

/// [`gemm_basic_generic`] with this kernel.
///
/// # Safety
/// As that of the crate's own; the processor has AVX2 and FMA, or this panics.
#[expect(clippy::too_many_arguments, reason = "those of the crate `gemm`")]
unsafe fn product(
    m: usize,
    n: usize,
    k: usize,
    dst: *mut f32,
    dst_cs: isize,
    dst_rs: isize,
    read_dst: bool,
    lhs: *const f32,
    lhs_cs: isize,
    lhs_rs: isize,
    rhs: *const f32,
    rhs_cs: isize,
    rhs_rs: isize,
    alpha: f32,
    beta: f32,
    conj_dst: bool,
    conj_lhs: bool,
    conj_rhs: bool,
    parallelism: Parallelism,
) {
    let simd = <V3 as MixedSimd<f32, f32, f32, f32>>::try_new();
    // SAFETY: the caller's promise; the kernels are those of the instructions that were found.
    unsafe {
        gemm_basic_generic::<_, f32, N, { MR_DIV_N * N }, NR, MR_DIV_N, H_M, H_N>(
            simd.expect("AVX2 and FMA were found"),
            m,
            n,
            k,
            dst,
            dst_cs,
            dst_rs,
            read_dst,
            lhs,
            lhs_cs,
            lhs_rs,
            rhs,
            rhs_cs,
            rhs_rs,
            alpha,
            beta,
            conj_dst,
            conj_lhs,
            conj_rhs,
            |a, b, c| a * b + c,
            &UKR,
            &H_UKR,
            false,
            parallelism,
        );
    }
}
