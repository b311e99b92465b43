// Causal attention on tensor cores, in the manner of FlashAttention-2 (Dao, arXiv:2307.08691): a warp owns 16
// rows of a block's tile and holds them as fragments; the other tiles pass through shared memory, the next
// one copied while this one is multiplied. F says how elements are multiplied: Bf16Factors, Tf32Factors, Tf32x3Factors or
// WarpgroupBf16Factors (cuda/tensor_cores.cu), of which four warps own 64 rows that stay in shared memory; sums are f32. The
// gradient is taken in two passes, one for queries and one for keys and values, so that no element is written by two blocks: the
// order of all sums depends on shapes only.

/// Threads a block, of every launch.
constexpr u32 THREADS = 256;
/// A score that no softmax sees: far below all others, and finite.
constexpr float UNSEEN = -1e30f;
/// The largest score of a row before its first: far above those unseen, so that a tile of which a row sees
/// nothing adds exactly 0.
constexpr float NONE_SO_FAR = -1e29f;

/// One head of one sample of D elements of type T, and the block's tile of its positions.
template <class T, u32 D>
struct HeadTile {
    /// Bytes at the begin of shared memory in which a block of queries keeps its tile.
    static constexpr u32 KEPT = 32;
    /// Heads whose tiles are neighbours in the order of blocks.
    static constexpr u32 TOGETHER = 48;

    u32 sample;
    u32 len;
    /// Of the queries: the first one of its group where a block owns keys.
    u32 head;
    u32 heads;
    /// Heads of keys and values.
    u32 groups;
    /// The first position of the block's tile.
    u32 first;

    /// The block's tile of one of `owners` heads of a sample: those of queries, or of keys and values. Blocks begin in the
    /// order of their indices, so the tiles with the most work come first, of 48 heads at a time: the last blocks of a grid are
    /// short, and what they read of keys and values is still near.
    __device__ HeadTile(u32 len, u32 heads, u32 groups, u32 owners, u32 rows, bool last_is_longest)
        : len(len), heads(heads), groups(groups) {
        u32 tiles = (len + rows - 1) / rows, items = gridDim.x / tiles;
        u32 begin = blockIdx.x / (TOGETHER * tiles) * TOGETHER, rest = items - begin;
        u32 together = rest < TOGETHER ? rest : TOGETHER;
        u32 place = blockIdx.x - begin * tiles, rank = place / together;
        u32 item = begin + place % together;
        first = (last_is_longest ? tiles - 1 - rank : rank) * rows;
        sample = item / owners;
        head = item % owners * (heads / owners);
    }

    /// Keeps the tile in shared memory, and where the head's keys are.
    __device__ void keep(const T* qkv) const {
        if (threadIdx.x > 0) return;
        u32* to = (u32*)shared;
        to[0] = sample;
        to[1] = head;
        to[2] = first;
        *(const T**)(to + 4) = part(qkv, 1);
    }

    /// What was kept before a barrier, so that no register holds it over the loop.
    __device__ HeadTile again() const {
        const u32* at = (const u32*)shared;
        HeadTile kept = *this;
        kept.sample = at[0];
        kept.head = at[1];
        kept.first = at[2];
        return kept;
    }

    /// The head's keys of the first position, likewise.
    __device__ const T* keys_again() const { return *(const T**)((u32*)shared + 4); }

    /// Elements of one position, all heads of queries together.
    __device__ u32 width() const { return heads * D; }

    /// Elements of one position of queries, keys and values.
    __device__ u32 step() const { return (heads + 2 * groups) * D; }

    /// The head's queries (0), keys (1) or values (2) of the first position; rows are a step apart.
    __device__ const T* part(const T* qkv, u32 which) const {
        u32 column = which == 0 ? head : heads + (which - 1) * groups + head / (heads / groups);
        return qkv + (u64)sample * len * step() + (u64)column * D;
    }

    /// The first tile of N keys that the block's queries see; each sees `window` positions, its own
    /// included, and at most `len`. Hence the key j of query i is seen if i − j, unsigned, is below the window.
    template <u32 N>
    __device__ u32 first_tile(u32 window) const {
        return first < window ? 0 : (first + 1 - window) / N;
    }

    /// The head's part of the first position in a tensor without the three parts; rows are a width apart.
    __device__ const T* single(const T* x) const {
        return x + (u64)sample * len * width() + (u64)head * D;
    }

    /// The head's first element in a tensor with one element per position.
    __device__ u64 scalars() const { return ((u64)sample * heads + head) * len; }
};

