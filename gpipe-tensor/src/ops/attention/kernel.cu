// Causal attention without the T × T scores. A block owns a tile of query rows (or of keys, for the
// gradients of keys and values) of one head of one sample and loops over the other tiles in order.
// No element is written by two blocks, so the order of all sums depends on shapes only.

/// One head of one sample, and the block's tile of its positions.
struct Head {
    u64 sample;
    /// Of the queries.
    u64 head;
    /// Of keys and values, each for `per_group` heads of queries.
    u64 group;
    u32 per_group;
    u64 row_width;
    /// Number of positions that a position sees.
    u64 window;
    u64 len;
    u64 width;
    u32 size;
    u32 tile;
    /// The first position of the block's tile.
    u64 first;
    Mask mask;

    /// The block's head of `owners` heads of a sample: those of queries, or of keys and values.
    __device__ Head(u64 len, u32 heads, u32 groups, u32 owners, u64 window, u32 size, u32 tile, Mask mask)
        : len(len), width((u64)heads * size), size(size), tile(tile), mask(mask), window(window),
          per_group(heads / groups), row_width((u64)(heads + 2 * groups) * size) {
        u64 tiles = (len + tile - 1) / tile;
        u64 item = blockIdx.x / tiles;
        first = blockIdx.x % tiles * tile;
        sample = item / owners;
        head = item % owners * (heads / owners);
        group = head / per_group;
    }

    /// Offset of a position's row of the queries (0), keys (1) or values (2).
    __device__ u64 part(u32 part, u64 row) const {
        u64 start = (sample * len + row) * row_width;
        if (part == 0) return start + head * size;
        u64 groups = (row_width - width) / size / 2;
        return start + width + (group + (part - 1) * groups) * size;
    }

    /// Whether a query sees a key.
    __device__ bool sees(u64 row, u64 key) const { return key <= row && row - key < window; }

    /// The first tile of keys that any query of the block's tile sees.
    __device__ u64 first_key() const {
        return first < window ? 0 : (first + 1 - window) / tile * tile;
    }

    /// Offset of a position's row in a tensor without the three parts.
    __device__ u64 single(u64 row) const { return (sample * len + row) * width + head * size; }

    /// Offset of the head in a tensor with one element per position.
    __device__ u64 scalars() const { return (sample * (width / size) + head) * len; }

    /// Elements of a row in shared memory, where it is a multiple of 16 bytes: zeros follow its own.
    __device__ u32 padded() const { return (size + 3) / 4 * 4; }

    /// Elements from row to row of a tile in shared memory: an odd number of 16 bytes, so that lanes that read 16 bytes of
    /// rows access different banks.
    __device__ u32 stride() const { return 4 * (padded() / 4 | 1); }

    /// Copies the rows `row ..` of queries, keys or values to shared memory, zeros beyond the end.
    template <class T>
    __device__ void fetch(const T* qkv, u32 which, u64 row, float* rows) const {
        fetch_rows(qkv + part(which, row), row_width, row, rows);
    }

    /// As `fetch`, from a tensor without the three parts.
    template <class T>
    __device__ void fetch_single(const T* x, u64 row, float* rows) const {
        fetch_rows(x + single(row), width, row, rows);
    }

    /// The rows from x on, `step` elements apart, of which the first is `row`: four elements at a time.
    template <class T>
    __device__ void fetch_rows(const T* x, u64 step, u64 row, float* rows) const {
        u32 quads = padded() / 4;
        u32 there = row + tile < len ? tile : row < len ? (u32)(len - row) : 0;
        bool whole = sizeof(T) == 4 && aligned(x) && (step | size) % 4 == 0;
#pragma unroll 2
        for (u32 at = threadIdx.x; at < tile * quads; at += blockDim.x) {
            u32 i = at / quads, c = at % quads * 4;
            const T* from = x + i * step + c;
            float values[4] = {};
            if (i < there) {
                if (whole) {
                    load_words(values, (const float*)from);
                } else {
#pragma unroll
                    for (u32 e = 0; e < 4; e++) values[e] = c + e < size ? load(from, e) : 0.0f;
                }
            }
            store_words(rows + i * stride() + c, values);
        }
    }

