// Normalization of channels: sums over runs of rows, joined by a warp a channel, then one thread an
// element. Statistics are (groups, channels).

/// A thread's channel and run of rows in one group: blocks cover the channels of a run, then those of the
/// next run.
struct GroupRun {
    u64 column;
    u64 group;
    u64 index;
    u64 begin;
    u64 end;

    __device__ GroupRun(u64 rows, u64 channels) {
        u64 blocks = (channels + blockDim.x - 1) / blockDim.x;
        u64 runs = (rows + RUN - 1) / RUN;
        column = blockIdx.x % blocks * blockDim.x + threadIdx.x;
        index = blockIdx.x / blocks;
        group = index / runs;
        begin = group * rows + index % runs * RUN;
        end = begin + RUN < (group + 1) * rows ? begin + RUN : (group + 1) * rows;
    }
};

/// The mean over each run of 32 rows, and the sum of squared distances from it: two rows of `partials`
/// per run.
template <class T>
__device__ void channel_statistics(const T* x, float* partials, u64 rows, u64 channels) {
    GroupRun run(rows, channels);
    if (run.column >= channels) return;
    float sum = 0.0f;
    for (u64 row = run.begin; row < run.end; row++) sum += load(x, row * channels + run.column);
    float mean = sum / (float)(run.end - run.begin);
    float squares = 0.0f;
    for (u64 row = run.begin; row < run.end; row++) {
        float distance = load(x, row * channels + run.column) - mean;
        squares = fmaf(distance, distance, squares);
    }
    partials[2 * run.index * channels + run.column] = mean;
    partials[(2 * run.index + 1) * channels + run.column] = squares;
}

/// Joins the statistics of runs to mean and biased variance.
__device__ inline void join_channel_statistics(const float* partials, float* stats, u64 groups,
                                               u64 rows, u64 channels) {
    u64 at = (u64)blockIdx.x * warps() + warp();
    if (at >= groups * channels) return;
    u64 runs = (rows + RUN - 1) / RUN;
    const float* own = partials + 2 * (at / channels * runs) * channels + at % channels;
    double sum = 0.0;
    for (u64 run = lane(); run < runs; run += WARP) {
        u64 count = (run + 1) * RUN < rows ? RUN : rows - run * RUN;
        sum += (double)count * own[2 * run * channels];
    }
    double mean = over_warp<Plus>(sum) / (double)rows;
    double squares = 0.0;
    for (u64 run = lane(); run < runs; run += WARP) {
        u64 count = (run + 1) * RUN < rows ? RUN : rows - run * RUN;
        double distance = own[2 * run * channels] - mean;
        squares += own[(2 * run + 1) * channels] + (double)count * distance * distance;
    }
    squares = over_warp<Plus>(squares);
    if (lane() == 0) {
        stats[at] = (float)mean;
        stats[groups * channels + at] = (float)(squares / (double)rows);
    }
}

/// y = (x - mean)/deviation · gain + bias; gain and bias may be null.
template <class T>
__device__ void channel_norm(const T* x, const float* mean, const float* variance, const T* gain,
                             const T* bias, T* y, u64 groups, u64 rows, u64 channels, float eps) {
    EACH(i, groups * rows * channels) {
        u64 channel = i % channels, at = i / channels / rows * channels + channel;
        float scale = 1.0f / sqrtf(variance[at] + eps);
        if (gain) scale *= load(gain, channel);
        float shift = bias ? load(bias, channel) : 0.0f;
        store(y, i, fmaf(load(x, i) - mean[at], scale, shift));
    }
}

/// Sums of dy · (x - mean) and of dy over each run of 32 rows: two rows of `partials` per run.
template <class T>
__device__ void channel_norm_sums(const T* x, const float* mean, const T* dy, float* partials,
                                  u64 rows, u64 channels) {
    GroupRun run(rows, channels);
    if (run.column >= channels) return;
    float center = mean[run.group * channels + run.column];
    float products = 0.0f, slopes = 0.0f;
    for (u64 row = run.begin; row < run.end; row++) {
        float slope = load(dy, row * channels + run.column);
        products = fmaf(load(x, row * channels + run.column) - center, slope, products);
        slopes += slope;
    }
    partials[2 * run.index * channels + run.column] = products;
    partials[(2 * run.index + 1) * channels + run.column] = slopes;
}

/// Adds up the sums of runs; products are divided by the deviation.
__device__ inline void join_channel_norm_sums(const float* partials, const float* variance,
                                              float* sums, u64 groups, u64 rows, u64 channels,
                                              float eps) {
    u64 at = (u64)blockIdx.x * warps() + warp();
    if (at >= groups * channels) return;
    u64 runs = (rows + RUN - 1) / RUN;
    const float* own = partials + 2 * (at / channels * runs) * channels + at % channels;
    double products = 0.0, slopes = 0.0;
    for (u64 run = lane(); run < runs; run += WARP) {
        products += own[2 * run * channels];
        slopes += own[(2 * run + 1) * channels];
    }
    products = over_warp<Plus>(products);
    slopes = over_warp<Plus>(slopes);
    if (lane() == 0) {
        sums[at] = (float)(products * (1.0f / sqrtf(variance[at] + eps)));
        sums[groups * channels + at] = (float)slopes;
    }
}

/// dx from x, its statistics, dy and the sums over each group; gain may be null.
template <class T>
__device__ void channel_norm_grad(const T* x, const float* mean, const float* variance, const T* gain,
                                  const float* sums, const T* dy, T* dx, u64 groups, u64 rows,
                                  u64 channels, float eps) {
    EACH(i, groups * rows * channels) {
        u64 channel = i % channels, at = i / channels / rows * channels + channel;
        float inverse = 1.0f / sqrtf(variance[at] + eps);
        float slope = sums[groups * channels + at] / (float)rows;
        float product = inverse * sums[at] / (float)rows;
        float scale = gain ? inverse * load(gain, channel) : inverse;
        store(dx, i, scale * fmaf(load(x, i) - mean[at], -product, load(dy, i) - slope));
    }
}

/// Merges means and variances of further rows: `share` of all rows, `spread` = share · (1 - share).
__device__ inline void merge_channel_statistics(float* mean, float* variance, const float* part,
                                                u64 channels, float share, float spread) {
    EACH(c, channels) {
        float distance = part[c] - mean[c];
        float between = spread * distance * distance;
        variance[c] = fmaf(share, part[channels + c] - variance[c], variance[c]) + between;
        mean[c] = fmaf(share, distance, mean[c]);
    }
}

/// value += momentum · (scale · next - value).
__device__ inline void moving_average(float* value, const float* next, u64 n, float momentum,
                                      float scale) {
    EACH(i, n) value[i] = fmaf(momentum, fmaf(scale, next[i], -value[i]), value[i]);
}