/// How ROWS rows of D elements lie in shared memory.
template <class F, u32 D, u32 ROWS>
struct Tile {
    /// Bytes of D elements.
    static constexpr u32 ROW = sizeof(typename F::Element) * D;
    /// Bytes from row to row: an odd number of 16 bytes, so that the 8 rows of a matrix lie in different banks. Warpgroups
    /// take rows of 128 bytes; of longer ones, the first 128 bytes of all rows come before the next ones.
    static constexpr u32 STRIDE = F::BY_WARPGROUPS ? 128 : ROW + 16;
    static constexpr u32 BYTES = F::BY_WARPGROUPS ? ROWS * ROW : ROWS * STRIDE;
    /// Where tiles begin: at multiples of these bytes.
    static constexpr u32 ALIGNMENT = F::BY_WARPGROUPS ? 1024 : 16;
    static_assert(!F::BY_WARPGROUPS || (ROW % 128 == 0 && BYTES % ALIGNMENT == 0), "whole matrices");

    /// The first place for a tile from here on.
    __device__ static u32 first_place(u32 at) { return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

    /// The place of 16 bytes of a row.
    __device__ static u32 place(u32 row, u32 chunk) {
        if constexpr (F::BY_WARPGROUPS) {
            return (chunk / 8 * ROWS + row) * STRIDE + (chunk % 8 ^ row % 8) * 16;
        } else {
            return row * STRIDE + 16 * chunk;
        }
    }
};

/// Begins to copy ROWS rows of D elements, `step` elements apart, from row `first` on; zeros beyond `len`.
template <class F, u32 D, u32 ROWS, class T = typename F::Element>
__device__ inline void fetch_rows(u32 to, const T* x, u32 step, u32 first, u32 len) {
    constexpr u32 AT_ONCE = 16 / sizeof(T), CHUNKS = D / AT_ONCE;
#pragma unroll(F::BY_WARPGROUPS ? ROWS * CHUNKS / THREADS : 1)
    for (u32 begin = 0; begin < ROWS * CHUNKS; begin += THREADS) {
        u32 e = begin + threadIdx.x;
        if (ROWS * CHUNKS % THREADS != 0 && e >= ROWS * CHUNKS) break;
        u32 row = e / CHUNKS, chunk = e % CHUNKS;
        u32 from = first + row;
        bool there = from < len;
        copy_16(to + Tile<F, D, ROWS>::place(row, chunk), x + (u64)(there ? from : 0) * step + AT_ONCE * chunk, there);
    }
}

/// Begins to copy one float for each of `rows` positions from `first` on; zeros beyond `len`.
__device__ inline void fetch_scalars(u32 to, u32 rows, const float* x, u32 first, u32 len) {
    if (threadIdx.x < rows) {
        u32 from = first + threadIdx.x;
        bool there = from < len;
        copy_4(to + 4 * threadIdx.x, x + (there ? from : 0), there);
    }
}

/// Waits for the copies that all threads of the block have begun.
template <class F>
__device__ inline void wait_for_tiles() {
    wait_for_copies();
#ifdef WARPGROUP_PRODUCTS
    if constexpr (F::BY_WARPGROUPS) show_to_products();
#endif
    __syncthreads();
}

/// The rows of a block that a warp multiplies, as left factors.
template <class F, u32 D, u32 ROWS, bool BY_WARPGROUPS = F::BY_WARPGROUPS>
struct OwnRows {
    /// Bytes of shared memory that they take as long as they are used.
    static constexpr u32 BYTES = 0;

    /// 16 rows, as fragments.
    u32 fragments[D / F::TERMS][4];

    /// The warp's own 16 of ROWS rows of x from `first` on: from `own` on. All of them pass through shared memory from `base`
    /// on, as many at a time as there is room for.
    __device__ OwnRows(u32, u32 base, const typename F::Element* x, u32 step, u32 first, u32 len, u32 own) {
        constexpr u32 AT_ONCE = Tile<F, D, ROWS>::BYTES > 46 * 1024 ? ROWS / 2 : ROWS;
#pragma unroll
        for (u32 begin = 0; begin < ROWS; begin += AT_ONCE) {
            fetch_rows<F, D, AT_ONCE>(base, x, step, first + begin, len);
            wait_for_copies();
            __syncthreads();
            if (own / AT_ONCE * AT_ONCE == begin) load(base, own - begin);
            __syncthreads();
        }
    }

    /// 16 rows of a tile from `row` on.
    __device__ void load(u32 tile, u32 row) {
        u32 at = tile + (row + lane() % 16) * Tile<F, D, ROWS>::STRIDE + lane() / 16 * 16;
#pragma unroll
        for (u32 k = 0; k < D / F::TERMS; k++) load_matrices(fragments[k], at + 32 * k);
    }
};

#ifdef WARPGROUP_PRODUCTS
/// Those of a warpgroup: 64 rows, which stay in shared memory.
template <class F, u32 D, u32 ROWS>
struct OwnRows<F, D, ROWS, true> {
    static constexpr u32 BYTES = Tile<F, D, ROWS>::BYTES;

