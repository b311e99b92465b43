// Attention of many heads between positions of the same segment: a warp for each head of each row, which
// passes over the positions that the row sees.

/// The sizes of a call, and which positions see each other.
struct Segments {
    const u32* of_queries;
    const u32* of_keys;
    u64 queries;
    u64 keys;
    u32 heads;
    u32 size;
    u32 causal;
    Mask mask;
    u64 first_sample;

    __device__ u64 width() const { return (u64)heads * size; }

    /// Whether query i of a sample sees key j. Segment 0 is padding.
    __device__ bool sees(u64 sample, u64 i, u64 j) const {
        u32 segment = of_queries[sample * queries + i];
        return segment != 0 && of_keys[sample * keys + j] == segment && (causal == 0 || j <= i);
    }

    /// Dropout's factor of a probability.
    __device__ float factor(u64 sample, u64 head, u64 i, u64 j) const {
        if (mask.threshold == 0) return 1.0f;
        return mask.factor(random_bits(mask.key, first_sample + sample, (head * queries + i) * keys + j));
    }

    /// The first element of a query's head, in all tensors of its shape.
    __device__ u64 query(u64 sample, u64 head, u64 i) const {
        return (sample * queries + i) * width() + head * size;
    }

    /// The first element of a key's head; that of the value is `width()` further.
    __device__ u64 key(u64 sample, u64 head, u64 j) const {
        return (sample * keys + j) * 2 * width() + head * size;
    }
};

/// The scaled product of a query and a key.
template <class T>
__device__ float segment_score(const T* q, u64 query, const T* kv, u64 key, u32 size, float scale) {
    float product = 0.0f;
    for (u32 c = lane(); c < size; c += WARP) product = fmaf(load(q, query + c), load(kv, key + c), product);
    return over_warp<Plus>(product) * scale;
}

/// The result of each query's head and the logarithm of its sum by the online softmax (Milakov and Gimelshein,
/// arXiv:1805.02867); 0 and infinity for a query that sees nothing.
template <class T>
__device__ void segment_attention(const T* q, const T* kv, const u32* of_queries, const u32* of_keys,
                                  T* out, float* lse, u64 rows, u64 queries, u64 keys, u32 heads,
                                  u32 size, u32 causal, float scale, u64 first_sample, u32 key_low,
                                  u32 key_high, u32 threshold, float kept) {
    Segments all = {of_queries, of_keys, queries, keys, heads, size, causal,
                    {{key_low, key_high}, threshold, kept}, first_sample};
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 i = row % queries, head = row / queries % heads, sample = row / queries / heads;
    u64 query = all.query(sample, head, i);
    // Every lane reads and writes its own columns only.
    float* sums = shared + (u64)warp() * size;
    for (u32 c = lane(); c < size; c += WARP) sums[c] = 0.0f;
    float largest = -infinity(), total = 0.0f;
    for (u64 j = 0; j < keys; j++) {
        if (!all.sees(sample, i, j)) continue;
        u64 key = all.key(sample, head, j), value = key + all.width();
        float score = segment_score(q, query, kv, key, size, scale), peak = larger(largest, score);
        float shrink = exponential(largest - peak), weight = exponential(score - peak);
        total = fmaf(total, shrink, weight);
        weight *= all.factor(sample, head, i, j);
        for (u32 c = lane(); c < size; c += WARP) {
            sums[c] = fmaf(weight, load(kv, value + c), sums[c] * shrink);
        }
        largest = peak;
    }
    // The largest score adds 1, and what is no number stays none.
    bool sees = total != 0.0f;
    for (u32 c = lane(); c < size; c += WARP) store(out, query + c, sees ? sums[c] / total : 0.0f);
    if (lane() == 0) lse[row] = sees ? largest + (float)log((double)total) : infinity();
}

/// A probability times dropout's factor, and the gradient of its unscaled score.
struct Slope {
    float weight;
    float slope;

