// Layer normalization: one warp per row.

/// y = (x - mean)/deviation · gain + bias; writes mean and 1/deviation of each row to `stats`.
template <class T>
__device__ void layer_norm(const T* x, const T* gain, const T* bias, T* y, float* stats, u64 rows,
                           u64 width, float eps) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    RowPacks<T> packs{row * width, width, aligned_rows<T>(width, x, gain, bias, y), lane(), WARP};
    float sum = 0.0f;
    packs.each([&](Pack<T> pack, Pack<T>) {
        auto values = pack.read(x);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) sum += values.at[e];
    });
    float mean = over_warp<Plus>(sum) / (float)width;
    float squares = 0.0f;
    packs.each([&](Pack<T> pack, Pack<T>) {
        auto values = pack.read(x, mean);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            float distance = values.at[e] - mean;
            squares = fmaf(distance, distance, squares);
        }
    });
    float inverse = 1.0f / sqrtf(over_warp<Plus>(squares) / (float)width + eps);
    packs.each([&](Pack<T> pack, Pack<T> columns) {
        auto values = pack.read(x), gains = columns.read(gain), biases = columns.read(bias);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            values.at[e] = fmaf((values.at[e] - mean) * inverse, gains.at[e], biases.at[e]);
        }
        pack.write(y, values);
    });
    if (lane() == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = inverse;
    }
}

/// dx from x, the `stats` of `layer_norm`, and dy, plus `onto` unless that is null.
template <class T>
__device__ void layer_norm_grad(const T* x, const float* stats, const T* gain, const T* dy,
                                const T* onto, T* dx, u64 rows, u64 width) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    float mean = stats[2 * row], inverse = stats[2 * row + 1];
    RowPacks<T> packs{row * width, width, aligned_rows<T>(width, x, gain, dy, onto, dx), lane(), WARP};
    float slopes = 0.0f, products = 0.0f;
    packs.each([&](Pack<T> pack, Pack<T> columns) {
        auto values = pack.read(x), of_y = pack.read(dy), gains = columns.read(gain);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            float slope = of_y.at[e] * gains.at[e];
            slopes += slope;
            products = fmaf(slope, values.at[e] - mean, products);
        }
    });
    float slope = over_warp<Plus>(slopes) / (float)width;
    float product = over_warp<Plus>(products) * inverse / (float)width;
    packs.each([&](Pack<T> pack, Pack<T> columns) {
        auto values = pack.read(x), of_y = pack.read(dy), gains = columns.read(gain);
#pragma unroll
        for (u32 e = 0; e < Pack<T>::N; e++) {
            float normal = (values.at[e] - mean) * inverse;
            float rest = of_y.at[e] * gains.at[e] - slope;
            values.at[e] = inverse * fmaf(normal, -product, rest);
        }
        pack.write_onto(dx, values, onto);
    });
}

/// The gradients of gain and bias, summed over each span of rows: two rows of `partials` per span.
template <class T>
__device__ void layer_norm_params_grad(const T* x, const float* stats, const T* dy, float* partials,
                                       u64 rows, u64 width, u64 run) {
    RowSpan<T> span(rows, width, run, aligned(x, dy));
    float gains[RowSpan<T>::N] = {}, biases[RowSpan<T>::N] = {};
    span.each([&](u64 row, Pack<T> pack) {
        auto slopes = pack.read(dy), values = pack.read(x);
        float mean = stats[2 * row], inverse = stats[2 * row + 1];
#pragma unroll
        for (u32 e = 0; e < RowSpan<T>::N; e++) {
            gains[e] = fmaf(slopes.at[e], (values.at[e] - mean) * inverse, gains[e]);
            biases[e] += slopes.at[e];
        }
    });
    float* row = partials + 2 * span.index * width;
    span.join(gains, row);
    __syncthreads();
    span.join(biases, row + width);
}
