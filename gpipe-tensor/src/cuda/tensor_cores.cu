// What a warp does with tensor cores: copies to shared memory beside other work, loads of 8 × 8 matrices,
// products of 16 × 16 by 16 × 8 elements of bf16 with sums in f32 (PTX ISA, mma.m16n8k16). Lanes count
// as there: g = lane / 4 is a row of the result, t = lane % 4 a pair of its columns.

#ifdef __CUDACC__

/// The address of shared memory that the instructions below take.
__device__ inline u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

/// Four matrices, whose rows of 16 bytes lie where each lane says: lanes 0 to 7 for the first, and so on.
/// Lane (g, t) gets two neighbours of row g.
__device__ inline void load_matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/// The same, transposed: lane (g, t) gets two neighbours of column g.
__device__ inline void load_transposed(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/// d += a · b.
__device__ inline void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Begins to copy 16 bytes to shared memory, or 16 zeros.
__device__ inline void copy_16(u32 to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

/// Begins to copy 4 bytes to shared memory, or 4 zeros.
__device__ inline void copy_4(u32 to, const void* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}

/// Waits for all copies that this thread has begun.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#endif
