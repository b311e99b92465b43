// AdamW on values, gradients and states in single precision.

/// One update of one element.
template <class T>
__device__ inline void adamw_at(u64 i, float* value, T* copy, const float* grad, float* first,
                                float* second, float grad_scale, float keep, float first_share,
                                float beta2, float second_share, float step_size,
                                float root_correction, float eps) {
    float g = grad[i] * grad_scale;
    float m = fmaf(first_share, g - first[i], first[i]);
    float v = fmaf(beta2, second[i], second_share * g * g);
    float divisor = fmaf(sqrtf(v), root_correction, eps);
    float updated = fmaf(-step_size, m / divisor, keep * value[i]);
    first[i] = m;
    second[i] = v;
    value[i] = updated;
    if (copy) store(copy, i, updated);
}

/// One update of a tensor. `copy`, unless null, receives the new value in the type that layers compute with.
template <class T>
__device__ void adamw(float* value, T* copy, const float* grad, float* first, float* second, u64 n,
                      float grad_scale, float keep, float first_share, float beta2,
                      float second_share, float step_size, float root_correction, float eps) {
    EACH(i, n) {
        adamw_at(i, value, copy, grad, first, second, grad_scale, keep, first_share, beta2,
                 second_share, step_size, root_correction, eps);
    }
}

/// The same for each row of a table of value, copy, gradient, both states, number of elements and blocks before.
template <class T>
__device__ void adamw_rows(const u64* table, u32 rows, float grad_scale, float keep,
                           float first_share, float beta2, float second_share, float step_size,
                           float root_correction, float eps) {
    const u64* row = row_of(table, rows, 7);
    u64 n = row[5], begin = (blockIdx.x - row[6]) * CHUNK;
    for (u64 i = begin + threadIdx.x; i < n && i < begin + CHUNK; i += blockDim.x) {
        adamw_at(i, (float*)row[0], (T*)row[1], (const float*)row[2], (float*)row[3],
                 (float*)row[4], grad_scale, keep, first_share, beta2, second_share, step_size,
                 root_correction, eps);
    }
}