    /// Zeros for sums of a tile, whose rows are padded and follow each other.
    __device__ void clear(float* sums) const {
        for (u32 e = threadIdx.x; e < tile * padded(); e += blockDim.x) sums[e] = 0.0f;
    }

    /// Calls `body` with an element and its row and column, for all of the tile.
    template <class Body>
    __device__ void each_element(const float* sums, Body body) const {
        for (u32 e = threadIdx.x; e < tile * size; e += blockDim.x) {
            u32 i = e / size, c = e % size;
            body(i, c, sums[i * padded() + c]);
        }
    }

    /// The product of each row i of tile a with each row j of tile b.
    template <class Body>
    __device__ void each_product(const float* a, const float* b, Body body) const {
        if (tile == 32) products<4>(a, b, body);
        else products<1>(a, b, body);
    }

    /// A thread multiplies R rows of a with one of b.
    template <u32 R, class Body>
    __device__ void products(const float* a, const float* b, Body body) const {
        u32 i = threadIdx.x / tile, j = threadIdx.x % tile, step = tile / R;
        if (i >= step) return;
        float sums[R] = {};
#pragma unroll 2
        for (u32 c = 0; c < padded(); c += 4) {
            float right[4];
            load_words(right, b + j * stride() + c);
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                float left[4];
                load_words(left, a + (i + r * step) * stride() + c);
#pragma unroll
                for (u32 e = 0; e < 4; e++) sums[r] = fmaf(left[e], right[e], sums[r]);
            }
        }
#pragma unroll
        for (u32 r = 0; r < R; r++) body(i + r * step, j, sums[r]);
    }

    /// sums = sums · factors + weights · rows, or weightsᵀ · rows; no factors are ones.
    template <bool TRANSPOSED>
    __device__ void add_weighted(float* sums, const float* weights, const float* rows,
                                 const float* factors = nullptr) const {
        // A tile of one row cannot be halved.
        if (tile > 1 && tile * padded() >= 8 * blockDim.x) weighted<TRANSPOSED, 2>(sums, weights, rows, factors);
        else weighted<TRANSPOSED, 1>(sums, weights, rows, factors);
    }

    /// A thread adds to four columns of R rows at a time.
    template <bool TRANSPOSED, u32 R>
    __device__ void weighted(float* sums, const float* weights, const float* rows, const float* factors) const {
        u32 step = tile / R, quads = padded() / 4;
#pragma unroll 1
        for (u32 at = threadIdx.x; at < step * quads; at += blockDim.x) {
            u32 i = at / quads, c = at % quads * 4;
            float own[R][4];
#pragma unroll
            for (u32 r = 0; r < R; r++) {
                load_words(own[r], sums + (i + r * step) * padded() + c);
                float factor = factors ? factors[i + r * step] : 1.0f;
#pragma unroll
                for (u32 e = 0; e < 4; e++) own[r][e] *= factor;
            }
#pragma unroll 2
            for (u32 j = 0; j < tile; j++) {
                float row[4];
                load_words(row, rows + j * stride() + c);
#pragma unroll
                for (u32 r = 0; r < R; r++) {
                    u32 k = i + r * step;
                    float weight = TRANSPOSED ? weights[j * (tile + 1) + k] : weights[k * (tile + 1) + j];
#pragma unroll
                    for (u32 e = 0; e < 4; e++) own[r][e] = fmaf(weight, row[e], own[r][e]);
                }
            }
#pragma unroll
            for (u32 r = 0; r < R; r++) store_words(sums + (i + r * step) * padded() + c, own[r]);
        }
    }

    /// Dropout's factor of the probability of a query row and a key.
    __device__ float factor(u64 first_sample, u64 row, u64 key) const {
        if (mask.threshold == 0) return mask.kept;
        u64 element = (head * len + row) * len + key;
        return mask.factor(random_bits(mask.key, first_sample + sample, element));
    }
};

