// The squared error.

/// Overwrites y with slope·(y - target) and writes the sum of (y - target)² of each chunk.
template <class T>
__device__ void squared_error(T* y, const T* target, double* partials, u64 n, float slope) {
    double sum = 0.0;
    EACH_OF_CHUNK(i, n) {
        float error = load(y, i) - load(target, i);
        sum += (double)error * error;
        store(y, i, slope * error);
    }
    sum = over_block<Plus>(sum, (double*)shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// The same for targets that are 1 at each row's label and 0 elsewhere.
template <class T>
__device__ void one_hot_squared_error(T* y, const u32* labels, double* partials, u64 n, u64 width,
                                      float slope) {
    double sum = 0.0;
    EACH_OF_CHUNK(i, n) {
        float target = labels[i / width] == i % width ? 1.0f : 0.0f;
        float error = load(y, i) - target;
        sum += (double)error * error;
        store(y, i, slope * error);
    }
    sum = over_block<Plus>(sum, (double*)shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}
