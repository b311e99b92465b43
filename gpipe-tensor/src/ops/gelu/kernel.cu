// Gaussian error linear unit of x plus an optional bias, repeated for every row.

constexpr float SCALE = (float)(1.12837916709551257390 * 0.70710678118654752440);
constexpr float CUBIC = 0.044715f;

/// sigma(2u) = (1 + tanh u)/2 for u = √(2/π)·(x + 0.044715·x³), and its derivative for x.
struct Sigmoid {
    float value;
    float slope;
};

template <class T>
__device__ Sigmoid sigmoid(float x) {
    // Beyond this magnitude the tanh form is exactly 0 or x.
    x = x > 10.7f ? 10.7f : x;
    x = x < -10.7f ? -10.7f : x;
    float square = x * x;
    float twice_u = x * fmaf(square, 2.0f * SCALE * CUBIC, 2.0f * SCALE);
    float e = For<T>::exponential(-fabsf(twice_u));
    float upper = For<T>::reciprocal(1.0f + e);
    float lower = e * upper;
    float derivative = fmaf(square, 6.0f * SCALE * CUBIC, 2.0f * SCALE);
    return {x > 0.0f ? upper : lower, upper * lower * derivative};
}

/// GELU at x, and its derivative.
struct Curve {
    float value;
    float slope;
};

struct TanhForm {
    template <class T>
    __device__ static Curve at(float x) {
        Sigmoid s = sigmoid<T>(x);
        return {x * s.value, fmaf(x, s.slope, s.value)};
    }
};

struct ErfForm {
    template <class T>
    __device__ static Curve at(float x) {
        Normal n = normal(x);
        return {x * n.cumulative, fmaf(x * (0.5f * SCALE), n.bell, n.cumulative)};
    }
};

/// The pack's elements of x, plus the bias unless that is null.
template <class T>
__device__ auto biased(Pack<T> pack, const T* x, const T* bias, u64 width) {
    auto sum = pack.read(x);
    if (bias) {
        auto row = pack.read_row(bias, width);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) sum.at[e] += row.at[e];
    }
    return sum;
}

template <class Form, class T>
__device__ void gelu(const T* x, const T* bias, T* y, u64 n, u64 width) {
    bool packed = aligned(x, y) && (!bias || aligned_row(bias, width));
    each_pack<T>(n, packed, [&](Pack<T> pack) {
        auto values = biased(pack, x, bias, width);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) values.at[e] = Form::template at<T>(values.at[e]).value;
        pack.write(y, values);
    });
}

template <class Form, class T>
__device__ void gelu_grad(const T* x, const T* bias, const T* dy, T* dx, u64 n, u64 width) {
    bool packed = aligned(x, dy, dx) && (!bias || aligned_row(bias, width));
    each_pack<T>(n, packed, [&](Pack<T> pack) {
        auto at = biased(pack, x, bias, width), slopes = pack.read(dy);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) slopes.at[e] *= Form::template at<T>(at.at[e]).slope;
        pack.write(dx, slopes);
    });
}

/// Writes GELU of x to y and the gradient over dy: the bits of the two above.
template <class Form, class T>
__device__ void gelu_with_grad(const T* x, T* y, T* dy, u64 n) {
    each_pack<T>(n, aligned(x, y, dy), [&](Pack<T> pack) {
        auto values = pack.read(x), slopes = pack.read(dy);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            Curve curve = Form::template at<T>(values.at[e]);
            slopes.at[e] *= curve.slope;
            values.at[e] = curve.value;
        }
        pack.write(y, values);
        pack.write(dy, slopes);
    });
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

template <class T>
__device__ void gelu_tanh_with_grad(const T* x, T* y, T* dy, u64 n) {
    gelu_with_grad<TanhForm>(x, y, dy, n);
}

template <class T>
__device__ void gelu_erf_with_grad(const T* x, T* y, T* dy, u64 n) {
    gelu_with_grad<ErfForm>(x, y, dy, n);
}