    /// Where they lie, for products.
    u32 at;

    /// Begins to copy ROWS rows of x from `first` on to the `place`, a tile's. The warpgroup's own begin with those of its
    /// first warp; `own` are the warp's.
    __device__ OwnRows(u32 place, u32, const typename F::Element* x, u32 step, u32 first, u32 len, u32 own)
        : at(product_place(place + own / 64 * 64 * Tile<F, D, ROWS>::STRIDE)) {
        fetch_rows<F, D, ROWS>(place, x, step, first, len);
        // From here on all threads may read what HeadTile::keep has put there.
        __syncthreads();
    }

    /// 16 terms of them.
    __device__ u64 matrix(u32 k) const {
        return product_matrix(at + (k / 4 * ROWS * Tile<F, D, ROWS>::STRIDE + k % 4 * 32) / 16);
    }
};
#endif

/// sums = rows · tileᵀ, over a tile of N rows. Those of warpgroups are there once they were waited for.
template <class F, u32 D, u32 N, u32 ROWS>
__device__ inline void multiply_by_rows(float (&sums)[N / 8][4], const OwnRows<F, D, ROWS>& rows, u32 tile) {
    constexpr u32 STRIDE = Tile<F, D, N>::STRIDE;
#ifdef WARPGROUP_PRODUCTS
    if constexpr (F::BY_WARPGROUPS) {
        u32 place = product_place(tile);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < D / F::TERMS; k++) {
            begin_product(sums, rows.matrix(k), product_matrix(place + (k / 4 * N * STRIDE + k % 4 * 32) / 16), k > 0);
        }
        commit_products();
    } else
#endif
    {
#pragma unroll
        for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) sums[n][i] = 0.0f;
        }
        u32 at = tile + (lane() % 8 + lane() / 16 * 8) * STRIDE + lane() / 8 % 2 * 16;
#pragma unroll
        for (u32 k = 0; k < D / F::TERMS; k++) {
            typename F::Left left(rows.fragments[k]);
#pragma unroll
            for (u32 n = 0; n < N / 16; n++) {
                u32 b[4];
                load_matrices(b, at + n * 16 * STRIDE + 32 * k);
                F::add_product(sums[2 * n], left, b[0], b[1]);
                F::add_product(sums[2 * n + 1], left, b[2], b[3]);
            }
        }
    }
}

/// Results of a product as left factors of the next one.
template <class F, u32 N>
__device__ inline void as_left_factors(typename F::Left (&left)[N / F::TERMS], const float (&results)[N / 8][4]) {
    if constexpr (sizeof(typename F::Element) == 2) {
#pragma unroll
        for (u32 k = 0; k < N / 16; k++) {
            // Two neighbours are one factor.
            const float(&first)[4] = results[2 * k], (&second)[4] = results[2 * k + 1];
            left[k] = typename F::Left({pack(first[0], first[1]), pack(first[2], first[3]), pack(second[0], second[1]),
                                        pack(second[2], second[3])});
        }
    } else {
        // A result is a factor if the next product takes its terms in another order: lane (g, t) has the results of columns 2t
        // and 2t + 1, and is to give the terms t and t + 4.
#pragma unroll
        for (u32 k = 0; k < N / 8; k++) {
            const float(&w)[4] = results[k];
            left[k] = typename F::Left({__float_as_uint(w[0]), __float_as_uint(w[2]), __float_as_uint(w[1]),
                                        __float_as_uint(w[3])});
        }
    }
}

/// Waits for the results of warpgroups.
template <class F, u32 N>
__device__ inline void wait_for_results(float (&results)[N][4]) {
#ifdef WARPGROUP_PRODUCTS
    if constexpr (F::BY_WARPGROUPS) {
        wait_for_products();
        hold_results(results);
    }
#endif
}

/// Waits for the results of warpgroups but those of the last group.
template <class F, u32 N>
__device__ inline void wait_for_older_results(float (&results)[N][4]) {
#ifdef WARPGROUP_PRODUCTS
    if constexpr (F::BY_WARPGROUPS) {
        wait_for_older_products();
        hold_results(results);
    }
#endif
}

/// Rows that multiply together: those of a warp, or of a warpgroup.
template <class F>
__device__ constexpr u32 rows_together() {
    return F::BY_WARPGROUPS ? 64 : 16;
}

/// How far the last warp's rows that multiply together with the warp's own are behind those.
template <class F>
__device__ inline u32 last_rows() {
    return F::BY_WARPGROUPS ? 48 - warp() % 4 * 16 : 0;
}

