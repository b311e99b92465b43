// Sums and other reductions, in an order that depends on shapes only.

/// The most rows that are summed in single precision before their sum is added to one in double precision.
constexpr u64 RUN = 32;

/// The rows and columns of a block that sums over rows: each of its warps takes every eighth row of a span, `run` in all, each
/// lane a pack of columns. Blocks cover the columns of a span, then those of the next one.
template <class T>
struct RowSpan {
    static constexpr u32 N = Pack<T>::N;

    u64 width;
    /// The block's first column.
    u64 first;
    u64 index;
    /// The warp's first row, and the end of the span.
    u64 begin;
    u64 end;
    bool packed;

    /// Calls `body` for each of the warp's rows, with the lane's columns of it.
    template <class Body>
    __device__ void each(Body body) const {
        u64 column = first + lane() * N, row = begin;
        if (packed && column + N <= width) {
            // Several rows are read before the first is used.
#pragma unroll 4
            for (; row < end; row += warps()) {
                u64 start = row * width;
                body(row, Pack<T>{start + column, start + width, true});
            }
        }
        for (; row < end; row += warps()) {
            u64 start = row * width;
            body(row, Pack<T>{start + column, start + width, false});
        }
    }

    /// `aligned` says that all tensors are.
    __device__ RowSpan(u64 rows, u64 width, u64 run, bool aligned) : width(width) {
        u64 blocks = (width + WARP * N - 1) / (WARP * N);
        first = blockIdx.x % blocks * WARP * N;
        index = blockIdx.x / blocks;
        u64 start = index * run * warps();
        begin = start + warp();
        end = start + run * warps() < rows ? start + run * warps() : rows;
        packed = aligned && width % N == 0;
    }

    /// Writes the sum over the block's warps of what each has for its columns to a row of as many columns. The
    /// scratch memory holds N floats a thread.
    __device__ void join(const float (&sums)[N], float* row) const {
#pragma unroll
        for (u32 e = 0; e < N; e++) shared[(warp() * N + e) * WARP + lane()] = sums[e];
        __syncthreads();
        for (u32 place = threadIdx.x; place < N * WARP; place += blockDim.x) {
            double sum = 0.0;
            for (u32 w = 0; w < warps(); w++) sum += shared[w * N * WARP + place];
            u64 column = first + place % WARP * N + place / WARP;
            if (column < width) row[column] = (float)sum;
        }
    }
};

/// The sum over each span of rows: one row of `partials` per span.
template <class T>
__device__ void sum_rows(const T* x, float* partials, u64 rows, u64 width, u64 run) {
    RowSpan<T> span(rows, width, run, aligned(x));
    float sums[RowSpan<T>::N] = {};
    span.each([&](u64, Pack<T> pack) {
        auto values = pack.read(x);
#pragma unroll
        for (u32 e = 0; e < RowSpan<T>::N; e++) sums[e] += values.at[e];
    });
    span.join(sums, partials + span.index * width);
}

/// Columns of a block that joins spans.
constexpr u32 JOINED_COLUMNS = 8;

/// The spans' sums, added to what is in `out` if `adds` is not 0, in two levels: of a block's columns, each of 32 threads takes
/// every 32nd span, and the first one the sums of all.
__device__ inline void add_spans(const float* partials, float* out, u64 spans, u64 width, u32 adds) {
    double* sums = (double*)shared;
    u64 column = (u64)blockIdx.x * JOINED_COLUMNS + threadIdx.x % JOINED_COLUMNS;
    double sum = 0.0;
    if (column < width) {
        // Several are read before the first is used.
#pragma unroll 4
        for (u64 span = threadIdx.x / JOINED_COLUMNS; span < spans; span += blockDim.x / JOINED_COLUMNS) {
            sum += partials[span * width + column];
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= JOINED_COLUMNS || column >= width) return;
    for (u32 place = threadIdx.x + JOINED_COLUMNS; place < blockDim.x; place += JOINED_COLUMNS) sum += sums[place];
    // A sum of -0 is stored as it would be in a column of zeros.
    out[column] = (adds ? out[column] : 0.0f) + (float)sum;
}

/// The sum of each chunk of 16384 elements.
template <class T>
__device__ void sum(const T* x, double* partials, u64 n) {
    double sum = 0.0;
    EACH_OF_CHUNK(i, n) sum += load(x, i);
    sum = over_block<Plus>(sum, (double*)shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// The sum of the squares of one chunk of n; squares are exact in double precision.
template <class T>
__device__ inline double squares_of_chunk(const T* x, u64 chunk, u64 n) {
    double sum = 0.0;
    u64 begin = chunk * CHUNK;
    for (u64 i = begin + threadIdx.x; i < n && i < begin + CHUNK; i += blockDim.x) {
        double value = load(x, i);
        sum += value * value;
    }
    return over_block<Plus>(sum, (double*)shared);
}

/// The sum of the squares of each chunk.
template <class T>
__device__ void sum_of_squares(const T* x, double* partials, u64 n) {
    double sum = squares_of_chunk(x, blockIdx.x, n);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// The same for each row of a table of floats, number of elements and blocks before.
template <class T>
__device__ void sum_of_squares_rows(const u64* table, double* partials, u32 rows) {
    const u64* row = row_of(table, rows, 3);
    double sum = squares_of_chunk((const T*)row[0], blockIdx.x - row[2], row[1]);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// The bits of the largest magnitude of each chunk. Bits are ordered as magnitudes, with infinity and
/// then NaN above all.
template <class T>
__device__ void max_abs(const T* x, u32* partials, u64 n) {
    u32 largest = 0;
    EACH_OF_CHUNK(i, n) largest = Larger()(largest, __float_as_uint(fabsf(load(x, i))));
    largest = over_block<Larger>(largest, (u32*)shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = largest;
}
