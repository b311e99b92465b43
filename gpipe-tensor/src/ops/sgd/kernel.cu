// Stochastic gradient descent on values, gradients and velocities in single precision.

/// One update; `velocity` may be null. `copy`, unless null, receives the new value in the type that
/// layers compute with.
template <class T>
__device__ void sgd(float* value, T* copy, const float* grad, float* velocity, u64 n, float grad_scale,
                    float lr, float momentum, u32 nesterov, float weight_decay) {
    EACH(i, n) {
        float step = fmaf(weight_decay, value[i], grad[i] * grad_scale);
        if (velocity) {
            float moved = fmaf(momentum, velocity[i], step);
            velocity[i] = moved;
            step = nesterov ? fmaf(momentum, moved, step) : moved;
        }
        float updated = fmaf(-lr, step, value[i]);
        value[i] = updated;
        if (copy) store(copy, i, updated);
    }
}