/// sums += weights · tile, over C columns from `column` on of a tile of N rows. Those of warpgroups are there once they were
/// waited for.
template <class F, u32 D, u32 N, u32 C>
__device__ inline void add_weighted_rows(float (&sums)[C / 8][4], const typename F::Left (&weights)[N / F::TERMS], u32 tile,
                                         u32 column) {
    constexpr u32 STRIDE = Tile<F, D, N>::STRIDE;
#ifdef WARPGROUP_PRODUCTS
    if constexpr (F::BY_WARPGROUPS) {
        u32 place = product_place(tile + column / 64 * N * STRIDE);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < N / 16; k++) {
#pragma unroll
            for (u32 c = 0; c < C / 64; c++) {
                u64 matrix = product_matrix(place + (c * N + 16 * k) * STRIDE / 16);
                begin_product<true>(*(float(*)[8][4])&sums[8 * c], weights[k].words, matrix, true);
            }
        }
        commit_products();
    } else
#endif
    if constexpr (sizeof(typename F::Element) == 2) {
        u32 at = tile + lane() % 16 * STRIDE + lane() / 16 * 16 + 2 * column;
#pragma unroll
        for (u32 k = 0; k < N / 16; k++) {
#pragma unroll
            for (u32 n = 0; n < C / 16; n++) {
                u32 b[4];
                load_transposed(b, at + k * 16 * STRIDE + 32 * n);
                F::add_product(sums[2 * n], weights[k], b[0], b[1]);
                F::add_product(sums[2 * n + 1], weights[k], b[2], b[3]);
            }
        }
    } else {
        u32 at = tile + lane() % 4 * 2 * STRIDE + 4 * (column + lane() / 4);
#pragma unroll
        for (u32 n = 0; n < C / 8; n++) {
            // Tensor cores cut sums off instead of rounding them: each tile has sums of its own, so that what is lost does not
            // grow with the number of tiles.
            float own[4] = {};
#pragma unroll
            for (u32 k = 0; k < N / 8; k++) {
                u32 from = at + k * 8 * STRIDE + 32 * n;
                u32 b0 = __float_as_uint(load_shared(from)), b1 = __float_as_uint(load_shared(from + STRIDE));
                F::add_product(own, weights[k], b0, b1);
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) sums[n][i] += own[i];
        }
    }
}

/// Stores two neighbours by one instruction.
__device__ inline void store_pair(bf16* to, float first, float second) { *(u32*)to = pack(first, second); }
__device__ inline void store_pair(float* to, float first, float second) {
    *(u64*)to = (u64)__float_as_uint(second) << 32 | __float_as_uint(first);
}

/// Stores 16 rows of C sums from `row` on, each row times one of two factors, where there are such rows.
template <u32 C, class T>
__device__ inline void store_rows(T* y, u32 step, u32 row, u32 len, const float (&sums)[C / 8][4],
                                  const float (&factors)[2]) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 at = row + lane() / 4 + 8 * half;
        if (at >= len) continue;
        T* to = y + (u64)at * step + lane() % 4 * 2;
#pragma unroll
        for (u32 n = 0; n < C / 8; n++) {
            store_pair(to + 8 * n, sums[n][2 * half] * factors[half], sums[n][2 * half + 1] * factors[half]);
        }
    }
}

/// Dropout's factors of the probabilities of one head of one sample.
struct HeadDropout {
    Mask mask;
    u64 sample;
    u64 first;
    u32 len;

    template <class T, u32 D>
    __device__ HeadDropout(const HeadTile<T, D>& head, Mask mask, u64 first_sample)
        : mask(mask), sample(first_sample + head.sample), first((u64)head.head * head.len), len(head.len) {}

    /// Which of a lane's N / 2 elements of a product are kept: bit 4n + i for element i of product n. The
    /// first of them is of row `left` and key `right`, or, transposed, of key `left` and row `right`. A loop, so that its code stays small.
    template <u32 N, bool TRANSPOSED>
    __device__ u32 kept(u32 left, u32 right) const {
        if (mask.threshold == 0) return ~0u;
        u32 bits = 0;
#pragma unroll 1
        for (u32 e = 0; e < N / 2; e++) {
            u32 own = left + e / 2 % 2 * 8, other = right + e / 4 * 8 + e % 2;
            u32 row = TRANSPOSED ? other : own, key = TRANSPOSED ? own : other;
            u64 element = (first + row) * len + key;
            bits |= (u32)(random_bits(mask.key, sample, element) >= mask.threshold) << e;
        }
        return bits;
    }

    __device__ float factor(u32 bits, u32 e) const { return bits >> e & 1 ? mask.kept : 0.0f; }
};

