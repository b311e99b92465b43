// Cross-entropy of logits with target indices: one block per row, for rows of any length, `row_stride` elements apart.

/// Target of a row that is ignored.
constexpr u32 IGNORE = 0xffffffffu;

/// The largest logit of the block's row, and the sum of e^(logit - largest).
struct Normalizer {
    float largest;
    double sum;
};

/// The thread's packs of the block's row.
template <class T>
__device__ RowPacks<T> packs_of(const T* row, u64 width) {
    return {0, width, aligned(row), threadIdx.x, blockDim.x};
}

/// Floats of shared memory that `over_block` takes.
constexpr u32 SCRATCH = 16;

/// A copy of the block's row in shared memory, of which each thread has its own packs: what it reads twice comes from memory once.
template <class T>
__device__ const T* kept(const T* row, u64 width) {
    T* copy = (T*)(shared + SCRATCH);
    u32 to = shared_address(copy);
    packs_of<T>(row, width).each([&](Pack<T> pack, Pack<T>) {
        if (pack.whole) {
            copy_16(to + (u32)(pack.first * sizeof(T)), row + pack.first, true);
        } else {
            pack.write(copy, pack.read(row));
        }
    });
    wait_for_copies();
    return copy;
}

/// Both in one pass (Milakov and Gimelshein, arXiv:1805.02867): a larger logit scales the sum so far down.
template <class T>
__device__ Normalizer normalizer(const T* row, u64 width) {
    float largest = -infinity();
    double sum = 0.0;
    packs_of<T>(row, width).each([&](Pack<T> pack, Pack<T>) {
        auto logits = pack.read(row, -infinity());
        float before = largest;
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) largest = larger(largest, logits.at[e]);
        // None of the logits so far may be above -infinity.
        float shift = largest == -infinity() ? 0.0f : largest, more = 0.0f;
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) more += For<T>::exponential(logits.at[e] - shift);
        if (largest > before) sum *= For<T>::exponential(before - largest);
        sum += more;
    });
    float of_all = over_block<Larger>(largest, shared);
    // A thread without logits has no share in the sum.
    if (sum != 0.0) sum *= For<T>::exponential(largest - of_all);
    return {of_all, over_block<Plus>(sum, (double*)shared)};
}

/// What smoothed labels add to the loss of the block's row: smoothing·aim - elsewhere·Σ of the other logits.
template <class T>
__device__ double smoothed(const T* row, u64 width, float aim, double smoothing, double elsewhere) {
    if (smoothing == 0.0) return 0.0;
    double sum = 0.0;
    packs_of<T>(row, width).each([&](Pack<T> pack, Pack<T>) {
        auto logits = pack.read(row);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) sum += (double)logits.at[e];
    });
    sum = over_block<Plus>(sum, (double*)shared);
    return smoothing * (double)aim - elsewhere * (sum - (double)aim);
}

/// Writes the loss of the block's row and overwrites its logits with their gradient, both times `weight`. The row
/// should have the probability 1 - smoothing at the target, and `elsewhere` at every other class. `KEEPS` says that there is shared
/// memory for the row.
template <bool KEEPS, class T>
__device__ void cross_entropy_of_row(T* logits, const u32* targets, double* losses, u64 width, u64 row_stride,
                                     double divisor, double smoothing, double elsewhere, double weight) {
    T* row = logits + blockIdx.x * row_stride;
    u32 target = targets[blockIdx.x];
    if (target == IGNORE || weight == 0.0) {
        packs_of<T>(row, width).each([&](Pack<T> pack, Pack<T>) { pack.write(row, {}); });
        if (threadIdx.x == 0) losses[blockIdx.x] = 0.0;
        return;
    }
    float aim = load(row, target);
    const T* found = KEEPS ? kept(row, width) : row;
    double more = smoothed(found, width, aim, smoothing, elsewhere);
    Normalizer all = normalizer(found, width);
    double loss = log(all.sum) + ((double)all.largest - (double)aim) + more;
    if (threadIdx.x == 0) losses[blockIdx.x] = weight * loss;
    float factor = (float)(weight / (all.sum * divisor));
    float other = (float)(weight * elsewhere / divisor);
    float share = (float)(weight * (1.0 - smoothing - elsewhere) / divisor);
    packs_of<T>(row, width).each([&](Pack<T> pack, Pack<T>) {
        auto values = pack.read(found);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            float gradient = For<T>::exponential(values.at[e] - all.largest) * factor - other;
            values.at[e] = pack.first + e == target ? gradient - share : gradient;
        }
        pack.write(row, values);
    });
}

