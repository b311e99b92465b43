// Convolutions: rows gathered from the pixels under each window, and the sum back.

/// Parameters that both kernels share: images, the channels that are taken of each pixel, and the windows.
#define WINDOWS                                                                        \
    u64 height, u64 width, u64 channels, u64 first, u64 taken, u64 out_height,         \
        u64 out_width, u64 kernel_height, u64 kernel_width, u64 stride_height,         \
        u64 stride_width, u64 pad_height, u64 pad_width

/// rows (samples · out_height · out_width, kernel_height · kernel_width · taken): for each window its
/// pixels' channels from `first` on, 0 outside of the image.
template <class T>
__device__ void gather_windows(const T* x, T* rows, u64 samples, WINDOWS) {
    u64 row_width = kernel_height * kernel_width * taken;
    EACH(i, samples * out_height * out_width * row_width) {
        u64 row = i / row_width, within = i % row_width;
        u64 channel = first + within % taken, tap = within / taken;
        u64 column = row % out_width, line = row / out_width % out_height;
        u64 sample = row / out_width / out_height;
        // Pixels before the image wrap around to huge numbers.
        u64 y = line * stride_height + tap / kernel_width - pad_height;
        u64 z = column * stride_width + tap % kernel_width - pad_width;
        float value = 0.0f;
        if (y < height && z < width)
            value = load(x, ((sample * height + y) * width + z) * channels + channel);
        store(rows, i, value);
    }
}

/// x, in the channels from `first` on: the sum over the windows that cover a pixel, tap after tap.
template <class T>
__device__ void add_windows(const float* rows, T* x, u64 samples, WINDOWS) {
    u64 row_width = kernel_height * kernel_width * taken;
    EACH(i, samples * height * width * taken) {
        u64 channel = i % taken, pixel = i / taken;
        u64 z = pixel % width, y = pixel / width % height, sample = pixel / width / height;
        float sum = 0.0f;
        for (u64 k = 0; k < kernel_height; k++) {
            if (y + pad_height < k) break;
            u64 line = y + pad_height - k;
            if (line % stride_height != 0 || line / stride_height >= out_height) continue;
            for (u64 l = 0; l < kernel_width; l++) {
                if (z + pad_width < l) break;
                u64 column = z + pad_width - l;
                if (column % stride_width != 0 || column / stride_width >= out_width) continue;
                u64 row = (sample * out_height + line / stride_height) * out_width + column / stride_width;
                sum += rows[row * row_width + (k * kernel_width + l) * taken + channel];
            }
        }
        store(x, pixel * channels + first + channel, sum);
    }
}
