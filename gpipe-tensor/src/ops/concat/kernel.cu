// Copies of columns: one thread an element.

/// y: `count` columns from `y_start` on are those of x from `x_start` on; the others stay.
template <class T>
__device__ void copy_columns(const T* x, T* y, u64 rows, u64 count, u64 x_width, u64 x_start, u64 y_width,
                             u64 y_start) {
    EACH(i, rows * count) {
        u64 row = i / count, column = i % count;
        y[row * y_width + y_start + column] = x[row * x_width + x_start + column];
    }
}