/// The results of a block's 128 queries, over tiles of N keys.
template <class F, u32 D, u32 N, class T = typename F::Element>
__device__ void attention_tiles(const T* qkv, T* out, float* lse, u32 len, u32 heads, u32 groups,
                                u32 window, float scale, u64 first_sample, u32 key_low, u32 key_high,
                                u32 threshold, float kept) {
    constexpr u32 ROWS = 128, TILE = Tile<F, D, N>::BYTES;
    HeadTile<T, D> head(len, heads, groups, heads, ROWS, true);
    head.keep(qkv);
    u32 step = head.step();
    using Own = OwnRows<F, D, ROWS>;
    u32 place = Tile<F, D, N>::first_place(shared_address(shared) + HeadTile<T, D>::KEPT), base = place + Own::BYTES;
    Own q(place, base, head.part(qkv, 0), step, head.first, len, 16 * warp());
    // How far the lane's first row is behind its first key of tile 0.
    u32 behind = head.first + 16 * warp() + lane() / 4 - lane() % 4 * 2;
    u32 end = head.first + ROWS < len ? head.first + ROWS : len;
    u32 tile = head.template first_tile<N>(window), tiles = (end + N - 1) / N;
    // Tiles lie in two places by turns.
    auto fetch = [&](u32 which) {
        const T* keys = head.keys_again();
        u32 to = base + which % 2 * (2 * TILE);
        fetch_rows<F, D, N>(to, keys, step, which * N, len);
        fetch_rows<F, D, N>(to + TILE, keys + groups * D, step, which * N, len);
    };
    fetch(tile);
    float result[D / 8][4] = {};
    float largest[2] = {NONE_SO_FAR, NONE_SO_FAR}, sums[2] = {0.0f, 0.0f};
    float scale2 = scale * LOG2_E;
    for (; tile < tiles; tile++) {
        // This tile is there, and nobody reads the one before it any more.
        wait_for_tiles<F>();
        u32 here = base + tile % 2 * (2 * TILE);
        if (tile + 1 < tiles) fetch(tile + 1);
        // None of the queries sees a key of it: tile and rows begin at multiples of 16.
        u32 apart = behind - tile * N;
        if ((int)(apart + last_rows<F>()) < -7) continue;
        float p[N / 8][4];
        multiply_by_rows<F, D, N, ROWS>(p, q, here);
        wait_for_results<F>(p);
        if ((int)apart < (int)N || apart + 8 >= window) {
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    if (apart + i / 2 * 8 - 8 * n - i % 2 >= window) p[n][i] = UNSEEN;
                }
            }
        }
        // Online softmax (Milakov and Gimelshein, arXiv:1805.02867), to the base 2.
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            float now = largest[half];
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) now = fmaxf(now, fmaxf(p[n][2 * half], p[n][2 * half + 1]));
            now = fmaxf(now, __shfl_xor_sync(ALL_LANES, now, 1));
            now = fmaxf(now, __shfl_xor_sync(ALL_LANES, now, 2));
            float shrink = exp2_fast((largest[half] - now) * scale2);
            float shift = now * scale2;
            // Four sums, none of which waits for another one.
            float sum[4] = {};
            largest[half] = now;
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
                    float& weight = p[n][2 * half + i];
                    weight = exp2_fast(fmaf(weight, scale2, -shift));
                    sum[n % 2 * 2 + i] += weight;
                }
            }
            sums[half] = fmaf(sums[half], shrink, (sum[0] + sum[1]) + (sum[2] + sum[3]));
#pragma unroll
            for (u32 n = 0; n < D / 8; n++) {
                result[n][2 * half] *= shrink;
                result[n][2 * half + 1] *= shrink;
            }
        }
        if (threshold != 0) {
            HeadTile<T, D> again = head.again();
            HeadDropout dropout(again, Mask{{key_low, key_high}, threshold, kept}, first_sample);
            u32 row = again.first + 16 * warp() + lane() / 4;
            u32 bits = dropout.template kept<N, false>(row, row - apart);
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) p[n][i] *= dropout.factor(bits, 4 * n + i);
            }
        }
        typename F::Left weights[N / F::TERMS];
        as_left_factors<F, N>(weights, p);
        add_weighted_rows<F, D, N, D>(result, weights, here + TILE, 0);
        wait_for_results<F>(result);
    }
    HeadTile<T, D> again = head.again();
    float factors[2];
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        float sum = sums[half];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        factors[half] = 1.0f / sum;
        u32 at = again.first + 16 * warp() + lane() / 4 + 8 * half;
        if (lane() % 4 == 0 && at < len) {
            lse[again.scalars() + at] = fmaf(largest[half], scale, logf(sum));
        }
    }
    store_rows<D>((T*)again.single(out), again.width(), again.first + 16 * warp(), len, result, factors);
}

