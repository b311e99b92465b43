// Multiplication by a number, setting to a number, and conversion between types.

/// y = x · by; y may be x.
template <class T>
__device__ void scale(const T* x, T* y, u64 n, float by) {
    EACH(i, n) store(y, i, load(x, i) * by);
}

template <class T>
__device__ void fill(T* y, u64 n, float value) {
    EACH(i, n) store(y, i, value);
}

/// From single precision.
template <class T>
__device__ void narrow(const float* x, T* y, u64 n) {
    EACH(i, n) store(y, i, x[i]);
}

/// To single precision.
template <class T>
__device__ void widen(const T* x, float* y, u64 n) {
    EACH(i, n) y[i] = load(x, i);
}
