// silu(gate)·up, element by element.

template <class T>
struct Gate {
    float sigma;
    float rest;

    /// sigma(x) and 1 - sigma(x), from e^-|x|, which cannot overflow.
    __device__ explicit Gate(float x) {
        float e = For<T>::exponential(-fabsf(x));
        float upper = For<T>::reciprocal(1.0f + e);
        float lower = e * upper;
        sigma = x > 0.0f ? upper : lower;
        rest = x > 0.0f ? lower : upper;
    }
};

template <class T>
__device__ void swiglu(const T* gate, const T* up, T* y, u64 n) {
    map<T>(gate, up, y, n, [](float gate, float up) { return gate * Gate<T>(gate).sigma * up; });
}

/// Writes the gradients over `gate` and `up`, and the result over `dy`.
template <class T>
__device__ void swiglu_with_grad(T* gate, T* up, T* dy, u64 n) {
    each_pack<T>(n, aligned(gate, up, dy), [&](Pack<T> pack) {
        auto gates = pack.read(gate), factors = pack.read(up), slopes = pack.read(dy);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            float x = gates.at[e], factor = factors.at[e], slope_y = slopes.at[e];
            Gate<T> at(x);
            float silu = x * at.sigma;
            float slope = fmaf(silu, at.rest, at.sigma);
            gates.at[e] = slope_y * factor * slope;
            factors.at[e] = slope_y * silu;
            slopes.at[e] = silu * factor;
        }
        pack.write(gate, gates);
        pack.write(up, factors);
        pack.write(dy, slopes);
    });
}
