// Root mean square normalization: one warp per row.

/// y = x·r·gain; writes r of each row to `inverse`.
template <class T>
__device__ void rms_norm(const T* x, const T* gain, T* y, float* inverse, u64 rows, u64 width,
                         float eps) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 start = row * width;
    float squares = 0.0f;
    for (u64 c = lane(); c < width; c += WARP) {
        float value = load(x, start + c);
        squares = fmaf(value, value, squares);
    }
    float factor = 1.0f / sqrtf(over_warp<Plus>(squares) / (float)width + eps);
    for (u64 c = lane(); c < width; c += WARP) {
        store(y, start + c, load(x, start + c) * factor * load(gain, c));
    }
    if (lane() == 0) inverse[row] = factor;
}

/// dx from x, the `inverse` of `rms_norm`, and dy, plus `onto` unless that is null.
template <class T>
__device__ void rms_norm_grad(const T* x, const float* inverse, const T* gain, const T* dy,
                              const T* onto, T* dx, u64 rows, u64 width) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 start = row * width;
    float factor = inverse[row];
    float products = 0.0f;
    for (u64 c = lane(); c < width; c += WARP) {
        products = fmaf(load(dy, start + c) * load(gain, c), load(x, start + c), products);
    }
    float product = over_warp<Plus>(products) * factor / (float)width;
    for (u64 c = lane(); c < width; c += WARP) {
        float normal = load(x, start + c) * factor;
        float slope = load(dy, start + c) * load(gain, c);
        store_onto(dx, start + c, factor * fmaf(normal, -product, slope), onto);
    }
}

/// The gradient of the gain, summed over each span of rows: a row of `partials` per span.
template <class T>
__device__ void rms_norm_gain_grad(const T* x, const float* inverse, const T* dy, float* partials,
                                   u64 rows, u64 width) {
    RowSpan<T> span(rows, width, aligned(x, dy));
    float gains[RowSpan<T>::N] = {};
    for (u64 row = span.begin; row < span.end; row += warps()) {
        auto slopes = span.at(row).read(dy), values = span.at(row).read(x);
        float factor = inverse[row];
#pragma unroll
        for (u32 e = 0; e < RowSpan<T>::N; e++) {
            gains[e] = fmaf(slopes.at[e], values.at[e] * factor, gains[e]);
        }
    }
    span.join(gains, partials + span.index * width);
}
