// Sums and other reductions, in an order that depends on shapes only.

/// Rows summed in single precision before their sum is added to one in double precision.
constexpr u64 RUN = 32;

/// A thread's column and rows: blocks cover the columns of a run of rows, then those of the next run.
struct RowRun {
    u64 column;
    u64 index;
    u64 begin;
    u64 end;

    __device__ RowRun(u64 rows, u64 width) {
        u64 blocks = (width + blockDim.x - 1) / blockDim.x;
        column = blockIdx.x % blocks * blockDim.x + threadIdx.x;
        index = blockIdx.x / blocks;
        begin = index * RUN;
        end = begin + RUN < rows ? begin + RUN : rows;
    }
};

/// The sum over each run of 32 rows: one row of `partials` per run.
template <class T>
__device__ void sum_rows(const T* x, float* partials, u64 rows, u64 width) {
    RowRun run(rows, width);
    if (run.column >= width) return;
    float sum = 0.0f;
    for (u64 row = run.begin; row < run.end; row++) sum += load(x, row * width + run.column);
    partials[run.index * width + run.column] = sum;
}

/// The runs' sums, added to what is in `out` if `adds` is not 0, in two levels: of a block's 32 columns, each warp
/// takes every eighth run, and the first warp the sums of all.
__device__ inline void add_runs(const float* partials, float* out, u64 runs, u64 width, u32 adds) {
    double* sums = (double*)shared;
    u64 column = (u64)blockIdx.x * WARP + lane();
    double sum = 0.0;
    if (column < width) {
        for (u64 run = warp(); run < runs; run += warps()) sum += partials[run * width + column];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp() > 0 || column >= width) return;
    for (u32 w = 1; w < warps(); w++) sum += sums[w * WARP + lane()];
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
