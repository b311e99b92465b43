// Common to all kernels: number types, loops over elements, reductions over warps and blocks.
//
// The kernels are one translation unit, compiled without headers and without contraction of a·b + c:
// fused multiply-adds are explicit calls of fmaf. Storage is T (float or bf16), arithmetic float.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/// The upper half of a float.
struct bf16 {
    u16 bits;
};

#ifdef __CUDACC__

/// Both numbers in bf16, ties to even, the first one in the lower half; NaN stays NaN.
__device__ inline u32 pack(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/// 2^x, to the last two bits; 0 for what is far below 0.
__device__ inline float exp2_fast(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/// 1/x, to the last bit, for x from 2^-126 to 2^126.
__device__ inline float reciprocal_fast(float x) {
    float quotient;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(quotient) : "f"(x));
    return quotient;
}

#endif

/// Shared memory of a block; the launch sets its size, the kernel divides it up.
extern __shared__ __align__(16) float shared[];

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

__device__ inline float load(const float* p, u64 i) { return p[i]; }
__device__ inline float load(const bf16* p, u64 i) { return __uint_as_float((u32)p[i].bits << 16); }

__device__ inline void store(float* p, u64 i, float value) { p[i] = value; }

__device__ inline void store(bf16* p, u64 i, float value) { p[i].bits = (u16)pack(value, 0.0f); }

/// What `load` finds where `store` has put the value.
__device__ inline float rounded(const float*, float value) { return value; }
__device__ inline float rounded(const bf16*, float value) {
    return __uint_as_float(pack(0.0f, value));
}

/// 16 bytes, which a thread reads or writes by one instruction.
struct __align__(16) Words {
    u32 at[4];
};

/// N elements from a multiple of 16 bytes on.
template <u32 N>
__device__ inline void load_words(float (&values)[N], const float* p) {
#pragma unroll
    for (u32 k = 0; k < N; k += 4) {
        Words words = *(const Words*)(p + k);
#pragma unroll
        for (u32 e = 0; e < 4; e++) values[k + e] = __uint_as_float(words.at[e]);
    }
}

__device__ inline void load_words(float (&values)[8], const bf16* p) {
    Words words = *(const Words*)p;
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
        values[2 * e] = __uint_as_float(words.at[e] << 16);
        values[2 * e + 1] = __uint_as_float(words.at[e] & 0xffff0000u);
    }
}

template <u32 N>
__device__ inline void store_words(float* p, const float (&values)[N]) {
#pragma unroll
    for (u32 k = 0; k < N; k += 4) {
        Words words;
#pragma unroll
        for (u32 e = 0; e < 4; e++) words.at[e] = __float_as_uint(values[k + e]);
        *(Words*)(p + k) = words;
    }
}

__device__ inline void store_words(bf16* p, const float (&values)[8]) {
    Words words;
#pragma unroll
    for (u32 e = 0; e < 4; e++) words.at[e] = pack(values[2 * e], values[2 * e + 1]);
    *(Words*)p = words;
}

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

/// The larger one; a `b` that is NaN is ignored.
__device__ inline float larger(float a, float b) { return b > a ? b : a; }

/// Runs the following statement for each i below n, distributed over all threads of the grid.
#define EACH(i, n)                                                                     \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                  \
         i += (u64)gridDim.x * blockDim.x)

/// Whether all of them begin at a multiple of 16 bytes.
template <class... P>
__device__ bool aligned(P... pointers) {
    return ((0 | ... | (u64)pointers) & 15) == 0;
}

/// i / n and i % n: a division of 64 bits is slow.
__device__ inline u64 quotient(u64 i, u64 n) { return (i | n) >> 32 == 0 ? (u32)i / (u32)n : i / n; }
__device__ inline u64 within(u64 i, u64 n) { return (i | n) >> 32 == 0 ? (u32)i % (u32)n : i % n; }

/// The neighbouring elements that a thread works on at once: as many as 16 bytes of T hold, fewer at the end.
template <class T>
struct Pack {
    static constexpr u32 N = 16 / sizeof(T);

    struct Values {
        float at[N];
    };

    u64 first;
    u64 end;
    /// Whether there are N of them, accessed by 16 bytes in every tensor.
    bool whole;

    /// The elements of x, and `none` where there are none.
    template <class X>
    __device__ Values read(const X* x, float none = 0.0f) const {
        Values values;
        if (whole) {
            load_words(values.at, x + first);
        } else {
#pragma unroll
            for (u32 e = 0; e < N; e++) values.at[e] = first + e < end ? load(x, first + e) : none;
        }
        return values;
    }

    /// Of a row of `period` elements that is repeated.
    template <class X>
    __device__ Values read_row(const X* row, u64 period) const {
        Values values;
        if (whole) {
            load_words(values.at, row + within(first, period));
        } else {
#pragma unroll
            for (u32 e = 0; e < N; e++) {
                values.at[e] = first + e < end ? load(row, within(first + e, period)) : 0.0f;
            }
        }
        return values;
    }

