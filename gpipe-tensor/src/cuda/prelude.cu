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

/// Shared memory of a block; the launch sets its size, the kernel divides it up.
extern __shared__ __align__(16) float shared[];

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

__device__ inline float load(const float* p, u64 i) { return p[i]; }
__device__ inline float load(const bf16* p, u64 i) { return __uint_as_float((u32)p[i].bits << 16); }

__device__ inline void store(float* p, u64 i, float value) { p[i] = value; }

/// Rounds to nearest, ties to even; NaN stays NaN.
__device__ inline void store(bf16* p, u64 i, float value) {
    u32 bits = __float_as_uint(value);
    u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    p[i].bits = (u16)(value == value ? rounded : (bits >> 16) | 0x40u);
}

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

/// The larger one; a `b` that is NaN is ignored.
__device__ inline float larger(float a, float b) { return b > a ? b : a; }

/// Runs the following statement for each i below n, distributed over all threads of the grid.
#define EACH(i, n)                                                                     \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                  \
         i += (u64)gridDim.x * blockDim.x)

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
