// f(gate)·up, element by element.

/// x·sigma(x), from e^-|x|, which cannot overflow.
struct SiluForm {
    template <class T>
    __device__ static Curve at(float x) {
        float e = For<T>::exponential(-fabsf(x));
        float upper = For<T>::reciprocal(1.0f + e);
        float lower = e * upper;
        float sigma = x > 0.0f ? upper : lower;
        float rest = x > 0.0f ? lower : upper;
        float silu = x * sigma;
        return {silu, fmaf(silu, rest, sigma)};
    }
};

template <class Form, class T>
__device__ void glu(const T* gate, const T* up, T* y, u64 n) {
    map<T>(gate, up, y, n, [](float gate, float up) { return Form::template at<T>(gate).value * up; });
}

/// Writes the gradients over `gate` and `up`, and the result over `dy`.
template <class Form, class T>
__device__ void glu_with_grad(T* gate, T* up, T* dy, u64 n) {
    each_pack<T>(n, aligned(gate, up, dy), [&](Pack<T> pack) {
        auto gates = pack.read(gate), factors = pack.read(up), slopes = pack.read(dy);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            float factor = factors.at[e], slope_y = slopes.at[e];
            Curve curve = Form::template at<T>(gates.at[e]);
            gates.at[e] = slope_y * factor * curve.slope;
            factors.at[e] = slope_y * curve.value;
            slopes.at[e] = curve.value * factor;
        }
        pack.write(gate, gates);
        pack.write(up, factors);
        pack.write(dy, slopes);
    });
}

template <class T>
__device__ void swiglu(const T* gate, const T* up, T* y, u64 n) {
    glu<SiluForm>(gate, up, y, n);
}

template <class T>
__device__ void geglu(const T* gate, const T* up, T* y, u64 n) {
    glu<TanhForm>(gate, up, y, n);
}

template <class T>
__device__ void swiglu_with_grad(T* gate, T* up, T* dy, u64 n) {
    glu_with_grad<SiluForm>(gate, up, dy, n);
}

template <class T>
__device__ void geglu_with_grad(T* gate, T* up, T* dy, u64 n) {
    glu_with_grad<TanhForm>(gate, up, dy, n);
}
