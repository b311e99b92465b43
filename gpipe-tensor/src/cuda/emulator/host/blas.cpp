// cuBLAS: products of matrices in single precision, in one fixed order of sums, over values that are
// stored in either type. Matrices lie column by column.

namespace host {

enum Status { BLAS_NOT_INITIALIZED = 1, BLAS_INVALID_VALUE = 7, BLAS_EXECUTION_FAILED = 13, BLAS_NOT_SUPPORTED = 15 };

/// Types of elements, and of what is computed in.
enum { R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, COMPUTE_32F_FAST_TF32 = 77 };
constexpr int TF32_MATH = 3, EXACT_REDUCTION = 16;

struct Blas {
    Device* device;
    /// Its handle; 0 is the default stream.
    void* stream;
    int mode;
    uint64_t workspace, workspace_bytes;
    bool alive;
};

struct Matrix {
    uint64_t start;
    int type;
    /// Whether it is used turned.
    bool turned;
    int64_t rows, columns, stride, next;

    uint64_t width() const { return type == R_16BF ? 2 : 4; }

    /// The bytes from its first to its last element.
    uint64_t extent(int64_t count) const {
        if (rows == 0 || columns == 0 || count == 0) return 0;
        return (uint64_t)((count - 1) * next + (columns - 1) * stride + rows) * width();
    }
};

static float to_tf32(float value) {
    uint32_t bits = __float_as_uint(value);
    if (value != value) return value;
    return __uint_as_float((bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu);
}

/// The elements as floats, column by column of what is used; `rows` of them a column.
static std::vector<float> unpack(const Matrix& matrix, int64_t which, bool tf32, bool turn) {
    std::vector<float> values((size_t)(matrix.rows * matrix.columns));
    for (int64_t c = 0; c < matrix.columns; c++) {
        for (int64_t r = 0; r < matrix.rows; r++) {
            uint64_t i = (uint64_t)(which * matrix.next + c * matrix.stride + r);
            float value = matrix.type == R_16BF ? gpipe::load((const gpipe::bf16*)matrix.start, i)
                                                : gpipe::load((const float*)matrix.start, i);
            if (tf32) value = to_tf32(value);
            values[(size_t)(turn ? r * matrix.columns + c : c * matrix.rows + r)] = value;
        }
    }
    return values;
}

/// column[i] += Σ a[l·m + i] · b[l], l ascending.
__attribute__((optimize("O3"), target_clones("avx2", "default")))
static void add_products(float* __restrict column, const float* a, const float* b, int64_t m, int64_t k) {
    for (int64_t l = 0; l < k; l++) {
        const float* __restrict row = a + l * m;
        float factor = b[l];
        for (int64_t i = 0; i < m; i++) column[i] += row[i] * factor;
    }
}

struct Product {
    int64_t m, n, k, count;
    float alpha, beta;
    Matrix a, b, c;
    bool tf32;
    uint64_t workspace, workspace_bytes;
    /// Where the result goes, if not over c, and a column in its type that is added to each; 0 without one.
    Matrix d = c;
    uint64_t bias = 0;
};

static void compute(const Product& p, int64_t which) {
    // k columns of m, and n columns of k.
    std::vector<float> a = unpack(p.a, which, p.tf32, p.a.turned);
    std::vector<float> b = unpack(p.b, which, p.tf32, p.b.turned);
    std::vector<float> column((size_t)p.m);
    for (int64_t j = 0; j < p.n; j++) {
        std::fill(column.begin(), column.end(), 0.0f);
        add_products(column.data(), a.data(), b.data() + j * p.k, p.m, p.k);
        for (int64_t i = 0; i < p.m; i++) {
            auto at = [&](const Matrix& matrix) { return (uint64_t)(which * matrix.next + j * matrix.stride + i); };
            auto join = [&](auto* old, auto* to) {
                float value = p.alpha * column[(size_t)i];
                // What is multiplied by nothing is not read.
                if (p.beta != 0) value += p.beta * gpipe::load(old, at(p.c));
                if (p.bias) value += gpipe::load((decltype(old))p.bias, (uint64_t)i);
                gpipe::store(to, at(p.d), value);
            };
            if (p.c.type == R_16BF) join((gpipe::bf16*)p.c.start, (gpipe::bf16*)p.d.start);
            else join((float*)p.c.start, (float*)p.d.start);
        }
    }
}

static std::string multiply(Device& device, const Product& p) {
    std::string wrong;
    for (const Matrix* matrix : {&p.a, &p.b, &p.c, &p.d}) {
        bool is_used = matrix == &p.d || (matrix == &p.c ? p.beta != 0 : p.k > 0);
        if (wrong.empty() && is_used) wrong = check_use(device, matrix->start, matrix->extent(p.count));
    }
    if (wrong.empty() && p.bias) wrong = check_use(device, p.bias, (uint64_t)p.m * p.d.width());
    if (wrong.empty() && p.workspace) {
        wrong = check_use(device, p.workspace, p.workspace_bytes);
        // Whatever else lies there is lost.
        if (wrong.empty()) memset((void*)p.workspace, POISON, std::min<uint64_t>(p.workspace_bytes, 4096));
    }
    Reader reader("a product");
    for (int64_t which = 0; wrong.empty() && which < p.count; which++) compute(p, which);
    return wrong;
}

static int blas_of(Blas* blas) {
    if (!blas || !blas->alive) return wrong(BLAS_NOT_INITIALIZED, "a cuBLAS handle is used that is none, or no more");
    return trouble(blas->device) ? BLAS_EXECUTION_FAILED : 0;
}

static int gemm(Blas* blas, int turn_a, int turn_b, int64_t m, int64_t n, int64_t k, const float* alpha,
                const void* a, int type_a, int64_t lda, int64_t next_a, const void* b, int type_b, int64_t ldb,
                int64_t next_b, const float* beta, void* c, int type_c, int64_t ldc, int64_t next_c, int64_t count,
                int compute_in) {
    if (int e = blas_of(blas)) return e;
    if (current() != blas->device) return wrong(BLAS_EXECUTION_FAILED, "a cuBLAS handle is used in another context");
    bool types = type_a == type_b && (type_a == type_c || type_c == R_32F) &&
                 (type_a == R_32F || type_a == R_16BF) && (type_c == R_32F || type_c == R_16BF);
    bool computes = compute_in == COMPUTE_32F || compute_in == COMPUTE_32F_PEDANTIC ||
                    compute_in == COMPUTE_32F_FAST_TF32;
    if (!types || !computes) return BLAS_NOT_SUPPORTED;
    int64_t rows_a = turn_a ? k : m, rows_b = turn_b ? n : k;
    if (m < 0 || n < 0 || k < 0 || count < 0 || lda < std::max<int64_t>(1, rows_a) || ldb < std::max<int64_t>(1, rows_b) ||
        ldc < std::max<int64_t>(1, m)) {
        return BLAS_INVALID_VALUE;
    }
    if (m == 0 || n == 0 || count == 0) return 0;
    if (type_c == R_16BF && !(blas->mode & EXACT_REDUCTION)) {
        fault("a product in bf16 may round its partial sums to bf16");
    }
    Stream* stream;
    if (stream_of(blas->stream, stream)) return BLAS_EXECUTION_FAILED;
    if (stream->device != blas->device) return wrong(BLAS_EXECUTION_FAILED, "a cuBLAS handle's stream is of another context");
    if (stream->capture && !blas->workspace) {
        fault("a product is captured without a workspace: cuBLAS allocates one for each graph");
    }
    Product p = {m, n, k, count, *alpha, *beta,
                 {(uint64_t)a, type_a, turn_a != 0, rows_a, turn_a ? m : k, lda, next_a},
                 {(uint64_t)b, type_b, turn_b != 0, rows_b, turn_b ? k : n, ldb, next_b},
                 {(uint64_t)c, type_c, false, m, n, ldc, next_c},
                 type_a == R_32F && (compute_in == COMPUTE_32F_FAST_TF32 ||
                                     (compute_in == COMPUTE_32F && blas->mode == TF32_MATH)),
                 blas->workspace, blas->workspace_bytes};
    Device* device = blas->device;
    double cost = 2 + 2.0 * m * n * k * count / 1e6;
    Work work = enqueue(stream, "kernel", cost, [=] { return multiply(*device, p); });
    work->detail = text("of cuBLAS, %d x %d x %d,", (int)m, (int)n, (int)k);
    pass_time();
    return 0;
}

}  // namespace host

using host::Blas;
using host::R_32F;

extern "C" {

int cublasCreate_v2(Blas** blas) {
    CALL(cublasCreate_v2);
    Device* device = host::current();
    if (host::trouble(device)) return host::BLAS_NOT_INITIALIZED;
    *blas = new Blas{device, nullptr, 0, 0, 0, true};
    return 0;
}

int cublasDestroy_v2(Blas* blas) {
    CALL(cublasDestroy_v2);
    if (int e = host::blas_of(blas)) return e;
    // It waits for the device, as the manual says.
    if (host::breaks_captures(blas->device, "cublasDestroy")) return host::BLAS_EXECUTION_FAILED;
    if (host::finish_device(blas->device, call.held)) return host::BLAS_EXECUTION_FAILED;
    blas->alive = false;
    return 0;
}

int cublasSetStream_v2(Blas* blas, void* stream) {
    CALL(cublasSetStream_v2);
    if (int e = host::blas_of(blas)) return e;
    blas->stream = stream;
    // As the manual says.
    blas->workspace = blas->workspace_bytes = 0;
    return 0;
}

int cublasSetWorkspace_v2(Blas* blas, void* workspace, size_t bytes) {
    CALL(cublasSetWorkspace_v2);
    if (int e = host::blas_of(blas)) return e;
    if ((uint64_t)workspace % 256) return host::BLAS_INVALID_VALUE;
    blas->workspace = (uint64_t)workspace;
    blas->workspace_bytes = bytes;
    return 0;
}

int cublasSetMathMode(Blas* blas, int mode) {
    CALL(cublasSetMathMode);
    if (int e = host::blas_of(blas)) return e;
    blas->mode = mode;
    return 0;
}

int cublasSetAtomicsMode(Blas* blas, int) {
    CALL(cublasSetAtomicsMode);
    return host::blas_of(blas);
}

int cublasSetPointerMode_v2(Blas* blas, int mode) {
    CALL(cublasSetPointerMode_v2);
    if (mode != 0) return host::wrong(host::BLAS_NOT_SUPPORTED, "factors in device memory are not emulated");
    return host::blas_of(blas);
}

int cublasGetVersion_v2(Blas*, int* version) {
    CALL(cublasGetVersion_v2);
    *version = settings().blas;
    return 0;
}

int cublasSgemm_v2_64(Blas* blas, int ta, int tb, int64_t m, int64_t n, int64_t k, const float* alpha, const void* a,
                      int64_t lda, const void* b, int64_t ldb, const float* beta, void* c, int64_t ldc) {
    CALL(cublasSgemm_v2_64);
    return host::gemm(blas, ta, tb, m, n, k, alpha, a, R_32F, lda, 0, b, R_32F, ldb, 0, beta, c, R_32F, ldc, 0,
                      1, host::COMPUTE_32F);
}

int cublasSgemmStridedBatched_64(Blas* blas, int ta, int tb, int64_t m, int64_t n, int64_t k, const float* alpha,
                                 const void* a, int64_t lda, long long next_a, const void* b, int64_t ldb,
                                 long long next_b, const float* beta, void* c, int64_t ldc, long long next_c,
                                 int64_t count) {
    CALL(cublasSgemmStridedBatched_64);
    return host::gemm(blas, ta, tb, m, n, k, alpha, a, R_32F, lda, next_a, b, R_32F, ldb, next_b, beta, c, R_32F,
                      ldc, next_c, count, host::COMPUTE_32F);
}

int cublasGemmEx_64(Blas* blas, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
                    int type_a, int64_t lda, const void* b, int type_b, int64_t ldb, const void* beta, void* c,
                    int type_c, int64_t ldc, int compute_in, int) {
    CALL(cublasGemmEx_64);
    return host::gemm(blas, ta, tb, m, n, k, (const float*)alpha, a, type_a, lda, 0, b, type_b, ldb, 0,
                      (const float*)beta, c, type_c, ldc, 0, 1, compute_in);
}

int cublasGemmStridedBatchedEx_64(Blas* blas, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha,
                                  const void* a, int type_a, int64_t lda, long long next_a, const void* b, int type_b,
                                  int64_t ldb, long long next_b, const void* beta, void* c, int type_c, int64_t ldc,
                                  long long next_c, int64_t count, int compute_in, int) {
    CALL(cublasGemmStridedBatchedEx_64);
    return host::gemm(blas, ta, tb, m, n, k, (const float*)alpha, a, type_a, lda, next_a, b, type_b, ldb, next_b,
                      (const float*)beta, c, type_c, ldc, next_c, count, compute_in);
}

const char* cublasGetStatusString(int status) {
    switch (status) {
        case 0: return "the operation completed successfully";
        case host::BLAS_NOT_INITIALIZED: return "the cuBLAS library was not initialized";
        case host::BLAS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
        case host::BLAS_EXECUTION_FAILED: return "the GPU program failed to execute";
        case host::BLAS_NOT_SUPPORTED: return "the functionality requested is not supported";
        default: return "an internal operation failed";
    }
}

const char* cublasGetStatusName(int status) { return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_ERROR"; }

}  // extern "C"
