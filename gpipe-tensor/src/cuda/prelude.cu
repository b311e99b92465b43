// What every kernel stands on: number types, loops over elements, sums over warps and blocks.
//
// The kernels are one translation unit, compiled with neither headers nor contraction of a·b + c:
// where a fused multiply-add is meant, it says fmaf. Storage is T (float or bf16), arithmetic float.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/// The upper half of a float.
struct bf16 {
    u16 bits;
};

/// Shared memory of a block: as much as the launch asks for, given out by the kernel.
extern __shared__ __align__(16) float shared[];

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

__device__ inline float load(const float* p, u64 i) { return p[i]; }
__device__ inline float load(const bf16* p, u64 i) { return __uint_as_float((u32)p[i].bits << 16); }

__device__ inline void store(float* p, u64 i, float value) { p[i] = value; }

/// To the nearest, ties to even; what is not a number stays so.
__device__ inline void store(bf16* p, u64 i, float value) {
    u32 bits = __float_as_uint(value);
    u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    p[i].bits = (u16)(value == value ? rounded : (bits >> 16) | 0x40u);
}

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

/// The larger one; a `b` that is not a number is passed over.
__device__ inline float larger(float a, float b) { return b > a ? b : a; }

/// Runs what follows for each i below n, spread over all threads of the grid.
#define EACH(i, n)                                                                     \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                  \
         i += (u64)gridDim.x * blockDim.x)

/// Elements that a block reduces to one number.
constexpr u64 CHUNK = 16384;

/// Runs what follows for each element of the block's chunk of n.
#define EACH_OF_CHUNK(i, n)                                                            \
    for (u64 i = (u64)blockIdx.x * CHUNK + threadIdx.x;                                \
         i < (n) && i < ((u64)blockIdx.x + 1) * CHUNK; i += blockDim.x)

/// The row of a table that this block works on: the last one of `width` words whose own last word, the
/// blocks before it, is not above the block's number.
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

/// All lanes' values joined, in every lane: a tree whose form depends on nothing.
template <class Join, class V>
__device__ V over_warp(V value) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        value = Join()(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

/// All threads' values joined, in every thread. `scratch` holds a value a warp and is free again
/// afterwards.
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
