// Sums of tensors, and a row repeated.

/// out = a + b, where b is repeated every `period` elements; out may be a.
template <class T>
__device__ void add(const T* a, const T* b, T* out, u64 n, u64 period) {
    EACH(i, n) store(out, i, load(a, i) + load(b, n == period ? i : i % period));
}

/// sum = sum + x in single precision: the sum of gradients of any type.
template <class T>
__device__ void accumulate(float* sum, const T* x, u64 n) {
    EACH(i, n) sum[i] = sum[i] + load(x, i);
}

/// out = row, row, row, …
template <class T>
__device__ void repeat(const T* row, T* out, u64 n, u64 period) {
    EACH(i, n) out[i] = row[i % period];
}
