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
