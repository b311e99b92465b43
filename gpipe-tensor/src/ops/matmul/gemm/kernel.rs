//! The kernel of the crate `gemm-f32` for a level of instructions. The crate `gemm` itself would add kernels of types
//! that nothing here multiplies, and takes as long to build as all other products together.

use gemm_common::Parallelism;
#[cfg(target_arch = "x86_64")]
use gemm_common::gemm::gemm_basic_generic;
#[cfg(target_arch = "x86_64")]
use gemm_common::simd::{MixedSimd, V3};
#[cfg(target_arch = "x86_64")]
use gemm_f32::microkernel::fma::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};

use crate::instruction_set::InstructionSet;

/// A product whose result has its columns in one piece: the kernels write vectors to a column. A result in rows is
/// that of the transposed operands, the right one first.
// SAFETY: the type of a function; its calls say why they are sound.
pub type Kernel = unsafe fn(
    usize,
    usize,
    usize,
    *mut f32,
    isize,
    isize,
    bool,
    *const f32,
    isize,
    isize,
    *const f32,
    isize,
    isize,
    f32,
    f32,
    bool,
    bool,
    bool,
    Parallelism,
);

/// The kernel for the most capable of these instructions that the processor has.
pub fn kernel(instructions: InstructionSet) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if instructions == InstructionSet::Avx2
        && <V3 as MixedSimd<f32, f32, f32, f32>>::try_new().is_some()
    {
        return with_avx2;
    }
    let _ = instructions;
    gemm_f32::gemm::f32::get_gemm_fn()
}

/// What the crate itself chooses on processors without AVX-512.
///
/// # Safety
/// As that of the crate's own; the processor has AVX2 and FMA, or this panics.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::too_many_arguments, reason = "those of the crate")]
unsafe fn with_avx2(
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
    /// Floats in a vector.
    const N: usize = 8;
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
