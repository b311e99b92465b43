//! The kernel of the crate `gemm` for a level of instructions.

use gemm::Parallelism;
#[cfg(target_arch = "x86_64")]
use gemm_common::gemm::gemm_basic_generic;
#[cfg(target_arch = "x86_64")]
use gemm_common::simd::{MixedSimd, V3};
#[cfg(target_arch = "x86_64")]
use gemm_f32::microkernel::fma::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};

use crate::instruction_set::InstructionSet;

/// The product of the crate `gemm`.
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
    gemm::gemm::<f32>
}

/// What the crate itself chooses on processors without AVX-512, for a result in rows: as the crate does, it
/// computes the transpose, because the kernel writes vectors to a column.
///
/// # Safety
/// As that of the crate's own; the processor has AVX2 and FMA, or this panics.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::too_many_arguments, reason = "those of the crate `gemm`")]
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
            n,
            m,
            k,
            dst,
            dst_rs,
            dst_cs,
            read_dst,
            rhs,
            rhs_rs,
            rhs_cs,
            lhs,
            lhs_rs,
            lhs_cs,
            alpha,
            beta,
            conj_dst,
            conj_rhs,
            conj_lhs,
            |a, b, c| a * b + c,
            &UKR,
            &H_UKR,
            false,
            parallelism,
        );
    }
}
