// Images cut off and padded with zeros: one thread an element.

/// y: pixel (i, j) is pixel (i + down, j + right) of x, and 0 where x has none; offsets in two's
/// complement.
template <class T>
__device__ void pad2d(const T* x, T* y, u64 samples, u64 height, u64 width, u64 channels, u64 lines,
                      u64 columns, u64 down, u64 right) {
    EACH(i, samples * lines * columns * channels) {
        u64 channel = i % channels, pixel = i / channels;
        // A negative number is larger than any size.
        u64 row = pixel / columns % lines + down, column = pixel % columns + right;
        u64 sample = pixel / columns / lines;
        bool inside = row < height && column < width;
        store(y, i, inside ? load(x, ((sample * height + row) * width + column) * channels + channel) : 0.0f);
    }
}
