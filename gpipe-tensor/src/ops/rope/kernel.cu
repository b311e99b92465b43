// Rotary position embedding: pairs of queries and keys turned by their positions, values passed on.

/// Horner's scheme in double precision, as the processor does it.
__device__ inline double series(double square, const double (&coefficients)[7]) {
    double sum = coefficients[0];
    for (u32 i = 1; i < 7; i++) sum = sum * square + coefficients[i];
    return sum;
}

/// The angles of pairs: their ratio, and the line of a scaling, as the processor has them.
struct Angles {
    double ratio, slow, slope, offset;

    /// Turns of a pair at position 1.
    __device__ double turns(u32 pair) const {
        const double tau = 6.283185307179586476925;
        double power = 1.0 / tau, square = ratio;
        for (u32 rest = pair; rest > 0; rest /= 2) {
            if (rest % 2 == 1) power *= square;
            square *= square;
        }
        double share = slope * power - offset;
        share = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
        return power * (slow + (1.0 - slow) * share);
    }
};

/// Cosine and sine of a pair's angle at a position.
struct Turn {
    float cos;
    float sin;

    __device__ Turn(u64 position, u32 pair, const Angles& angles) {
        const double tau = 6.283185307179586476925;
        const double sines[7] = {1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0,
                                 1.0 / 120.0,        -1.0 / 6.0,        1.0};
        const double cosines[7] = {1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0,
                                   1.0 / 24.0,        -0.5,             1.0};
        double turns = angles.turns(pair) * (double)position;
        const double round = 6755399441055744.0;
        double quarters = (4.0 * turns + round) - round;
        double x = (turns - 0.25 * quarters) * tau;
        float s = (float)(x * series(x * x, sines)), c = (float)series(x * x, cosines);
        u32 quarter = (u32)((long long)quarters & 3);
        bool swapped = quarter % 2 == 1;
        cos = swapped ? s : c;
        sin = swapped ? c : s;
        if (quarter == 1 || quarter == 2) cos = -cos;
        if (quarter >= 2) sin = -sin;
    }
};

/// A pair of elements of a packed row, and of the queries, keys or values that it belongs to.
struct Pair {
    u64 row;
    /// Of the pair within its head.
    u32 index;
    /// Offset of its first element in the packed tensor.
    u64 packed;
    /// Queries (0), keys (1) or values (2), and the offset in these.
    u32 part;
    u64 single;

    __device__ Pair(u64 unit, u32 heads, u32 groups, u32 size) {
        u32 half = size / 2;
        u64 head_of_all = unit / half;
        index = (u32)(unit % half);
        u32 head = (u32)(head_of_all % (heads + 2 * groups));
        row = head_of_all / (heads + 2 * groups);
        packed = head_of_all * size + index;
        part = head < heads ? 0 : head < heads + groups ? 1 : 2;
        u32 own = part == 0 ? heads : groups;
        u32 before = part == 0 ? 0 : part == 1 ? heads : heads + groups;
        single = (row * own + head - before) * size + index;
    }
};

template <class T>
__device__ void rope(const T* q, const T* k, const T* v, T* qkv, u64 rows, u64 len, u32 heads,
                     u32 groups, u32 size, double ratio, double slow, double slope, double offset,
                     u64 first) {
    const Angles angles = {ratio, slow, slope, offset};
    u32 half = size / 2;
    EACH(unit, rows * (heads + 2 * groups) * half) {
        Pair at(unit, heads, groups, size);
        const T* from = at.part == 0 ? q : at.part == 1 ? k : v;
        float a = load(from, at.single), b = load(from, at.single + half);
        if (at.part < 2) {
            Turn turn(first + at.row % len, at.index, angles);
            float turned = fmaf(a, turn.cos, -(b * turn.sin));
            b = fmaf(b, turn.cos, a * turn.sin);
            a = turned;
        }
        store(qkv, at.packed, a);
        store(qkv, at.packed + half, b);
    }
}

template <class T>
__device__ void rope_grad(const T* dqkv, T* dq, T* dk, T* dv, u64 rows, u64 len, u32 heads, u32 groups,
                          u32 size, double ratio, double slow, double slope, double offset, u64 first) {
    const Angles angles = {ratio, slow, slope, offset};
    u32 half = size / 2;
    EACH(unit, rows * (heads + 2 * groups) * half) {
        Pair at(unit, heads, groups, size);
        T* to = at.part == 0 ? dq : at.part == 1 ? dk : dv;
        float a = load(dqkv, at.packed), b = load(dqkv, at.packed + half);
        if (at.part < 2) {
            Turn turn(first + at.row % len, at.index, angles);
            float sin = -turn.sin;
            float turned = fmaf(a, turn.cos, -(b * sin));
            b = fmaf(b, turn.cos, a * sin);
            a = turned;
        }
        store(to, at.single, a);
        store(to, at.single + half, b);
    }
}
