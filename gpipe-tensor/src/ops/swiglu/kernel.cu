// silu(gate)·up, element by element.

struct Gate {
    float sigma;
    float rest;

    /// sigma(x) and 1 - sigma(x), from e^-|x|, which cannot overflow.
    __device__ explicit Gate(float x) {
        float e = exponential(-fabsf(x));
        float upper = 1.0f / (1.0f + e);
        float lower = e * upper;
        sigma = x > 0.0f ? upper : lower;
        rest = x > 0.0f ? lower : upper;
    }
};

template <class T>
__device__ void swiglu(const T* gate, const T* up, T* y, u64 n) {
    EACH(i, n) {
        float x = load(gate, i);
        store(y, i, x * Gate(x).sigma * load(up, i));
    }
}

/// Writes the gradients over `gate` and `up`, and the result over `dy`.
template <class T>
__device__ void swiglu_with_grad(T* gate, T* up, T* dy, u64 n) {
    EACH(i, n) {
        float x = load(gate, i), factor = load(up, i), slope_y = load(dy, i);
        Gate at(x);
        float silu = x * at.sigma;
        float slope = fmaf(silu, at.rest, at.sigma);
        store(gate, i, slope_y * factor * slope);
        store(up, i, slope_y * silu);
        store(dy, i, silu * factor);
    }
}
