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

// What four warps do together on Hopper alone (compute capability 9.0; PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"):
// products of 64 rows, 16 of each warp, with a matrix in shared memory, which the device computes while the warps go on.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUP_PRODUCTS

/// The value of a warp's first lane: one that the compiler knows to be the same in all lanes.
__device__ inline u32 of_first_lane(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }

/// Makes what this thread's copies have brought, once they were waited for, known to products of warpgroups.
__device__ inline void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// What was done to registers before comes before the products that begin from here on.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// Makes the products that have begun a group, which can be waited for.
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits for all groups of products.
__device__ inline void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

/// Waits for all groups of products but the last one.
__device__ inline void wait_for_older_products() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }

/// Keeps the compiler from moving these results to other registers, or their uses to before this place.
template <u32 N>
__device__ inline void hold_results(float (&d)[N][4]) {
#pragma unroll
    for (u32 n = 0; n < N; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) asm volatile("" : "+f"(d[n][i])::"memory");
    }
}

#define FOUR(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])

/// Begins d += a · b, or d = a · b, of 16 terms in bf16 and 64 columns, which a descriptor of shared memory names: as their
/// rows, or, transposed, as they are.
template <bool TRANSPOSED>
__device__ inline void begin_product(float (&d)[8][4], const u32 (&a)[4], u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, add, 1, 1, %38;\n}"
        : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)add), "n"(TRANSPOSED ? 1 : 0)
        : "memory");
}

/// d += a · bᵀ, or d = a · bᵀ, of 64 rows of a and 64 of b in shared memory.
__device__ inline void begin_product(float (&d)[8][4], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, add, 1, 1, 0, 0;\n}"
        : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7)
        : "l"(a), "l"(b), "r"((u32)add)
        : "memory");
}

#undef FOUR
#endif

#endif

// How elements are multiplied: their type, how many of them are the terms of one product, a left factor as products take it
// over and over, and the product; whether warpgroups multiply.

/// Elements of bf16.
struct Bf16Factors {
    using Element = bf16;
    static constexpr u32 TERMS = 16;
    static constexpr bool BY_WARPGROUPS = false;

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
    static constexpr bool BY_WARPGROUPS = false;

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
    static constexpr bool BY_WARPGROUPS = false;

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

#ifdef WARPGROUP_PRODUCTS
/// Elements of bf16, multiplied by warpgroups.
struct WarpgroupBf16Factors : Bf16Factors {
    static constexpr bool BY_WARPGROUPS = true;
};

/// A matrix of shared memory as products of warpgroups take it, for `product_matrix`: rows of 128 bytes, eight after eight, whose
/// pieces of 16 bytes change places by the row's number, modulo eight. Rows begin at a multiple of 1024 bytes. A sixteenth of the
/// bytes to what is taken of it, within the first row or at every eighth one, may be added. All lanes give the same address.
__device__ inline u32 product_place(u32 at) {
    // A distance that only rows of other lengths have.
    constexpr u32 UNUSED = 1u << 16;
    return of_first_lane(at >> 4 | UNUSED);
}

/// The descriptor of 16 terms from a place on: 1024 bytes from eight rows to the next ones, pieces changed by 128 bytes.
__device__ inline u64 product_matrix(u32 place) {
    constexpr u32 EIGHT_ROWS = 1024 >> 4, BY_128_BYTES = 1u << 30;
    return (u64)(EIGHT_ROWS | BY_128_BYTES) << 32 | place;
}
#endif
