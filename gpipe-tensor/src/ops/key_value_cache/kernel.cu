// Attention of new positions over the keys and values of earlier ones.

/// Stores `width` columns of x (samples, len, columns), from `column` on, in the cache (rows, capacity,
/// width): those of sample i behind the past[i] positions of row first + i.
template <class T>
__device__ void cache_store(
    const T* x, const u32* past, T* cache, u64 n, u64 len, u64 columns, u64 column, u64 capacity,
    u64 width, u64 first
) {
    EACH(i, n) {
        u64 position = i / width, sample = position / len;
        u64 row = (first + sample) * capacity + past[sample] + position % len;
        cache[row * width + i % width] = x[position * columns + column + i % width];
    }
}

/// The results of the new positions, a warp for each head of each: the online softmax over the positions
/// up to its own, at most `window` of them (Milakov and Gimelshein, arXiv:1805.02867).
template <class T>
__device__ void cached_attention(
    const T* x, const u32* past, const T* keys, const T* values, T* out, u64 rows, u64 len,
    u64 columns, u64 column, u64 capacity, u64 first, u32 heads, u32 shared_by, u32 size, u64 window,
    float scale
) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 head = row % heads, position = row / heads, sample = position / len;
    u64 reach = past[sample] + position % len + 1, from = reach > window ? reach - window : 0;
    u64 width = (u64)(heads / shared_by) * size;
    u64 query = position * columns + column + head * size;
    u64 cached = (first + sample) * capacity * width + head / shared_by * size;
    // Every lane reads and writes its own columns only.
    float* sums = shared + (u64)warp() * size;
    for (u32 c = lane(); c < size; c += WARP) sums[c] = 0.0f;
    float largest = -infinity(), total = 0.0f;
    for (u64 j = from; j < reach; j++) {
        u64 at = cached + j * width;
        float product = 0.0f;
        for (u32 c = lane(); c < size; c += WARP) {
            product = fmaf(load(x, query + c), load(keys, at + c), product);
        }
        float score = over_warp<Plus>(product) * scale, peak = larger(largest, score);
        float shrink = exponential(largest - peak), weight = exponential(score - peak);
        total = fmaf(total, shrink, weight);
        for (u32 c = lane(); c < size; c += WARP) {
            sums[c] = fmaf(weight, load(values, at + c), sums[c] * shrink);
        }
        largest = peak;
    }
    for (u32 c = lane(); c < size; c += WARP) store(out, row * size + c, sums[c] / total);
}