    /// With the probability p, its factor f and the result o of the row: p·(f·⟨do, v⟩ − ⟨do, o⟩)·scale.
    template <class T>
    __device__ Slope(const Segments& all, const T* q, const T* kv, const T* out, const float* lse,
                     const T* d_out, float scale, u64 sample, u64 head, u64 i, u64 j) {
        u64 query = all.query(sample, head, i), key = all.key(sample, head, j);
        u64 value = key + all.width();
        float score = segment_score(q, query, kv, key, all.size, scale);
        float p = exponential(score - lse[(sample * all.heads + head) * all.queries + i]);
        float factor = all.factor(sample, head, i, j), product = 0.0f;
        for (u32 c = lane(); c < all.size; c += WARP) {
            float difference = fmaf(factor, load(kv, value + c), -load(out, query + c));
            product = fmaf(load(d_out, query + c), difference, product);
        }
        weight = p * factor;
        slope = p * (over_warp<Plus>(product) * scale);
    }
};

/// The gradients of the queries: sums over keys ascend.
template <class T>
__device__ void segment_attention_queries(const T* q, const T* kv, const u32* of_queries,
                                          const u32* of_keys, const T* out, const float* lse,
                                          const T* d_out, T* dq, u64 rows, u64 queries, u64 keys,
                                          u32 heads, u32 size, u32 causal, float scale,
                                          u64 first_sample, u32 key_low, u32 key_high, u32 threshold,
                                          float kept) {
    Segments all = {of_queries, of_keys, queries, keys, heads, size, causal,
                    {{key_low, key_high}, threshold, kept}, first_sample};
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 i = row % queries, head = row / queries % heads, sample = row / queries / heads;
    float* sums = shared + (u64)warp() * size;
    for (u32 c = lane(); c < size; c += WARP) sums[c] = 0.0f;
    for (u64 j = 0; j < keys; j++) {
        if (!all.sees(sample, i, j)) continue;
        Slope at(all, q, kv, out, lse, d_out, scale, sample, head, i, j);
        u64 key = all.key(sample, head, j);
        for (u32 c = lane(); c < size; c += WARP) sums[c] = fmaf(at.slope, load(kv, key + c), sums[c]);
    }
    u64 query = all.query(sample, head, i);
    for (u32 c = lane(); c < size; c += WARP) store(dq, query + c, sums[c]);
}

/// The gradients of keys and values: sums over queries ascend.
template <class T>
__device__ void segment_attention_keys(const T* q, const T* kv, const u32* of_queries,
                                       const u32* of_keys, const T* out, const float* lse,
                                       const T* d_out, T* dkv, u64 rows, u64 queries, u64 keys,
                                       u32 heads, u32 size, u32 causal, float scale, u64 first_sample,
                                       u32 key_low, u32 key_high, u32 threshold, float kept) {
    Segments all = {of_queries, of_keys, queries, keys, heads, size, causal,
                    {{key_low, key_high}, threshold, kept}, first_sample};
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 j = row % keys, head = row / keys % heads, sample = row / keys / heads;
    float* of_key = shared + (u64)warp() * 2 * size;
    float* of_value = of_key + size;
    for (u32 c = lane(); c < size; c += WARP) of_key[c] = of_value[c] = 0.0f;
    for (u64 i = 0; i < queries; i++) {
        if (!all.sees(sample, i, j)) continue;
        Slope at(all, q, kv, out, lse, d_out, scale, sample, head, i, j);
        u64 query = all.query(sample, head, i);
        for (u32 c = lane(); c < size; c += WARP) {
            of_key[c] = fmaf(at.slope, load(q, query + c), of_key[c]);
            of_value[c] = fmaf(at.weight, load(d_out, query + c), of_value[c]);
        }
    }
    u64 key = all.key(sample, head, j);
    for (u32 c = lane(); c < size; c += WARP) {
        store(dkv, key + c, of_key[c]);
        store(dkv, key + all.width() + c, of_value[c]);
    }
}