/// Writes each row's loss and overwrites the logits with their gradient. `keeps` says that there is shared memory for a row.
template <class T>
__device__ void cross_entropy(T* logits, const u32* targets, double* losses, u64 width, u64 row_stride, double divisor,
                              double smoothing, double elsewhere, u32 keeps) {
    const double weight = 1.0;
    if (keeps) {
        cross_entropy_of_row<true>(logits, targets, losses, width, row_stride, divisor, smoothing, elsewhere, weight);
    } else {
        cross_entropy_of_row<false>(logits, targets, losses, width, row_stride, divisor, smoothing, elsewhere, weight);
    }
}

/// The same with a weight for each row; a row of weight 0 is ignored.
template <class T>
__device__ void weighted_cross_entropy(T* logits, const u32* targets, const float* weights, double* losses, u64 width,
                                       u64 row_stride, double divisor, double smoothing, double elsewhere, u32 keeps) {
    const double weight = (double)weights[blockIdx.x];
    if (keeps) {
        cross_entropy_of_row<true>(logits, targets, losses, width, row_stride, divisor, smoothing, elsewhere, weight);
    } else {
        cross_entropy_of_row<false>(logits, targets, losses, width, row_stride, divisor, smoothing, elsewhere, weight);
    }
}

/// Writes each row's loss: the same bits as `cross_entropy`.
template <class T>
__device__ void cross_entropy_loss(const T* logits, const u32* targets, double* losses, u64 width,
                                   u64 row_stride, double smoothing, double elsewhere) {
    const T* row = logits + blockIdx.x * row_stride;
    u32 target = targets[blockIdx.x];
    if (target == IGNORE) {
        if (threadIdx.x == 0) losses[blockIdx.x] = 0.0;
        return;
    }
    float aim = load(row, target);
    double more = smoothed(row, width, aim, smoothing, elsewhere);
    Normalizer all = normalizer(row, width);
    double loss = log(all.sum) + ((double)all.largest - (double)aim) + more;
    if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

/// A logit and its index.
struct Best {
    float logit;
    u32 place;
};

/// The larger logit; the first of equal ones.
struct First {
    __device__ Best operator()(Best a, Best b) const {
        return b.logit > a.logit || (b.logit == a.logit && b.place < a.place) ? b : a;
    }
};

/// Writes 1 for each row whose largest logit (the first of equal ones) is that of the target, else 0.
template <class T>
__device__ void correct(const T* logits, const u32* targets, u32* hits, u64 width, u64 row_stride) {
    const T* row = logits + blockIdx.x * row_stride;
    Best best = {-infinity(), IGNORE};
    for (u64 c = threadIdx.x; c < width; c += blockDim.x) {
        best = First()(best, Best{load(row, c), (u32)c});
    }
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        Best other = {__shfl_xor_sync(ALL_LANES, best.logit, distance),
                      __shfl_xor_sync(ALL_LANES, best.place, distance)};
        best = First()(best, other);
    }
    Best* scratch = (Best*)shared;
    if (lane() == 0) scratch[warp()] = best;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (u32 w = 1; w < warps(); w++) best = First()(best, scratch[w]);
    u32 target = targets[blockIdx.x];
    hits[blockIdx.x] = target != IGNORE && best.place == target ? 1 : 0;
}
