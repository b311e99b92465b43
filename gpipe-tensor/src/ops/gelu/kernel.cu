// Gaussian error linear unit of x plus an optional bias, repeated for every row.

constexpr float SCALE = (float)(1.12837916709551257390 * 0.70710678118654752440);
constexpr float CUBIC = 0.044715f;

/// sigma(2u) = (1 + tanh u)/2 for u = √(2/π)·(x + 0.044715·x³), and its derivative for x.
struct Sigmoid {
    float value;
    float slope;
};

__device__ inline Sigmoid sigmoid(float x) {
    // Beyond this magnitude the tanh form is exactly 0 or x.
    x = x > 10.7f ? 10.7f : x;
    x = x < -10.7f ? -10.7f : x;
    float square = x * x;
    float twice_u = x * fmaf(square, 2.0f * SCALE * CUBIC, 2.0f * SCALE);
    float e = exponential(-fabsf(twice_u));
    float upper = 1.0f / (1.0f + e);
    float lower = e * upper;
    float derivative = fmaf(square, 6.0f * SCALE * CUBIC, 2.0f * SCALE);
    return {x > 0.0f ? upper : lower, upper * lower * derivative};
}

struct TanhForm {
    __device__ static float value(float x) { return x * sigmoid(x).value; }
    __device__ static float slope(float x) {
        Sigmoid s = sigmoid(x);
        return fmaf(x, s.slope, s.value);
    }
};

struct ErfForm {
    __device__ static float value(float x) { return x * normal(x).cumulative; }
    __device__ static float slope(float x) {
        Normal at = normal(x);
        return fmaf(x * (0.5f * SCALE), at.bell, at.cumulative);
    }
};

template <class T>
__device__ float biased(const T* x, const T* bias, u64 i, u64 width) {
    return bias ? load(x, i) + load(bias, i % width) : load(x, i);
}

template <class Form, class T>
__device__ void gelu(const T* x, const T* bias, T* y, u64 n, u64 width) {
    EACH(i, n) store(y, i, Form::value(biased(x, bias, i, width)));
}

template <class Form, class T>
__device__ void gelu_grad(const T* x, const T* bias, const T* dy, T* dx, u64 n, u64 width) {
    EACH(i, n) store(dx, i, load(dy, i) * Form::slope(biased(x, bias, i, width)));
}

template <class T>
__device__ void gelu_tanh(const T* x, const T* bias, T* y, u64 n, u64 width) {
    gelu<TanhForm>(x, bias, y, n, width);
}

template <class T>
__device__ void gelu_erf(const T* x, const T* bias, T* y, u64 n, u64 width) {
    gelu<ErfForm>(x, bias, y, n, width);
}

template <class T>
__device__ void gelu_tanh_grad(const T* x, const T* bias, const T* dy, T* dx, u64 n, u64 width) {
    gelu_grad<TanhForm>(x, bias, dy, dx, n, width);
}

template <class T>
__device__ void gelu_erf_grad(const T* x, const T* bias, const T* dy, T* dx, u64 n, u64 width) {
    gelu_grad<ErfForm>(x, bias, dy, dx, n, width);
}
