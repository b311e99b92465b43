// Layer normalization: one warp per row.

/// y = (x - mean)/deviation · gain + bias; writes mean and 1/deviation of each row to `stats`.
template <class T>
__device__ void layer_norm(const T* x, const T* gain, const T* bias, T* y, float* stats, u64 rows,
                           u64 width, float eps) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    u64 start = row * width;
    float sum = 0.0f;
    for (u64 c = lane(); c < width; c += WARP) sum += load(x, start + c);
    float mean = over_warp<Plus>(sum) / (float)width;
    float squares = 0.0f;
    for (u64 c = lane(); c < width; c += WARP) {
        float distance = load(x, start + c) - mean;
        squares = fmaf(distance, distance, squares);
    }
    float inverse = 1.0f / sqrtf(over_warp<Plus>(squares) / (float)width + eps);
    for (u64 c = lane(); c < width; c += WARP) {
        float normal = (load(x, start + c) - mean) * inverse;
        store(y, start + c, fmaf(normal, load(gain, c), load(bias, c)));
    }
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
    u64 start = row * width;
    float mean = stats[2 * row], inverse = stats[2 * row + 1];
    float slopes = 0.0f, products = 0.0f;
    for (u64 c = lane(); c < width; c += WARP) {
        float slope = load(dy, start + c) * load(gain, c);
        slopes += slope;
        products = fmaf(slope, load(x, start + c) - mean, products);
    }
    float slope = over_warp<Plus>(slopes) / (float)width;
    float product = over_warp<Plus>(products) * inverse / (float)width;
    for (u64 c = lane(); c < width; c += WARP) {
        float normal = (load(x, start + c) - mean) * inverse;
        float rest = load(dy, start + c) * load(gain, c) - slope;
        store_onto(dx, start + c, inverse * fmaf(normal, -product, rest), onto);
    }
}

/// The gradients of gain and bias, summed over each span of rows: two rows of `partials` per span.
template <class T>
__device__ void layer_norm_params_grad(const T* x, const float* stats, const T* dy, float* partials,
                                       u64 rows, u64 width) {
    RowSpan<T> span(rows, width, aligned(x, dy));
    float gains[RowSpan<T>::N] = {}, biases[RowSpan<T>::N] = {};
    for (u64 row = span.begin; row < span.end; row += warps()) {
        auto slopes = span.at(row).read(dy), values = span.at(row).read(x);
        float mean = stats[2 * row], inverse = stats[2 * row + 1];
#pragma unroll
        for (u32 e = 0; e < RowSpan<T>::N; e++) {
            gains[e] = fmaf(slopes.at[e], (values.at[e] - mean) * inverse, gains[e]);
            biases[e] += slopes.at[e];
        }
    }
    float* row = partials + 2 * span.index * width;
    span.join(gains, row);
    __syncthreads();
    span.join(biases, row + width);
}
