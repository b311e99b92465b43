// Softmax over rows: one warp per row. With `causal`, row i of a square covers the columns 0..=i.

__device__ inline u64 reach_of(u64 row, u64 width, u32 causal) {
    return causal ? row % width + 1 : width;
}

/// y = e^x / sum of e^x over the covered columns of each row, 0 elsewhere.
template <class T>
__device__ void softmax(const T* x, T* y, u64 rows, u64 width, u32 causal) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 start = row * width, reach = reach_of(row, width, causal);
    float largest = -infinity();
    for (u64 c = lane(); c < reach; c += WARP) largest = larger(largest, load(x, start + c));
    largest = over_warp<Larger>(largest);
    double sum = 0.0;
    for (u64 c = lane(); c < reach; c += WARP) sum += exponential(load(x, start + c) - largest);
    float factor = (float)(1.0 / over_warp<Plus>(sum));
    for (u64 c = lane(); c < width; c += WARP) {
        float value = c < reach ? exponential(load(x, start + c) - largest) * factor : 0.0f;
        store(y, start + c, value);
    }
}

/// dx = y · (dy - sum of y·dy) over the covered columns of each row, 0 elsewhere.
template <class T>
__device__ void softmax_grad(const T* y, const T* dy, T* dx, u64 rows, u64 width, u32 causal) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 start = row * width, reach = reach_of(row, width, causal);
    float sum = 0.0f;
    for (u64 c = lane(); c < reach; c += WARP) {
        sum = fmaf(load(y, start + c), load(dy, start + c), sum);
    }
    float mean = over_warp<Plus>(sum);
    for (u64 c = lane(); c < width; c += WARP) {
        float value = c < reach ? load(y, start + c) * (load(dy, start + c) - mean) : 0.0f;
        store(dx, start + c, value);
    }
}