/// The gradients of a block's 128 queries, over tiles of N keys.
template <class F, u32 D, u32 N, class T = typename F::Element>
__device__ void attention_tiles_grad_queries(const T* qkv, const float* lse, const float* means,
                                             const T* d_out, T* dqkv, u32 len, u32 heads, u32 groups,
                                             u32 window, float scale, u64 first_sample, u32 key_low,
                                             u32 key_high, u32 threshold, float kept) {
    constexpr u32 ROWS = 128, TILE = Tile<F, D, N>::BYTES;
    HeadTile<T, D> head(len, heads, groups, heads, ROWS, true);
    head.keep(qkv);
    u32 step = head.step();
    using Own = OwnRows<F, D, ROWS>;
    u32 place = Tile<F, D, N>::first_place(shared_address(shared) + HeadTile<T, D>::KEPT + 8 * ROWS);
    u32 base = place + 2 * Own::BYTES;
    Own q(place, base, head.part(qkv, 0), step, head.first, len, 16 * warp());
    Own d(place + Own::BYTES, base, head.single(d_out), head.width(), head.first, len, 16 * warp());
    u32 row = head.first + 16 * warp();
    // Of each row, the logarithm of its sum, to the base 2, and its mean: exponents and slopes subtract them.
    float* subtrahends = shared + HeadTile<T, D>::KEPT / 4;
    if (threadIdx.x < ROWS) {
        u32 at = head.first + threadIdx.x;
        subtrahends[threadIdx.x] = at < len ? lse[head.scalars() + at] * LOG2_E : 0.0f;
        subtrahends[ROWS + threadIdx.x] = at < len ? means[head.scalars() + at] : 0.0f;
    }
    u32 end = head.first + ROWS < len ? head.first + ROWS : len;
    u32 tile = head.template first_tile<N>(window), tiles = (end + N - 1) / N;
    // Tiles lie in two places by turns.
    auto fetch = [&](u32 which) {
        const T* keys = head.keys_again();
        u32 to = base + which % 2 * (2 * TILE);
        fetch_rows<F, D, N>(to, keys, step, which * N, len);
        fetch_rows<F, D, N>(to + TILE, keys + groups * D, step, which * N, len);
    };
    fetch(tile);
    // How far the lane's first row is behind its first key of the tile.
    u32 apart = row + lane() / 4 - lane() % 4 * 2 - tile * N;
    float result[D / 8][4] = {};
    float scale2 = scale * LOG2_E;
    for (; tile < tiles; tile++, apart -= N) {
        wait_for_tiles<F>();
        u32 here = base + tile % 2 * (2 * TILE);
        if (tile + 1 < tiles) fetch(tile + 1);
        // None of the queries sees a key of it: tile and rows begin at multiples of 16.
        if ((int)(apart + last_rows<F>()) < -7) continue;
        float p[N / 8][4], slopes[N / 8][4];
        multiply_by_rows<F, D, N, ROWS>(p, q, here);
        multiply_by_rows<F, D, N, ROWS>(slopes, d, here + TILE);
        u32 bits = ~0u;
        if (threshold != 0) {
            HeadTile<T, D> again = head.again();
            HeadDropout dropout(again, Mask{{key_low, key_high}, threshold, kept}, first_sample);
            u32 row = again.first + 16 * warp() + lane() / 4;
            bits = dropout.template kept<N, false>(row, row - apart);
        }
        const float* own = subtrahends + 16 * warp() + lane() / 4;
        float shift[2] = {own[0], own[8]}, mean[2] = {own[ROWS], own[ROWS + 8]};
        wait_for_older_results<F>(p);
#pragma unroll
        for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) p[n][i] = exp2_fast(fmaf(p[n][i], scale2, -shift[i / 2]));
        }
        wait_for_results<F>(slopes);
        // Most tiles are seen as a whole.
        u32 behind = apart - lane() / 4 + lane() % 4 * 2;
        bool whole = threshold == 0 && (int)behind >= (int)N && behind + 15 < window;
        if (whole) {
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) slopes[n][i] = p[n][i] * (slopes[n][i] - mean[i / 2]);
            }
        } else {
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float factor = bits >> (4 * n + i) & 1 ? kept : 0.0f;
                    float slope = p[n][i] * fmaf(factor, slopes[n][i], -mean[i / 2]);
                    slopes[n][i] = apart + i / 2 * 8 - 8 * n - i % 2 < window ? slope : 0.0f;
                }
            }
        }
        typename F::Left weights[N / F::TERMS];
        as_left_factors<F, N>(weights, slopes);
        add_weighted_rows<F, D, N, D>(result, weights, here, 0);
        wait_for_results<F>(result);
    }
    float factors[2] = {scale, scale};
    HeadTile<T, D> again = head.again();
    store_rows<D>((T*)again.part(dqkv, 0), again.step(), again.first + 16 * warp(), len, result, factors);
}

