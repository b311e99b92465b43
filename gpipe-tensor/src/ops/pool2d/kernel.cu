// Pools: one thread an element.

/// Parameters that all kernels share: images and windows.
#define POOL                                                                           \
    u64 samples, u64 height, u64 width, u64 channels, u64 out_height, u64 out_width,   \
        u64 kernel_height, u64 kernel_width, u64 stride_height, u64 stride_width,      \
        u64 pad_height, u64 pad_width

/// The pixels of a window in one direction (an image has fewer than 2³² of them) that lie in the image.
struct Span {
    u32 begin, end;
};

__device__ inline Span window_of(u32 output, u32 kernel, u32 stride, u32 pad, u32 size) {
    u32 begin = output * stride, end = begin + kernel;
    begin = begin < pad ? 0 : begin - pad;
    end = end < pad ? 0 : end - pad;
    return {begin < size ? begin : size, end < size ? end : size};
}

/// The outputs in one direction whose windows hold a pixel.
__device__ inline Span covering(u32 pixel, u32 kernel, u32 stride, u32 pad, u32 outputs) {
    u32 padded = pixel + pad, end = padded / stride + 1;
    u32 begin = padded + 1 < kernel ? 0 : (padded + 1 - kernel + stride - 1) / stride;
    return {begin, end < outputs ? end : outputs};
}

/// Whether a later value takes the place of the largest so far: what is not a number does.
__device__ inline bool takes_over(float later, float largest) {
    return !(later <= largest) && largest == largest;
}

/// The first pixel, line · width + column, of the largest value of a window. `x` is a channel of the
/// image's first pixel.
template <class T>
__device__ u64 largest_of(const T* x, Span lines, Span columns, u64 width, u64 channels) {
    float largest = -infinity();
    u64 place = lines.begin * width + columns.begin;
    for (u32 y = lines.begin; y < lines.end; y++) {
        for (u32 z = columns.begin; z < columns.end; z++) {
            float value = load(x, (y * width + z) * channels);
            if (takes_over(value, largest)) {
                largest = value;
                place = y * width + z;
            }
        }
    }
    return place;
}

/// y: the largest value of each window.
template <class T>
__device__ void max_pool(const T* x, T* y, POOL) {
    EACH(i, samples * out_height * out_width * channels) {
        u64 channel = i % channels, output = i / channels;
        u64 sample = output / out_width / out_height;
        Span lines = window_of(output / out_width % out_height, kernel_height, stride_height, pad_height, height);
        Span columns = window_of(output % out_width, kernel_width, stride_width, pad_width, width);
        const T* image = x + sample * height * width * channels + channel;
        store(y, i, load(image, largest_of(image, lines, columns, width, channels) * channels));
    }
}

/// dx: the sum of dy over the windows whose largest value a pixel is.
template <class T>
__device__ void max_pool_grad(const T* x, const T* dy, T* dx, POOL) {
    EACH(i, samples * height * width * channels) {
        u64 channel = i % channels;
        u32 pixel = (u32)(i / channels % (height * width)), line = pixel / (u32)width;
        u64 sample = i / channels / (height * width);
        Span over = covering(line, kernel_height, stride_height, pad_height, out_height);
        Span beside = covering(pixel - line * (u32)width, kernel_width, stride_width, pad_width, out_width);
        const T* image = x + sample * height * width * channels + channel;
        const T* given = dy + sample * out_height * out_width * channels + channel;
        float sum = 0.0f;
        for (u32 p = over.begin; p < over.end; p++) {
            Span lines = window_of(p, kernel_height, stride_height, pad_height, height);
            for (u32 q = beside.begin; q < beside.end; q++) {
                Span columns = window_of(q, kernel_width, stride_width, pad_width, width);
                if (largest_of(image, lines, columns, width, channels) == pixel)
                    sum += load(given, (p * out_width + q) * channels);
            }
        }
        store(dx, i, sum);
    }
}

/// y: the mean of each window, over the pixels that are there.
template <class T>
__device__ void avg_pool(const T* x, T* y, POOL) {
    EACH(i, samples * out_height * out_width * channels) {
        u64 channel = i % channels, output = i / channels;
        u64 sample = output / out_width / out_height;
        Span lines = window_of(output / out_width % out_height, kernel_height, stride_height, pad_height, height);
        Span columns = window_of(output % out_width, kernel_width, stride_width, pad_width, width);
        float sum = 0.0f;
        for (u32 line = lines.begin; line < lines.end; line++)
            for (u32 z = columns.begin; z < columns.end; z++)
                sum += load(x, ((sample * height + line) * width + z) * channels + channel);
        u64 count = (lines.end - lines.begin) * (columns.end - columns.begin);
        store(y, i, sum / (float)count);
    }
}

/// dx: the sum over the windows that hold a pixel of their share.
template <class T>
__device__ void avg_pool_grad(const T* dy, T* dx, POOL) {
    EACH(i, samples * height * width * channels) {
        u64 channel = i % channels;
        u32 pixel = (u32)(i / channels % (height * width)), line = pixel / (u32)width;
        u64 sample = i / channels / (height * width);
        Span over = covering(line, kernel_height, stride_height, pad_height, out_height);
        Span beside = covering(pixel - line * (u32)width, kernel_width, stride_width, pad_width, out_width);
        const T* given = dy + sample * out_height * out_width * channels + channel;
        float sum = 0.0f;
        for (u32 p = over.begin; p < over.end; p++) {
            Span lines = window_of(p, kernel_height, stride_height, pad_height, height);
            u32 line_count = lines.end - lines.begin;
            // Unrolled, it takes more registers than there are.
#pragma unroll 1
            for (u32 q = beside.begin; q < beside.end; q++) {
                Span columns = window_of(q, kernel_width, stride_width, pad_width, width);
                float count = (float)(line_count * (columns.end - columns.begin));
                sum += load(given, (p * (u32)out_width + q) * channels) / count;
            }
        }
        store(dx, i, sum);
    }
}
