// The rectifier.

/// y = x where positive, else 0; NaN stays NaN.
template <class T>
__device__ void relu(const T* x, T* y, u64 n) {
    EACH(i, n) {
        float value = load(x, i);
        store(y, i, value <= 0.0f ? 0.0f : value);
    }
}

/// dx = dy where the result y is not zero, else 0.
template <class T>
__device__ void relu_grad(const T* y, const T* dy, T* dx, u64 n) {
    EACH(i, n) store(dx, i, load(y, i) <= 0.0f ? 0.0f : load(dy, i));
}

/// y = x where positive, else slope · x; NaN stays NaN.
template <class T>
__device__ void leaky_relu(const T* x, T* y, u64 n, float slope) {
    EACH(i, n) {
        float value = load(x, i);
        store(y, i, value <= 0.0f ? slope * value : value);
    }
}

/// dx = dy where the result y is above zero, else slope · dy.
template <class T>
__device__ void leaky_relu_grad(const T* y, const T* dy, T* dx, u64 n, float slope) {
    EACH(i, n) {
        float value = load(dy, i);
        store(dx, i, load(y, i) <= 0.0f ? slope * value : value);
    }
}
