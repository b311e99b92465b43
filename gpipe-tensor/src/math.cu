// Functions of single-precision numbers: the same operations as in math.rs, hence the same bits.

/// Horner's scheme, highest power first.
template <u32 N>
__device__ float polynomial(float x, const float (&coefficients)[N]) {
    float sum = coefficients[0];
    for (u32 i = 1; i < N; i++) sum = fmaf(sum, x, coefficients[i]);
    return sum;
}

/// Splits x into a multiple of ln 2 (in the low bits of `power`) and a remainder of at most half of ln 2.
struct Split {
    float power;
    float rest;
};

constexpr float ROUND = 12582912.0f;

__device__ inline Split split_powers_of_two(float x) {
    float power = fmaf(x, 1.44269504088896340736f, ROUND);
    float n = power - ROUND;
    float rest = fmaf(n, -0.693147180559945309417f, x);
    return {power, fmaf(n, 1.9046543e-9f, rest)};
}

/// 2^n times e^rest of what x was split into, or 0 where that is below the smallest normal float.
__device__ inline float exponential_of_split(float x, Split split) {
    const float curve[5] = {0.0013814627f, 0.00836871f, 0.041668387f, 0.1666652f, 0.49999993f};
    float rest = split.rest;
    float value = fmaf(rest * rest, polynomial(rest, curve), rest) + 1.0f;
    // The low bits of the power are n, and those above leave with the shift: the sum has n more in its exponent.
    float scaled = __uint_as_float(__float_as_uint(value) + (__float_as_uint(split.power) << 23));
    return x < -87.33f ? 0.0f : scaled;
}

/// e^x for x up to 88.
__device__ inline float exponential(float x) {
    return exponential_of_split(x, split_powers_of_two(x));
}

constexpr float LOG2_E = 1.44269504088896340736f;

/// e^x for x up to 88 and 1/x as far as a result in T can tell: for bf16 by the device's own instructions, which are off
/// by less than the hundredth part of its last bit.
template <class T>
struct For;

template <>
struct For<float> {
    __device__ static float exponential(float x) { return gpipe::exponential(x); }
    __device__ static float reciprocal(float x) { return 1.0f / x; }
};

template <>
struct For<bf16> {
    __device__ static float exponential(float x) { return exp2_fast(x * LOG2_E); }
    __device__ static float reciprocal(float x) { return reciprocal_fast(x); }
};

/// The standard normal distribution at x: its cumulative probability, and e^(-x²/2).
struct Normal {
    float cumulative;
    float bell;
};

__device__ inline Normal normal(float x) {
    const float curve[10] = {0.028162993f, -0.1038849f,  0.111700156f, -0.011229346f, 0.054058183f,
                             -0.16385077f, -0.23082267f, 0.9892271f,   -1.1733587f,   0.5f};
    float magnitude = fabsf(x);
    magnitude = magnitude > 14.5f ? 14.5f : magnitude;
    float square = magnitude * magnitude;
    float square_rest = fmaf(magnitude, magnitude, -square);
    float exponent = -0.5f * square;
    Split split = split_powers_of_two(exponent);
    split.rest = fmaf(square_rest, -0.5f, split.rest);
    float bell = exponential_of_split(exponent, split);
    float s = 0.34f * magnitude;
    float tail = bell * polynomial(s / (1.0f + s), curve);
    return {x > 0.0f ? 1.0f - tail : tail, bell};
}