/// The gradients of a block's 128 / S keys and values, over tiles of N queries. S warps share 16 rows: each
/// has its part of the columns.
template <class F, u32 D, u32 N, u32 S, class T = typename F::Element>
__device__ void attention_tiles_grad_keys(const T* qkv, const float* lse, const float* means,
                                          const T* d_out, T* dqkv, u32 len, u32 heads, u32 groups,
                                          u32 window, float scale, u64 first_sample, u32 key_low,
                                          u32 key_high, u32 threshold, float kept) {
    constexpr u32 ROWS = 128 / S, COLUMNS = D / S, TILE = Tile<F, D, N>::BYTES;
    HeadTile<T, D> head(len, heads, groups, groups, ROWS, false);
    head.keep(qkv);
    const T *queries = head.part(qkv, 0), *d_outs = head.single(d_out);
    u64 scalars = head.scalars();
    u32 step = head.step();
    using Own = OwnRows<F, D, ROWS>;
    u32 place = Tile<F, D, N>::first_place(shared_address(shared) + HeadTile<T, D>::KEPT), base = place + 2 * Own::BYTES;
    u32 own = 16 * (warp() % (8 / S)), column = COLUMNS * (warp() / (8 / S));
    Own k(place, base, head.part(qkv, 1), step, head.first, len, own);
    Own v(place + Own::BYTES, base, head.part(qkv, 2), step, head.first, len, own);
    // The tiles of queries that see a key of the block, for one head of its group after the other.
    u32 last = head.first + ROWS - 1 + window, end = last < len ? last : len;
    u32 first_tile = head.first / N, tiles = (end + N - 1) / N;
    u32 steps = heads / groups * (tiles - first_tile);
    auto fetch = [&](u32 which, u32 tile) {
        // Queries and gradients; behind those of both places, two floats a position.
        u32 to = base + which % 2 * (2 * TILE), floats = base + 4 * TILE + which % 2 * (8 * N);
        u32 from = tile * N;
        fetch_rows<F, D, N>(to, queries, step, from, len);
        fetch_rows<F, D, N>(to + TILE, d_outs, head.width(), from, len);
        fetch_scalars(floats, N, lse + scalars, from, len);
        fetch_scalars(floats + 4 * N, N, means + scalars, from, len);
    };
    fetch(0, first_tile);
    float dk[COLUMNS / 8][4] = {}, dv[COLUMNS / 8][4] = {};
    float scale2 = scale * LOG2_E;
    u32 row = head.first + own + lane() / 4;
    u32 tile = first_tile;
    for (u32 which = 0; which < steps; which++) {
        wait_for_tiles<F>();
        u32 next = tile + 1;
        bool next_head = next == tiles;
        if (next_head) {
            next = first_tile;
            queries += D;
            d_outs += D;
            scalars += len;
        }
        if (which + 1 < steps) fetch(which + 1, next);
        // The keys are seen from the first of them on.
        if ((tile + 1) * N > row / rows_together<F>() * rows_together<F>()) {
            u32 here = base + which % 2 * (2 * TILE);
            u32 floats = base - shared_address(shared) + 4 * TILE + which % 2 * (8 * N);
            const float* shifts = shared + floats / 4 + lane() % 4 * 2;
            float weights[N / 8][4], slopes[N / 8][4];
            multiply_by_rows<F, D, N, ROWS>(weights, k, here);
            multiply_by_rows<F, D, N, ROWS>(slopes, v, here + TILE);
            u32 query = tile * N + lane() % 4 * 2;
            u32 bits = ~0u;
            if (threshold != 0) {
                HeadTile<T, D> again = head.again();
                again.head += which / (tiles - first_tile);
                HeadDropout dropout(again, Mask{{key_low, key_high}, threshold, kept}, first_sample);
                bits = dropout.template kept<N, true>(row, query);
            }
            wait_for_older_results<F>(weights);
            // Most tiles see all of the warp's keys. Where warps multiply alone, to look for that takes more time than it saves.
            u32 first = row / 16 * 16;
            bool whole = F::BY_WARPGROUPS && tile * N > first && (tile + 1) * N - first <= window && (tile + 1) * N <= len;
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float shift = shifts[8 * n + i % 2] * LOG2_E;
                    weights[n][i] = exp2_fast(fmaf(weights[n][i], scale2, -shift));
                }
            }
            if (!whole) {
#pragma unroll
                for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        u32 at_query = query + 8 * n + i % 2, at_key = row + i / 2 * 8;
                        if (at_query - at_key >= window || at_query >= len) weights[n][i] = 0.0f;
                    }
                }
            }
            typename F::Left left[N / F::TERMS];
            if (threshold == 0) {
                as_left_factors<F, N>(left, weights);
            } else {
                float dropped[N / 8][4];
#pragma unroll
                for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) dropped[n][i] = weights[n][i] * (bits >> (4 * n + i) & 1 ? kept : 0.0f);
                }
                as_left_factors<F, N>(left, dropped);
            }
            add_weighted_rows<F, D, N, COLUMNS>(dv, left, here + TILE, column);
            wait_for_older_results<F>(slopes);
