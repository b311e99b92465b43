// AdamW on values, gradients and states in single precision.

/// One step. `copy`, where there is one, gets the new value in the type that layers compute with.
template <class T>
__device__ void adamw(float* value, T* copy, const float* grad, float* first, float* second, u64 n,
                      float grad_scale, float keep, float first_share, float beta2,
                      float second_share, float step_size, float root_correction, float eps) {
    EACH(i, n) {
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
}