template <class T>
__device__ void attention(const T* qkv, T* out, float* lse, u64 len, u32 heads, u32 groups, u64 window,
                          u32 size, u32 tile, float scale, u64 first_sample, u32 key_low, u32 key_high,
                          u32 threshold, float kept) {
    Head head(len, heads, groups, heads, window, size, tile,
              Mask{{key_low, key_high}, threshold, kept});
    float* q = shared;
    float* k = q + tile * head.stride();
    float* v = k + tile * head.stride();
    float* result = v + tile * head.stride();
    float* p = result + tile * head.padded();
    float* sums = p + tile * (tile + 1);
    float* largest = sums + tile;
    float* factors = largest + tile;
    head.fetch(qkv, 0, head.first, q);
    head.clear(result);
    for (u32 i = threadIdx.x; i < tile; i += blockDim.x) {
        sums[i] = 0.0f;
        largest[i] = -infinity();
    }
    for (u64 key = head.first_key(); key <= head.first; key += tile) {
        __syncthreads();
        head.fetch(qkv, 1, key, k);
        head.fetch(qkv, 2, key, v);
        __syncthreads();
        head.each_product(q, k, [&](u32 i, u32 j, float product) {
            bool seen = head.sees(head.first + i, key + j);
            p[i * (tile + 1) + j] = seen ? scale * product : -infinity();
        });
        __syncthreads();
        // Online softmax (Milakov and Gimelshein, arXiv:1805.02867): a larger score scales the sums
        // so far down.
        for (u32 i = warp(); i < tile; i += warps()) {
            u32 j = lane();
            float score = j < tile ? p[i * (tile + 1) + j] : -infinity();
            float before = largest[i];
            float now = larger(before, over_warp<Larger>(score));
            // None of the keys so far may be within the row's window.
            float shift = now == -infinity() ? 0.0f : now;
            float probability = exponential(score - shift);
            float sum = over_warp<Plus>(j < tile ? probability : 0.0f);
            if (j < tile) {
                float factor = head.factor(first_sample, head.first + i, key + j);
                p[i * (tile + 1) + j] = probability * factor;
            }
            // All lanes have read what the first one writes.
            __syncwarp();
            if (j == 0) {
                float shrink = exponential(before - shift);
                factors[i] = shrink;
                sums[i] = fmaf(sums[i], shrink, sum);
                largest[i] = now;
            }
        }
        __syncthreads();
        head.add_weighted<false>(result, p, v, factors);
    }
    // What a thread stores, another one summed up.
    __syncthreads();
    head.each_element(result, [&](u32 i, u32 c, float value) {
        u64 row = head.first + i;
        if (row < len) store(out, head.single(row) + c, value / sums[i]);
    });
    for (u32 i = threadIdx.x; i < tile; i += blockDim.x) {
        u64 row = head.first + i;
        if (row < len) lse[head.scalars() + row] = (float)((double)largest[i] + log((double)sums[i]));
    }
}

/// The sum of out · d_out over each row of each head, which the softmax's gradient subtracts: `lanes` lanes each, as many
/// as a row has packs if a warp has them, else all.
template <class T>
__device__ void attention_means(const T* out, const T* d_out, float* means, u64 samples, u64 len,
                                u32 heads, u32 size, u32 lanes) {
    // In the order of `out`, in which the heads of a position are neighbours.
    u64 row = (u64)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    bool there = row < samples * len * heads;
    float sum = 0.0f;
    if (there) {
        RowPacks<T> packs{row * size, size, aligned_rows<T>(size, out, d_out), lane() % lanes, lanes};
        packs.each([&](Pack<T> pack, Pack<T>) {
            auto results = pack.read(out), slopes = pack.read(d_out);
#pragma unroll
            for (u32 e = 0; e < Pack<T>::N; e++) sum = fmaf(results.at[e], slopes.at[e], sum);
        });
    }
    for (u32 distance = lanes / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    }
    if (!there || lane() % lanes != 0) return;
    u64 position = quotient(row, heads), head = within(row, heads);
    means[(quotient(position, len) * heads + head) * len + within(position, len)] = sum;
}