#pragma unroll
            for (u32 n = 0; n < N / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float mean = shifts[N + 8 * n + i % 2];
                    float factor = threshold == 0 || bits >> (4 * n + i) & 1 ? kept : 0.0f;
                    slopes[n][i] = weights[n][i] * fmaf(factor, slopes[n][i], -mean);
                }
            }
            as_left_factors<F, N>(left, slopes);
            add_weighted_rows<F, D, N, COLUMNS>(dk, left, here, column);
            wait_for_results<F>(dv);
            wait_for_results<F>(dk);
        }
        tile = next;
    }
    float once[2] = {1.0f, 1.0f}, scaled[2] = {scale, scale};
    HeadTile<T, D> again = head.again();
    row = row / 16 * 16;
    store_rows<COLUMNS>((T*)again.part(dqkv, 1) + column, step, row, len, dk, scaled);
    store_rows<COLUMNS>((T*)again.part(dqkv, 2) + column, step, row, len, dv, once);
}

#define SIZES_AND_DROPOUT                                                                                      \
    u32 len, u32 heads, u32 groups, u32 window, float scale, u64 first_sample, u32 key_low, u32 key_high,     \
        u32 threshold, float kept
#define GIVEN len, heads, groups, window, scale, first_sample, key_low, key_high, threshold, kept

// The kernels named NAME for one size of heads: elements of a head, keys a tile of the forward pass, keys or queries a tile of
// the gradients, warps that share rows.
#define ATTENTION_FOR(NAME, F, T, D, N, BACK, S)                                                            \
    __device__ void NAME##_##D(const T* qkv, T* out, float* lse, SIZES_AND_DROPOUT) {                          \
        attention_tiles<F, D, N>(qkv, out, lse, GIVEN);                                                    \
    }                                                                                                         \
    __device__ void NAME##_grad_queries_##D(const T* qkv, const float* lse, const float* means,               \
                                            const T* d_out, T* dqkv, SIZES_AND_DROPOUT) {                      \
        attention_tiles_grad_queries<F, D, BACK>(qkv, lse, means, d_out, dqkv, GIVEN);                     \
    }                                                                                                         \
    __device__ void NAME##_grad_keys_##D(const T* qkv, const float* lse, const float* means, const T* d_out,  \
                                         T* dqkv, SIZES_AND_DROPOUT) {                                        \
        attention_tiles_grad_keys<F, D, BACK, S>(qkv, lse, means, d_out, dqkv, GIVEN);                     \
    }

ATTENTION_FOR(attention, Bf16Factors, bf16, 32, 32, 32, 1)
ATTENTION_FOR(attention, Bf16Factors, bf16, 64, 64, 32, 1)
ATTENTION_FOR(attention, Bf16Factors, bf16, 80, 64, 32, 1)
ATTENTION_FOR(attention, Bf16Factors, bf16, 96, 32, 32, 2)
ATTENTION_FOR(attention, Bf16Factors, bf16, 128, 32, 32, 2)

// Tiles of f32 take twice the memory, and their rows twice the registers.
#define ATTENTION_F32_FOR(D, N, BACK, S)                                                                       \
    ATTENTION_FOR(attention_tf32, Tf32Factors, float, D, N, BACK, S)                                        \
    ATTENTION_FOR(attention_tf32x3, Tf32x3Factors, float, D, N, BACK, S)

ATTENTION_F32_FOR(32, 32, 16, 1)
ATTENTION_F32_FOR(64, 32, 16, 1)
ATTENTION_F32_FOR(80, 16, 16, 2)
ATTENTION_F32_FOR(96, 16, 16, 4)
ATTENTION_F32_FOR(128, 16, 16, 4)

#undef ATTENTION_F32_FOR

// Of warpgroups. Devices without them have empty kernels of these names, which nobody launches there.
#ifndef WARPGROUP_PRODUCTS
#undef ATTENTION_FOR
#define ATTENTION_FOR(NAME, F, T, D, N, BACK, S)                                                            \
    __device__ void NAME##_##D(const T*, T*, float*, SIZES_AND_DROPOUT) {}                                     \
    __device__ void NAME##_grad_queries_##D(const T*, const float*, const float*, const T*, T*,               \
                                            SIZES_AND_DROPOUT) {}                                             \
    __device__ void NAME##_grad_keys_##D(const T*, const float*, const float*, const T*, T*,                  \
                                         SIZES_AND_DROPOUT) {}
#endif

ATTENTION_FOR(attention_by_warpgroups, WarpgroupBf16Factors, bf16, 64, 64, 64, 1)
ATTENTION_FOR(attention_by_warpgroups, WarpgroupBf16Factors, bf16, 128, 64, 64, 2)

#undef ATTENTION_FOR
#undef GIVEN
#undef SIZES_AND_DROPOUT
