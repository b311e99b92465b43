// RMSProp on values, gradients, mean squares and velocities in single precision.

/// One update; `velocity` may be null. `copy`, unless null, receives the new value in the type that
/// layers compute with.
template <class T>
__device__ void rmsprop(float* value, T* copy, const float* grad, float* square, float* velocity, u64 n,
                        float grad_scale, float lr, float alpha, float eps, float momentum,
                        float weight_decay) {
    EACH(i, n) {
        float slope = fmaf(weight_decay, value[i], grad[i] * grad_scale);
        float mean = fmaf(alpha, square[i], (1.0f - alpha) * slope * slope);
        square[i] = mean;
        float step = slope / (sqrtf(mean) + eps);
        if (velocity) {
            step = fmaf(momentum, velocity[i], step);
            velocity[i] = step;
        }
        float updated = fmaf(-lr, step, value[i]);
        value[i] = updated;
        if (copy) store(copy, i, updated);
    }
}