/// The gradients of a block's tile of queries.
template <class T>
__device__ void attention_grad_queries(const T* qkv, const float* lse, const float* means,
                                       const T* d_out, T* dqkv, u64 len, u32 heads, u32 groups,
                                       u64 window, u32 size, u32 tile, float scale, u64 first_sample,
                                       u32 key_low, u32 key_high, u32 threshold, float kept) {
    Head head(len, heads, groups, heads, window, size, tile,
              Mask{{key_low, key_high}, threshold, kept});
    float* q = shared;
    float* d = q + tile * head.stride();
    float* k = d + tile * head.stride();
    float* v = k + tile * head.stride();
    float* result = v + tile * head.stride();
    float* slopes = result + tile * head.padded();
    head.fetch(qkv, 0, head.first, q);
    head.fetch_single(d_out, head.first, d);
    head.clear(result);
    for (u64 key = head.first_key(); key <= head.first; key += tile) {
        __syncthreads();
        head.fetch(qkv, 1, key, k);
        head.fetch(qkv, 2, key, v);
        __syncthreads();
        head.each_product(d, v, [&](u32 i, u32 j, float product) { slopes[i * (tile + 1) + j] = product; });
        // The same thread goes on with the element.
        head.each_product(q, k, [&](u32 i, u32 j, float product) {
            u64 row = head.first + i;
            float slope = 0.0f;
            if (row < len && head.sees(row, key + j)) {
                u64 at = head.scalars() + row;
                float probability = exponential(scale * product - lse[at]);
                float factor = head.factor(first_sample, row, key + j);
                slope = probability * fmaf(factor, slopes[i * (tile + 1) + j], -means[at]);
            }
            slopes[i * (tile + 1) + j] = slope;
        });
        __syncthreads();
        head.add_weighted<false>(result, slopes, k);
    }
    // What a thread stores, another one summed up.
    __syncthreads();
    head.each_element(result, [&](u32 i, u32 c, float value) {
        u64 row = head.first + i;
        if (row < len) store(dqkv, head.part(0, row) + c, scale * value);
    });
}

/// The gradients of a block's tile of keys and values: sums over the heads of queries ascend.
template <class T>
__device__ void attention_grad_keys(const T* qkv, const float* lse, const float* means, const T* d_out,
                                    T* dqkv, u64 len, u32 heads, u32 groups, u64 window, u32 size,
                                    u32 tile, float scale, u64 first_sample, u32 key_low, u32 key_high,
                                    u32 threshold, float kept) {
    Head head(len, heads, groups, groups, window, size, tile,
              Mask{{key_low, key_high}, threshold, kept});
    float* k = shared;
    float* v = k + tile * head.stride();
    float* q = v + tile * head.stride();
    float* d = q + tile * head.stride();
    float* dk = d + tile * head.stride();
    float* dv = dk + tile * head.padded();
    float* slopes = dv + tile * head.padded();
    float* weights = slopes + tile * (tile + 1);
    head.fetch(qkv, 1, head.first, k);
    head.fetch(qkv, 2, head.first, v);
    head.clear(dk);
    head.clear(dv);
    u64 last = head.first + tile + window - 1;
    u64 end = last < len ? last : len;
    for (u32 member = 0; member < head.per_group; member++, head.head++) {
        for (u64 query = head.first; query < end; query += tile) {
            __syncthreads();
            head.fetch(qkv, 0, query, q);
            head.fetch_single(d_out, query, d);
            __syncthreads();
            head.each_product(d, v, [&](u32 i, u32 j, float product) { slopes[i * (tile + 1) + j] = product; });
            // The same thread goes on with the element.
            head.each_product(q, k, [&](u32 i, u32 j, float product) {
                u64 row = query + i;
                float slope = 0.0f, weight = 0.0f;
                if (row < len && head.sees(row, head.first + j)) {
                    u64 at = head.scalars() + row;
                    float probability = exponential(scale * product - lse[at]);
                    float factor = head.factor(first_sample, row, head.first + j);
                    slope = probability * fmaf(factor, slopes[i * (tile + 1) + j], -means[at]);
                    weight = probability * factor;
                }
                slopes[i * (tile + 1) + j] = slope;
                weights[i * (tile + 1) + j] = weight;
            });
            __syncthreads();
            head.add_weighted<true>(dk, slopes, q);
            head.add_weighted<true>(dv, weights, d);
        }
    }
    // What a thread stores, another one summed up.
    __syncthreads();
    head.each_element(dk, [&](u32 i, u32 c, float value) {
        u64 row = head.first + i;
        if (row < len) store(dqkv, head.part(1, row) + c, scale * value);
    });
    head.each_element(dv, [&](u32 i, u32 c, float value) {
        u64 row = head.first + i;
        if (row < len) store(dqkv, head.part(2, row) + c, value);
    });
}
