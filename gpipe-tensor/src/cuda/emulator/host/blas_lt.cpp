// cuBLASLt: products whose descriptors, algorithms and epilogues are objects, by the loops of cuBLAS. An algorithm is
// good for the product that it was chosen for, at addresses as aligned as was said then.

namespace host {

enum { LT_TRANSA = 3, LT_TRANSB = 4, LT_EPILOGUE = 7, LT_BIAS_POINTER = 8, LT_BIAS_TYPE = 26 };
enum { LT_WORKSPACE = 1, LT_REDUCTION = 3, LT_ALIGNMENT_A = 5, LT_ALIGNMENT_D = 8 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4, REDUCTION_IN_PLACE = 1, REDUCTION_OUTPUT = 4 };

struct Lt {
    Device* device;
    bool alive;
};

struct LtDesc {
    int compute, scale, turn_a, turn_b, epilogue, bias_type;
    uint64_t bias;
    bool alive;
};

struct LtLayout {
    int type;
    uint64_t rows, columns;
    int64_t stride;
    bool alive;
};

struct LtPreference {
    uint64_t workspace;
    uint32_t reduction, alignment[4];
    bool alive;
};

/// What an algorithm was chosen for, in the 64 bytes that the program keeps.
struct LtAlgo {
    uint64_t product, workspace;
    uint32_t alignment[4];
    uint64_t rest[4];
};

struct LtResult {
    LtAlgo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/// A number for all that an algorithm is chosen by; the address of the bias is not part of it.
static uint64_t product_of(const LtDesc& desc, const LtLayout& a, const LtLayout& b, const LtLayout& c, const LtLayout& d) {
    uint64_t number = 0x6c74;
    auto add = [&](uint64_t value) { number = (number ^ value) * 0x100000001b3ull + 1; };
    for (int value : {desc.compute, desc.turn_a, desc.turn_b, desc.epilogue, desc.bias_type}) add((uint64_t)value);
    for (const LtLayout* layout : {&a, &b, &c, &d}) {
        for (uint64_t value : {(uint64_t)layout->type, layout->rows, layout->columns, (uint64_t)layout->stride}) add(value);
    }
    return number;
}

static Matrix matrix(const LtLayout& layout, const void* at, bool turned) {
    return {(uint64_t)at, layout.type, turned, (int64_t)layout.rows, (int64_t)layout.columns, layout.stride, 0};
}

/// 0 if the layouts are those of a product of these types, as (rows, columns, terms).
static int fits(const LtDesc& desc, const LtLayout& a, const LtLayout& b, const LtLayout& c, const LtLayout& d,
                int64_t sizes[3]) {
    for (const LtLayout* layout : {&a, &b, &c, &d}) {
        if (!layout->alive) return wrong(BLAS_INVALID_VALUE, "a layout of cuBLASLt is used after its end");
        if (layout->stride < (int64_t)std::max<uint64_t>(1, layout->rows)) return BLAS_INVALID_VALUE;
    }
    uint64_t m = desc.turn_a ? a.columns : a.rows, k = desc.turn_a ? a.rows : a.columns;
    uint64_t n = desc.turn_b ? b.rows : b.columns, terms = desc.turn_b ? b.columns : b.rows;
    if (k != terms || d.rows != m || d.columns != n || c.rows != m || c.columns != n) return BLAS_INVALID_VALUE;
    bool types = a.type == b.type && c.type == d.type && (d.type == a.type || d.type == R_32F) && desc.scale == R_32F;
    bool computes = desc.compute == COMPUTE_32F || desc.compute == COMPUTE_32F_FAST_TF32;
    bool epilogue = desc.epilogue == EPILOGUE_DEFAULT || (desc.epilogue == EPILOGUE_BIAS && desc.bias_type == d.type);
    sizes[0] = (int64_t)m, sizes[1] = (int64_t)n, sizes[2] = (int64_t)k;
    return types && computes && epilogue ? 0 : BLAS_NOT_SUPPORTED;
}

static int lt_of(Lt* lt) {
    if (!lt || !lt->alive) return wrong(BLAS_NOT_INITIALIZED, "a cuBLASLt handle is used that is none, or no more");
    return trouble(lt->device) ? BLAS_EXECUTION_FAILED : 0;
}

static int matmul(Lt* lt, LtDesc* desc, const float* alpha, const void* a, LtLayout* la, const void* b, LtLayout* lb,
                  const float* beta, const void* c, LtLayout* lc, void* d, LtLayout* ld, const LtAlgo* algo,
                  void* workspace, size_t bytes, void* on) {
    if (int e = lt_of(lt)) return e;
    if (current() != lt->device) return wrong(BLAS_EXECUTION_FAILED, "a cuBLASLt handle is used in another context");
    if (!desc->alive) return wrong(BLAS_INVALID_VALUE, "a descriptor of cuBLASLt is used after its end");
    int64_t sizes[3];
    if (int e = fits(*desc, *la, *lb, *lc, *ld, sizes)) return e;
    if (algo->product != product_of(*desc, *la, *lb, *lc, *ld)) {
        return wrong(BLAS_INVALID_VALUE, "an algorithm of cuBLASLt is used for another product than its own");
    }
    if (bytes < algo->workspace) return BLAS_INVALID_VALUE;
    const void* places[] = {a, b, *beta != 0 ? c : d, d};
    for (int i = 0; i < 4; i++) {
        if ((uint64_t)places[i] % algo->alignment[i]) fault("an algorithm of cuBLASLt is used at an address that is less aligned");
    }
    if ((uint64_t)workspace % 256) return BLAS_INVALID_VALUE;
    Stream* stream;
    if (stream_of(on, stream)) return BLAS_EXECUTION_FAILED;
    if (stream->device != lt->device) return wrong(BLAS_EXECUTION_FAILED, "a product's stream is of another context");
    Product p = {sizes[0], sizes[1], sizes[2], 1, *alpha, *beta,
                 matrix(*la, a, desc->turn_a != 0), matrix(*lb, b, desc->turn_b != 0), matrix(*lc, c, false),
                 desc->compute == COMPUTE_32F_FAST_TF32, (uint64_t)workspace, bytes};
    p.d = matrix(*ld, d, false);
    if (desc->epilogue == EPILOGUE_BIAS) p.bias = desc->bias;
    if (stream->capture) {
        static uint64_t captured = 0, bias = 0;
        static Matrix onto = {};
        if (++captured == settings().astray) std::swap(p.bias, bias), std::swap(p.c, onto);
        else bias = p.bias, onto = p.c;
    }
    Device* device = lt->device;
    double cost = 2 + 2.0 * sizes[0] * sizes[1] * sizes[2] / 1e6;
    Work work = enqueue(stream, "kernel", cost, [=] { return multiply(*device, p); });
    work->detail = text("of cuBLASLt, %d x %d x %d,", (int)sizes[0], (int)sizes[1], (int)sizes[2]);
    pass_time();
    return 0;
}

}  // namespace host

using host::Lt;
using host::LtDesc;
using host::LtLayout;
using host::LtPreference;

extern "C" {

size_t cublasLtGetVersion() { return host::settings().lt; }

int cublasLtCreate(Lt** lt) {
    CALL(cublasLtCreate);
    host::Device* device = host::current();
    if (host::trouble(device)) return host::BLAS_NOT_INITIALIZED;
    *lt = new Lt{device, true};
    return 0;
}

int cublasLtDestroy(Lt* lt) {
    CALL(cublasLtDestroy);
    if (int e = host::lt_of(lt)) return e;
    if (host::breaks_captures(lt->device, "cublasLtDestroy")) return host::BLAS_EXECUTION_FAILED;
    if (host::finish_device(lt->device, call.held)) return host::BLAS_EXECUTION_FAILED;
    lt->alive = false;
    return 0;
}

int cublasLtMatmulDescCreate(LtDesc** desc, int compute, int scale) {
    CALL(cublasLtMatmulDescCreate);
    *desc = new LtDesc{compute, scale, 0, 0, host::EPILOGUE_DEFAULT, -1, 0, true};
    return 0;
}

int cublasLtMatmulDescSetAttribute(LtDesc* desc, int attribute, const void* value, size_t bytes) {
    CALL(cublasLtMatmulDescSetAttribute);
    int* number = attribute == host::LT_TRANSA ? &desc->turn_a : attribute == host::LT_TRANSB ? &desc->turn_b :
                  attribute == host::LT_EPILOGUE ? &desc->epilogue : attribute == host::LT_BIAS_TYPE ? &desc->bias_type :
                  nullptr;
    if (number && bytes == 4) memcpy(number, value, 4);
    else if (attribute == host::LT_BIAS_POINTER && bytes == 8) memcpy(&desc->bias, value, 8);
    else return host::BLAS_INVALID_VALUE;
    return 0;
}

int cublasLtMatmulDescDestroy(LtDesc* desc) {
    CALL(cublasLtMatmulDescDestroy);
    desc->alive = false;
    return 0;
}

int cublasLtMatrixLayoutCreate(LtLayout** layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    CALL(cublasLtMatrixLayoutCreate);
    *layout = new LtLayout{type, rows, columns, stride, true};
    return 0;
}

int cublasLtMatrixLayoutDestroy(LtLayout* layout) {
    CALL(cublasLtMatrixLayoutDestroy);
    layout->alive = false;
    return 0;
}

int cublasLtMatmulPreferenceCreate(LtPreference** preference) {
    CALL(cublasLtMatmulPreferenceCreate);
    // As the manual says: no workspace, every way of adding partial sums, addresses at multiples of 256 bytes.
    *preference = new LtPreference{0, 7, {256, 256, 256, 256}, true};
    return 0;
}

int cublasLtMatmulPreferenceSetAttribute(LtPreference* preference, int attribute, const void* value, size_t bytes) {
    CALL(cublasLtMatmulPreferenceSetAttribute);
    bool is_alignment = attribute >= host::LT_ALIGNMENT_A && attribute <= host::LT_ALIGNMENT_D;
    if (attribute == host::LT_WORKSPACE && bytes == 8) memcpy(&preference->workspace, value, 8);
    else if (attribute == host::LT_REDUCTION && bytes == 4) memcpy(&preference->reduction, value, 4);
    else if (is_alignment && bytes == 4) memcpy(&preference->alignment[attribute - host::LT_ALIGNMENT_A], value, 4);
    else return host::BLAS_INVALID_VALUE;
    return 0;
}

int cublasLtMatmulPreferenceDestroy(LtPreference* preference) {
    CALL(cublasLtMatmulPreferenceDestroy);
    preference->alive = false;
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(Lt* lt, LtDesc* desc, LtLayout* a, LtLayout* b, LtLayout* c, LtLayout* d,
                                   LtPreference* preference, int asked, host::LtResult* results, int* found) {
    CALL(cublasLtMatmulAlgoGetHeuristic);
    *found = 0;
    if (int e = host::lt_of(lt)) return e;
    int64_t sizes[3];
    if (int e = host::fits(*desc, *a, *b, *c, *d, sizes)) return e;
    if (asked < 1 || host::settings().no_algorithm) return host::BLAS_NOT_SUPPORTED;
    if (desc->epilogue == host::EPILOGUE_BIAS && !desc->bias) return host::BLAS_NOT_SUPPORTED;
    if (d->type == host::R_16BF && preference->reduction & (host::REDUCTION_IN_PLACE | host::REDUCTION_OUTPUT)) {
        host::fault("a product in bf16 may round its partial sums to bf16");
    }
    host::LtAlgo algo = {host::product_of(*desc, *a, *b, *c, *d), preference->workspace / 2, {}, {}};
    memcpy(algo.alignment, preference->alignment, sizeof(algo.alignment));
    results[0] = {algo, (size_t)algo.workspace, 0, 1.0f, {}};
    *found = 1;
    return 0;
}

int cublasLtMatmul(Lt* lt, LtDesc* desc, const void* alpha, const void* a, LtLayout* la, const void* b, LtLayout* lb,
                   const void* beta, const void* c, LtLayout* lc, void* d, LtLayout* ld, const host::LtAlgo* algo,
                   void* workspace, size_t bytes, void* stream) {
    CALL(cublasLtMatmul);
    return host::matmul(lt, desc, (const float*)alpha, a, la, b, lb, (const float*)beta, c, lc, d, ld, algo, workspace,
                        bytes, stream);
}

}  // extern "C"
