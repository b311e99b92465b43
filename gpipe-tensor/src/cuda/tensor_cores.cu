// What a warp does with tensor cores: copies to shared memory beside other work, loads of matrices of 8 rows of 16
// bytes, products of 16 rows by 8 columns of 32 bytes of factors with sums in f32: of bf16 (PTX ISA, mma.m16n8k16) and
// of TF32, f32 with 11 bits of significand (mma.m16n8k8). Lanes count as there: g = lane / 4 is a row of the result,
// t = lane % 4 a pair of its columns.

#ifdef __CUDACC__

/// The address of shared memory that the instructions below take.
__device__ inline u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

/// Four matrices, whose rows of 16 bytes lie where each lane says: lanes 0 to 7 for the first, and so on.
/// Lane (g, t) gets the four bytes t of row g: two neighbours of bf16, or one f32.
__device__ inline void load_matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/// The same of bf16, transposed: lane (g, t) gets two neighbours of column g.
__device__ inline void load_transposed(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/// The f32 at an address of shared memory.
__device__ inline float load_shared(u32 at) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
    return value;
}

/// d += a · b, of factors in bf16.
__device__ inline void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// d += a · b, of factors in TF32.
__device__ inline void multiply_add_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The nearest number of TF32.
__device__ inline u32 round_to_tf32(float x) {
    u32 rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
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

// How elements are multiplied: their type, how many of them are the terms of one product, a left factor as products take it
// over and over, and the product.

/// Elements of bf16.
struct Bf16Factors {
    using Element = bf16;
    static constexpr u32 TERMS = 16;

    struct Left {
        u32 words[4];
        Left() = default;
        __device__ Left(const u32 (&a)[4]) : words{a[0], a[1], a[2], a[3]} {}
    };

    __device__ static void add_product(float (&d)[4], const Left& a, u32 b0, u32 b1) {
        multiply_add(d, a.words, b0, b1);
    }
};

/// Elements of f32, rounded to TF32.
struct Tf32Factors {
    using Element = float;
    static constexpr u32 TERMS = 8;

    __device__ static u32 rounded(u32 word) { return round_to_tf32(__uint_as_float(word)); }

    struct Left {
        u32 words[4];
        Left() = default;
        __device__ Left(const u32 (&a)[4]) : words{rounded(a[0]), rounded(a[1]), rounded(a[2]), rounded(a[3])} {}
    };

    __device__ static void add_product(float (&d)[4], const Left& a, u32 b0, u32 b1) {
        multiply_add_tf32(d, a.words, rounded(b0), rounded(b1));
    }
};

/// Elements of f32, each as a sum of two numbers of TF32, of which the larger ones make one product and each of them makes
/// one with the other smaller one (Ootomo and Yokota, arXiv:2203.03341). What is left out is below 2⁻²² of a product.
struct Tf32x3Factors {
    using Element = float;
    static constexpr u32 TERMS = 8;

    /// Both numbers of an element.
    struct Halves {
        u32 large, small;
        __device__ Halves(u32 word) {
            // Made where it is used: there are no registers for both numbers of what a loop uses over and over.
            asm volatile("" : "+r"(word));
            float x = __uint_as_float(word);
            large = round_to_tf32(x);
            small = round_to_tf32(x - __uint_as_float(large));
        }
    };

    struct Left {
        u32 large[4], small[4];
        Left() = default;
        __device__ Left(const u32 (&a)[4]) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                Halves halves(a[i]);
                large[i] = halves.large;
                small[i] = halves.small;
            }
        }
    };

    __device__ static void add_product(float (&d)[4], const Left& a, u32 b0, u32 b1) {
        Halves first(b0), second(b1);
        multiply_add_tf32(d, a.small, first.large, second.large);
        multiply_add_tf32(d, a.large, first.small, second.small);
        multiply_add_tf32(d, a.large, first.large, second.large);
    }
};