    template <class Y>
    __device__ void write(Y* y, const Values& values) const {
        if (whole) {
            store_words(y + first, values.at);
            return;
        }
#pragma unroll
        for (u32 e = 0; e < N; e++) {
            if (first + e < end) store(y, first + e, values.at[e]);
        }
    }

    /// As two launches would leave it: the values are stored, and then their sums with those of `onto`, unless that is null.
    template <class Y>
    __device__ void write_onto(Y* y, Values values, const Y* onto) const {
        if (onto) {
            auto before = read(onto);
#pragma unroll
            for (u32 e = 0; e < N; e++) values.at[e] = rounded(y, values.at[e]) + before.at[e];
        }
        write(y, values);
    }
};

/// Calls `body` for each pack of n elements, distributed over the threads of the grid. `packed` says that all tensors
/// are aligned, and that rows which are repeated are a multiple of 16 bytes of T.
template <class T, class Body>
__device__ void each_pack(u64 n, bool packed, Body body) {
    constexpr u32 N = Pack<T>::N;
    EACH(pack, (n + N - 1) / N) body(Pack<T>{pack * N, n, packed && pack * N + N <= n});
}

/// Whether all rows of `width` elements begin at a multiple of 16 bytes.
template <class T, class... P>
__device__ bool aligned_rows(u64 width, P... pointers) {
    return aligned(pointers...) && width % Pack<T>::N == 0;
}

/// Whether a repeated row can be read by 16 bytes.
template <class T>
__device__ bool aligned_row(const T* row, u64 period) {
    return aligned_rows<T>(period, row);
}

/// The packs of a row of `width` elements that are those of thread `own` of `threads`. The row begins at element `start` of a
/// tensor; `packed` says that this is a multiple of 16 bytes in all of them.
template <class T>
struct RowPacks {
    u64 start;
    u64 width;
    bool packed;
    u32 own;
    u32 threads;

    /// Calls `body` with each, as a pack of the tensors and as one of a row alone.
    template <class Body>
    __device__ void each(Body body) const {
        constexpr u32 N = Pack<T>::N;
        u64 c = own * N;
        if (packed) {
            // Several packs are read before the first is used.
#pragma unroll 2
            for (; c + N <= width; c += threads * N) {
                body(Pack<T>{start + c, start + width, true}, Pack<T>{c, width, true});
            }
        }
        for (; c < width; c += threads * N) {
            body(Pack<T>{start + c, start + width, false}, Pack<T>{c, width, false});
        }
    }
};

/// y = f(x), element by element; y may be x.
template <class T, class X, class Y, class F>
__device__ void map(const X* x, Y* y, u64 n, F f) {
    each_pack<T>(n, aligned(x, y), [&](Pack<T> pack) {
        auto values = pack.read(x);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) values.at[e] = f(values.at[e]);
        pack.write(y, values);
    });
}

/// y = f(a, b), element by element; y may be a or b.
template <class T, class A, class B, class Y, class F>
__device__ void map(const A* a, const B* b, Y* y, u64 n, F f) {
    each_pack<T>(n, aligned(a, b, y), [&](Pack<T> pack) {
        auto values = pack.read(a), others = pack.read(b);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) values.at[e] = f(values.at[e], others.at[e]);
        pack.write(y, values);
    });
}

/// Number of elements that a block reduces to one number.
constexpr u64 CHUNK = 16384;

/// Runs the following statement for each element of the block's chunk of n.
#define EACH_OF_CHUNK(i, n)                                                            \
    for (u64 i = (u64)blockIdx.x * CHUNK + threadIdx.x;                                \
         i < (n) && i < ((u64)blockIdx.x + 1) * CHUNK; i += blockDim.x)

/// The row of a table (of `width` words a row) that this block processes: the last row whose last word,
/// the number of blocks before it, is at most the block's index.
__device__ inline const u64* row_of(const u64* table, u32 rows, u32 width) {
    u32 low = 0, high = rows;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (table[middle * width + width - 1] <= blockIdx.x) low = middle;
        else high = middle;
    }
    return table + low * width;
}

__device__ inline u32 lane() { return threadIdx.x % WARP; }
__device__ inline u32 warp() { return threadIdx.x / WARP; }
__device__ inline u32 warps() { return blockDim.x / WARP; }

struct Plus {
    template <class V>
    __device__ V operator()(V a, V b) const { return a + b; }
};

struct Larger {
    __device__ float operator()(float a, float b) const { return larger(a, b); }
    __device__ u32 operator()(u32 a, u32 b) const { return b > a ? b : a; }
};

/// Reduces the values of all lanes; every lane gets the result. The order is a fixed tree.
template <class Join, class V>
__device__ V over_warp(V value) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value = Join()(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

/// Reduces the values of all threads; every thread gets the result. `scratch` holds one value per warp
/// and is free again afterwards.
template <class Join, class V>
__device__ V over_block(V value, V* scratch) {
    value = over_warp<Join>(value);
    if (lane() == 0) scratch[warp()] = value;
    __syncthreads();
    value = scratch[0];
    for (u32 w = 1; w < warps(); w++) value = Join()(value, scratch[w]);
    __syncthreads();
    return value;
}
