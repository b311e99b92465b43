// Sums of tensors, and a row repeated.

/// out = a + b, where b is repeated every `period` elements; out may be a.
template <class T>
__device__ void add(const T* a, const T* b, T* out, u64 n, u64 period) {
    if (n == period) return map<T>(a, b, out, n, Plus());
    each_pack<T>(n, aligned(a, out) && aligned_row(b, period), [&](Pack<T> pack) {
        auto values = pack.read(a), row = pack.read_row(b, period);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) values.at[e] += row.at[e];
        pack.write(out, values);
    });
}

/// sum = sum + x in single precision: the sum of gradients of any type.
template <class T>
__device__ void accumulate(float* sum, const T* x, u64 n) {
    map<T>(sum, x, sum, n, Plus());
}

/// out = row, row, row, …
template <class T>
__device__ void repeat(const T* row, T* out, u64 n, u64 period) {
    bool packed = aligned(out) && aligned_row(row, period);
    each_pack<T>(n, packed, [&](Pack<T> pack) { pack.write(out, pack.read_row(row, period)); });
}
