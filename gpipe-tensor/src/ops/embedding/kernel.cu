// Rows of a table, by index.

/// y = the row of the table at each index.
template <class T>
__device__ void embedding(const u32* ids, const T* table, T* y, u64 n, u64 width) {
    EACH(i, n) y[i] = table[ids[i / width] * width + i % width];
}

/// The positions of indices in segments, as the host lists them.
struct EmbeddingSegments {
    const u32* order;
    const u32* starts;
    const u32* owners;
    const u32* places;
    const u32* firsts;
    const u32* words;

    __device__ EmbeddingSegments(const u32* list, u64 positions, u64 segments, u64 several) {
        order = list;
        starts = order + positions;
        owners = starts + segments + 1;
        places = owners + segments;
        firsts = places + segments;
        words = firsts + several + 1;
    }
};

/// What stands for the place of a sum that a segment does not have.
constexpr u32 ALONE = 0xffffffffu;

/// Adds the rows of dy of each segment, in ascending order: to the row of the table, where the segment is all of its
/// index, else to nothing, as a row of `sums`. A warp for each pack of columns a lane of each segment.
template <class T>
__device__ void embedding_grad(const u32* list, const T* dy, float* table, float* sums, u64 positions,
                               u64 segments, u64 several, u64 width) {
    constexpr u32 N = Pack<T>::N;
    EmbeddingSegments of(list, positions, segments, several);
    u64 pieces = (width + WARP * N - 1) / (WARP * N);
    u64 item = (u64)blockIdx.x * warps() + warp();
    u64 segment = item / pieces;
    if (segment >= segments) return;
    u64 column = (item % pieces * WARP + lane()) * N;
    u32 begin = of.starts[segment], end = of.starts[segment + 1];
    if (begin == end || column >= width) return;
    bool packed = aligned(dy, table, sums) && width % N == 0;
    auto at = [&](u64 row) { return Pack<T>{row * width + column, (row + 1) * width, packed}; };
    u32 place = of.places[segment];
    Pack<T> to = at(place == ALONE ? of.owners[segment] : place);
    float* rows = place == ALONE ? table : sums;
    typename Pack<T>::Values total = {};
    if (place == ALONE) total = to.read(rows);
#pragma unroll 4
    for (u32 i = begin; i < end; i++) {
        auto values = at(of.order[i]).read(dy);
#pragma unroll
        for (u32 e = 0; e < N; e++) total.at[e] += values.at[e];
    }
    to.write(rows, total);
}

/// Adds the sums of each index of several segments to its row of the table, in two levels as `add_spans`.
__device__ inline void embedding_grad_sums(const u32* list, const float* sums, float* table, u64 positions,
                                           u64 segments, u64 several, u64 width) {
    double* joined = (double*)shared;
    EmbeddingSegments of(list, positions, segments, several);
    u64 pieces = (width + WARP - 1) / WARP;
    u64 word = blockIdx.x / pieces;
    u64 column = blockIdx.x % pieces * WARP + lane();
    u32 begin = of.firsts[word], end = of.firsts[word + 1];
    if (begin == end) return;
    double sum = 0.0;
    if (column < width) {
        for (u32 i = begin + warp(); i < end; i += warps()) sum += sums[i * width + column];
    }
    joined[threadIdx.x] = sum;
    __syncthreads();
    if (warp() > 0 || column >= width) return;
    for (u32 w = 1; w < warps(); w++) sum += joined[w * WARP + lane()];
    u64 at = of.words[word] * width + column;
    table[at] += (float)sum;
}
