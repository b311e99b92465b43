// The binary cross-entropy.

/// Overwrites y with factor·(sigma(y) - target) and writes the sum of the losses of each chunk.
template <class T>
__device__ void binary_cross_entropy(T* y, const float* target, double* partials, u64 n,
                                     float factor) {
    double sum = 0.0;
    EACH_OF_CHUNK(i, n) {
        float x = load(y, i), wanted = target[i];
        float e = exponential(-fabsf(x));
        float above = x > 0.0f ? x : 0.0f;
        sum += (double)above - (double)x * wanted + log1p((double)e);
        float upper = 1.0f / (1.0f + e);
        float sigma = x > 0.0f ? upper : e * upper;
        store(y, i, factor * (sigma - wanted));
    }
    sum = over_block<Plus>(sum, (double*)shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}
