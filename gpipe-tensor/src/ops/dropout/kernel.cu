// Dropout by random numbers of one stream per sample; shared with attention.

/// Threshold below which a number drops its element, and the scale of the kept elements.
struct Mask {
    Key key;
    u32 threshold;
    float kept;

    __device__ float factor(u32 bits) const { return bits >= threshold ? kept : 0.0f; }
};

/// y = x times its factors; y may be x. A thread draws the four random numbers of one counter.
template <class T>
__device__ void dropout(const T* x, T* y, u64 samples, u64 width, u64 first_sample, u32 key_low,
                        u32 key_high, u32 threshold, float kept) {
    Mask mask = {{key_low, key_high}, threshold, kept};
    u64 counters = (width + NUMBERS - 1) / NUMBERS * COUNTERS;
    EACH(i, samples * counters) {
        u64 sample = i / counters, counter = i % counters;
        u32 words[4];
        draw(mask.key, first_sample + sample, counter, words);
        for (u32 w = 0; w < 4; w++) {
            u64 element = counter / COUNTERS * NUMBERS + w * COUNTERS + counter % COUNTERS;
            if (element < width) {
                u64 at = sample * width + element;
                store(y, at, load(x, at) * mask.factor(words[w]));
            }
        }
    }
}

/// x times the factors of its channels, in place: the innermost extent, of which each sample has `pixels`
/// rows.
template <class T>
__device__ void dropout_channels(T* x, u64 samples, u64 pixels, u64 channels, u64 first_sample,
                                 u32 key_low, u32 key_high, u32 threshold, float kept) {
    Mask mask = {{key_low, key_high}, threshold, kept};
    EACH(i, samples * pixels * channels) {
        u64 sample = i / channels / pixels;
        u32 bits = random_bits(mask.key, first_sample + sample, i % channels);
        store(x, i, load(x, i) * mask.factor(bits));
    }
}
