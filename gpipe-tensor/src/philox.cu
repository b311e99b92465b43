// Philox4x32-10 (Salmon et al., SC 2011): the same numbers as philox.rs draws on the host.

struct Key {
    u32 low;
    u32 high;
};

/// Replaces a counter by its four random words.
__device__ inline void philox(Key key, u32 (&words)[4]) {
    for (u32 round = 0; round < 10; round++) {
        u64 first = 0xD2511F53ull * words[0];
        u64 second = 0xCD9E8D57ull * words[2];
        words[0] = (u32)(second >> 32) ^ words[1] ^ key.low;
        words[1] = (u32)second;
        words[2] = (u32)(first >> 32) ^ words[3] ^ key.high;
        words[3] = (u32)first;
        key.low += 0x9E3779B9u;
        key.high += 0xBB67AE85u;
    }
}

/// Counters of 64 consecutive elements: word w of counter c is element
/// c / 16 · 64 + w · 16 + c % 16 of the sample.
constexpr u64 COUNTERS = 16;
constexpr u64 NUMBERS = 4 * COUNTERS;

/// The words of one counter of a sample.
__device__ inline void draw(Key key, u64 sample, u64 counter, u32 (&words)[4]) {
    words[0] = (u32)counter;
    words[1] = (u32)(counter >> 32);
    words[2] = (u32)sample;
    words[3] = (u32)(sample >> 32);
    philox(key, words);
}

/// The bits of one element of a sample.
__device__ inline u32 random_bits(Key key, u64 sample, u64 element) {
    u64 within = element % NUMBERS;
    u32 words[4];
    draw(key, sample, element / NUMBERS * COUNTERS + within % COUNTERS, words);
    u64 word = within / COUNTERS;
    return word == 0 ? words[0] : word == 1 ? words[1] : word == 2 ? words[2] : words[3];
}
