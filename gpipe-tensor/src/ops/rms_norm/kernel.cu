// Root mean square normalization: one warp per row.

/// y = x·r·(gain + base); writes r of each row to `inverse`.
template <class T>
__device__ void rms_norm(const T* x, const T* gain, T* y, float* inverse, u64 rows, u64 width,
                         float base, float eps) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    RowPacks<T> packs{row * width, width, aligned_rows<T>(width, x, gain, y), lane(), WARP};
    float squares = 0.0f;
    packs.each([&](Pack<T> pack, Pack<T>) {
        auto values = pack.read(x);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) squares = fmaf(values.at[e], values.at[e], squares);
    });
    float factor = 1.0f / sqrtf(over_warp<Plus>(squares) / (float)width + eps);
    packs.each([&](Pack<T> pack, Pack<T> columns) {
        auto values = pack.read(x), gains = columns.read(gain);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) values.at[e] = values.at[e] * factor * (gains.at[e] + base);
        pack.write(y, values);
    });
    if (lane() == 0) inverse[row] = factor;
}

/// dx from x, the `inverse` of `rms_norm`, and dy, plus `onto` unless that is null.
template <class T>
__device__ void rms_norm_grad(const T* x, const float* inverse, const T* gain, const T* dy,
                              const T* onto, T* dx, u64 rows, u64 width, float base) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    float factor = inverse[row];
    RowPacks<T> packs{row * width, width, aligned_rows<T>(width, x, gain, dy, onto, dx), lane(), WARP};
    float products = 0.0f;
    packs.each([&](Pack<T> pack, Pack<T> columns) {
        auto values = pack.read(x), of_y = pack.read(dy), gains = columns.read(gain);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            products = fmaf(of_y.at[e] * (gains.at[e] + base), values.at[e], products);
        }
    });
    float product = over_warp<Plus>(products) * factor / (float)width;
    packs.each([&](Pack<T> pack, Pack<T> columns) {
        auto values = pack.read(x), of_y = pack.read(dy), gains = columns.read(gain);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            float slope = of_y.at[e] * (gains.at[e] + base);
            values.at[e] = factor * fmaf(values.at[e] * factor, -product, slope);
        }
        pack.write_onto(dx, values, onto);
    });
}

/// The gradient of the gain, summed over each span of rows: a row of `partials` per span.
template <class T>
__device__ void rms_norm_gain_grad(const T* x, const float* inverse, const T* dy, float* partials,
                                   u64 rows, u64 width, u64 run) {
    RowSpan<T> span(rows, width, run, aligned(x, dy));
    float gains[RowSpan<T>::N] = {};
    span.each([&](u64 row, Pack<T> pack) {
        auto slopes = pack.read(dy), values = pack.read(x);
        float factor = inverse[row];
#pragma unroll
        for (u32 e = 0; e < RowSpan<T>::N; e++) {
            gains[e] = fmaf(slopes.at[e], values.at[e] * factor, gains[e]);
        }
    });
    span.join(gains, partials + span.index * width);
}
