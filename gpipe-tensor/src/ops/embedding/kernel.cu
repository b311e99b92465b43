// Rows of a table, by index.

/// y = the row of the table at each index.
template <class T>
__device__ void embedding(const u32* ids, const T* table, T* y, u64 n, u64 width) {
    EACH(i, n) y[i] = table[ids[i / width] * width + i % width];
}

/// Rows of dy that a thread loads before it adds them: what they wait for memory, they wait together.
#define AT_ONCE 8

/// Adds every row of dy to the row of the table at its index, in ascending order.
///
/// One block per position: the block of an index's first position adds the rows of all its positions, so
/// that no two blocks write the same row and the order of the sum is fixed.
template <class T>
__device__ void embedding_grad(const u32* ids, const T* dy, float* table, u64 positions, u64 width) {
    u64 first = blockIdx.x;
    u32 id = ids[first];
    bool seen = false;
    for (u64 i = threadIdx.x; i < first; i += blockDim.x) seen = seen || ids[i] == id;
    if (__syncthreads_or(seen)) return;
    // One bit per position of a run of the block's length.
    u32* found = (u32*)shared;
    float* sums = table + id * width;
    for (u64 start = first; start < positions; start += blockDim.x) {
        u64 mine = start + threadIdx.x;
        u32 bits = __ballot_sync(ALL_LANES, mine < positions && ids[mine] == id);
        if (lane() == 0) found[warp()] = bits;
        __syncthreads();
        for (u64 c = threadIdx.x; c < width; c += blockDim.x) {
            float sum = sums[c];
            u32 w = 0, left = found[0], rows = AT_ONCE;
            while (rows == AT_ONCE) {
                float values[AT_ONCE];
                rows = 0;
#pragma unroll
                for (u32 j = 0; j < AT_ONCE; j++) {
                    while (left == 0 && w + 1 < warps()) left = found[++w];
                    values[j] = 0;
                    if (left == 0) continue;
                    u64 row = start + w * WARP + (u32)__ffs((int)left) - 1;
                    values[j] = load(dy, row * width + c);
                    left &= left - 1;
                    rows++;
                }
#pragma unroll
                for (u32 j = 0; j < AT_ONCE; j++) {
                    if (j < rows) sum = sum + values[j];
                }
            }
            sums[c] = sum;
        }
        __syncthreads();
    }
}
