// The rectifier.

/// y = x where positive, else 0; NaN stays NaN.
template <class T>
__device__ void relu(const T* x, T* y, u64 n) {
    map<T>(x, y, n, [](float x) { return x <= 0.0f ? 0.0f : x; });
}

/// dx = dy where the result y is not zero, else 0.
template <class T>
__device__ void relu_grad(const T* y, const T* dy, T* dx, u64 n) {
    map<T>(y, dy, dx, n, [](float y, float dy) { return y <= 0.0f ? 0.0f : dy; });
}

/// y = x where positive, else slope · x; NaN stays NaN.
template <class T>
__device__ void leaky_relu(const T* x, T* y, u64 n, float slope) {
    map<T>(x, y, n, [&](float x) { return x <= 0.0f ? slope * x : x; });
}

/// dx = dy where the result y is above zero, else slope · dy.
template <class T>
__device__ void leaky_relu_grad(const T* y, const T* dy, T* dx, u64 n, float slope) {
    map<T>(y, dy, dx, n, [&](float y, float dy) { return y <= 0.0f ? slope * dy : dy; });
}
