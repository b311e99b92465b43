// Multiplication by a number, setting to a number, and conversion between types.

/// y = x · by; y may be x.
template <class T>
__device__ void scale(const T* x, T* y, u64 n, float by) {
    map<T>(x, y, n, [&](float x) { return x * by; });
}

template <class T>
__device__ void fill(T* y, u64 n, float value) {
    each_pack<T>(n, aligned(y), [&](Pack<T> pack) {
        typename Pack<T>::Values values;
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) values.at[e] = value;
        pack.write(y, values);
    });
}

/// Zeros for each row of a table of floats, number of elements and blocks before.
__device__ void zero_rows(const u64* table, u32 rows) {
    const u64* row = row_of(table, rows, 3);
    float* y = (float*)row[0];
    u64 n = row[1], begin = (blockIdx.x - row[2]) * CHUNK, end = begin + CHUNK < n ? begin + CHUNK : n;
    bool packed = aligned(y);
    for (u64 i = begin + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
        if (packed && i + 4 <= end) {
            *(Words*)(y + i) = Words{};
        } else {
            for (u64 e = i; e < end && e < i + 4; e++) y[e] = 0.0f;
        }
    }
}

/// From single precision.
template <class T>
__device__ void narrow(const float* x, T* y, u64 n) {
    map<T>(x, y, n, [](float x) { return x; });
}

/// To single precision.
template <class T>
__device__ void widen(const T* x, float* y, u64 n) {
    map<T>(x, y, n, [](float x) { return x; });
}
