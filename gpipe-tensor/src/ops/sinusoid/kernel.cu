// Sinusoidal positions, counted within segments.

/// y = y · scale + [sin(p·r) | cos(p·r)], a warp for each of the rows (samples · len, width) of y.
template <class T>
__device__ void add_positions(T* y, const u32* segments, u64 rows, u64 len, u64 width, u64 first,
                              float scale, double ratio) {
    u64 row = (u64)blockIdx.x * warps() + warp();
    if (row >= rows) return;
    // One more than the segment's first position: the last one up to this whose segment is not that of the one before it.
    u64 here = row % len, sample = row - here;
    u32 start = 0;
    for (u64 back = 0; start == 0; back += WARP) {
        u64 at = back + lane();
        bool before = at <= here;
        u64 place = before ? here - at : 0;
        bool starts = place == 0 || segments[sample + place - 1] != segments[sample + place];
        start = over_warp<Larger>(before && starts ? (u32)place + 1 : 0u);
    }
    u64 position = first + here + 1 - start, half = width / 2;
    const Angles unscaled = {ratio, 1.0, 0.0, 0.0};
    for (u64 c = lane(); c < half; c += WARP) {
        Turn turn(position, (u32)c, unscaled);
        u64 sine = row * width + c, cosine = sine + half;
        store(y, sine, fmaf(load(y, sine), scale, turn.sin));
        store(y, cosine, fmaf(load(y, cosine), scale, turn.cos));
    }
}
