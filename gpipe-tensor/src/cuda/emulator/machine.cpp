// A processor that runs kernels of CUDA C++: every thread of a block is a fiber, and which one goes on
// is drawn from a seed whenever one has to wait. In some blocks every draw is a new one; in others each
// warp has its rank, so that some run as far ahead of the rest as barriers let them. Where only the
// result counts they go on in order, which is faster. Shared memory and what nobody wrote hold no
// numbers.

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

struct Index {
    unsigned x, y, z;
};

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_read_range(void*, size_t);
#endif

static Index threadIdx, blockIdx, blockDim, gridDim;

namespace gpipe {
extern __align__(16) float shared[];
}

namespace machine {

constexpr unsigned LANES = 32;
constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 64 * 1024;
constexpr size_t SHARED = 227 * 1024;

// Switches to another stack: pushes what a function must keep, and pops what was kept there.
extern "C" void machine_switch(void** from, void* to);
asm(R"(
    .text
    .globl machine_switch
machine_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

enum class State { READY, AT_BARRIER, IN_WARP, DONE };

struct Fiber {
    char* memory;
    /// Where it goes on; null before it began.
    void* stack;
    State state;
    unsigned barrier;
    /// Which of its warp's two rows of slots is next.
    unsigned turn;
};

struct Warp {
    unsigned arrived;
    /// What the lanes hold out to each other; two rows, so that a lane may go on to the next exchange
    /// while others still read this one.
    uint64_t slots[2][LANES];
    /// What the lanes hold of two factors; two rows for the same reason.
    uint32_t factors[2][LANES][6];
};

/// A copy to shared memory that the device may do at any time before it is waited for.
struct Copy {
    uint32_t to;
    const void* from;
    uint32_t bytes;
    bool there;
};

static Fiber fibers[MOST_THREADS];
static Warp warps[MOST_THREADS / LANES];
/// A product of a warpgroup that the device may compute at any time before it is waited for: what one lane gets of it.
struct Product {
    float* sums;
    uint32_t columns;
    /// The left factor as the four lanes of the row hold it, or its descriptor.
    uint32_t held[4][4];
    bool is_held;
    uint64_t left, right;
    bool transposed, add;
    unsigned group;
};

/// What each thread takes part in, in order; how many groups each has committed, and how many each warp has begun.
static std::vector<Product> products[MOST_THREADS];
static unsigned groups[MOST_THREADS], begun[MOST_THREADS / LANES];
/// Who could go on: the largest draw does.
static std::priority_queue<std::pair<unsigned, unsigned>> ready;
/// What each thread has begun to copy.
static std::vector<Copy> copies[MOST_THREADS];
/// Who could go on when all go on in order.
static unsigned line[2 * MOST_THREADS];
static unsigned line_first, line_end;
static bool in_order = false;
static bool ranked;
static unsigned rank_of_warp[MOST_THREADS / LANES];
static void* scheduler;
static unsigned current, threads, arrived, done, without;
static bool any, any_of_all;
static const char* error;
static uint64_t random_state;
static void (*kernel)(void* const*);
static void* const* arguments;

static unsigned random_below(unsigned n) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((random_state >> 33) % n);
}

static void fail(const char* why) {
    if (!error) error = why;
}

static void make_ready(unsigned thread) {
    fibers[thread].state = State::READY;
    if (in_order) {
        line[line_end++ % (2 * MOST_THREADS)] = thread;
        return;
    }
    unsigned draw = random_below(1u << 16);
    if (ranked) draw += rank_of_warp[thread / LANES] << 16;
    ready.push({draw, thread});
}

/// The thread that goes on now, or none.
static bool next_thread(unsigned& thread) {
    if (in_order) {
        if (line_first == line_end) return false;
        thread = line[line_first++ % (2 * MOST_THREADS)];
        return true;
    }
    if (ready.empty()) return false;
    thread = ready.top().second;
    ready.pop();
    return true;
}

/// Lets another thread go on until this one is made ready.
static void wait(State why) {
    fibers[current].state = why;
    machine_switch(&fibers[current].stack, scheduler);
}

static void meet(unsigned number) {
    fibers[current].barrier = number;
    if (++arrived == threads) {
        for (unsigned t = 0; t < threads; t++) {
            if (fibers[t].barrier != number) fail("threads meet at different barriers");
            make_ready(t);
        }
        arrived = 0;
        any_of_all = any;
        any = false;
    }
    wait(State::AT_BARRIER);
}

/// __syncthreads(), the `number`-th of the source.
static inline void barrier(unsigned number) {
    if (number != without) meet(number);
}

static void finish(const Copy& copy) {
    char* to = (char*)gpipe::shared + copy.to;
    if (copy.to + copy.bytes > SHARED) return fail("a copy to beyond the shared memory");
    if (copy.there) memcpy(to, copy.from, copy.bytes);
    else memset(to, 0, copy.bytes);
}

/// Begins a copy: done as late as can be, or at once, as the seed says.
static inline void begin_copy(const Copy& copy) {
    if (copy.to % copy.bytes || (copy.there && (uintptr_t)copy.from % copy.bytes)) return fail("a copy that is not aligned");
#ifdef __SANITIZE_THREAD__
    if (copy.there) __tsan_read_range((void*)copy.from, copy.bytes);
#endif
    if (!in_order && random_below(4) == 0) finish(copy);
    else copies[current].push_back(copy);
}

/// Waits for this thread's copies, the `number`-th wait of the source.
static inline void wait_for_copies(unsigned number) {
    if (number == without) return;
    for (const Copy& copy : copies[current]) finish(copy);
    copies[current].clear();
}

/// What lane `from` of the warp holds out, once all of its lanes have come.
template <class V>
static V exchange(V value, unsigned from) {
    static_assert(sizeof(V) <= sizeof(uint64_t), "a slot holds eight bytes");
    Warp& warp = warps[current / LANES];
    uint64_t* slots = warp.slots[fibers[current].turn++ % 2];
    memcpy(&slots[current % LANES], &value, sizeof(V));
    if (++warp.arrived == LANES) {
        warp.arrived = 0;
        for (unsigned lane = 0; lane < LANES; lane++) make_ready(current / LANES * LANES + lane);
    }
    wait(State::IN_WARP);
    V result;
    memcpy(&result, &slots[from], sizeof(V));
    return result;
}

/// What all lanes of the warp hold out.
static inline void gather(uint64_t value, uint64_t (&values)[LANES]) {
    Warp& warp = warps[current / LANES];
    unsigned row = fibers[current].turn % 2;
    exchange(value, 0);
    memcpy(values, warp.slots[row], sizeof(values));
}

/// The factors of all lanes of the warp, once all have come.
static inline const uint32_t (*hold_out(const uint32_t (&words)[6]))[6] {
    Warp& warp = warps[current / LANES];
    unsigned row = fibers[current].turn % 2;
    memcpy(warp.factors[row][current % LANES], words, sizeof(words));
    exchange(0u, 0);
    return warp.factors[row];
}

}  // namespace machine

static inline int __syncthreads_or(int value) {
    machine::any = machine::any || value;
    machine::meet(~0u);
    return machine::any_of_all;
}

template <class V>
static V __shfl_xor_sync(unsigned, V value, unsigned distance) {
    return machine::exchange(value, (machine::current % machine::LANES) ^ distance);
}

static inline void __syncwarp() { machine::exchange(0u, 0u); }

static inline unsigned __ballot_sync(unsigned, bool vote) {
    unsigned bits = vote ? 1u << (machine::current % machine::LANES) : 0u;
    for (unsigned distance = 1; distance < machine::LANES; distance *= 2) {
        bits |= __shfl_xor_sync(~0u, bits, distance);
    }
    return bits;
}

static inline uint32_t shared_address(const void* at) {
    return (uint32_t)((const char*)at - (const char*)gpipe::shared);
}

static inline void copy_16(uint32_t to, const void* from, bool there) { machine::begin_copy({to, from, 16, there}); }
static inline void copy_4(uint32_t to, const void* from, bool there) { machine::begin_copy({to, from, 4, there}); }

/// Element (row, column) of a matrix of 16-bit elements whose rows lie where lanes `first` on say.
static inline uint32_t matrix_element(const uint64_t* rows, unsigned first, unsigned row, unsigned column) {
    uint16_t bits;
    memcpy(&bits, (const char*)gpipe::shared + rows[first + row] + 2 * column, 2);
    return bits;
}

static inline void load_matrices(uint32_t (&r)[4], uint32_t at, bool transposed) {
    uint64_t rows[machine::LANES];
    if (at % 16 || at + 16 > machine::SHARED) machine::fail("a row of a matrix that is not aligned, or beyond the memory");
    machine::gather((uint64_t)(at % machine::SHARED / 16 * 16), rows);
    unsigned g = machine::current % machine::LANES / 4, t = machine::current % 4;
    for (unsigned m = 0; m < 4; m++) {
        uint32_t low = transposed ? matrix_element(rows, 8 * m, 2 * t, g) : matrix_element(rows, 8 * m, g, 2 * t);
        uint32_t high = transposed ? matrix_element(rows, 8 * m, 2 * t + 1, g) : matrix_element(rows, 8 * m, g, 2 * t + 1);
        r[m] = low | high << 16;
    }
}

static inline void load_matrices(uint32_t (&r)[4], uint32_t at) { load_matrices(r, at, false); }
static inline void load_transposed(uint32_t (&r)[4], uint32_t at) { load_matrices(r, at, true); }

static inline int __ffs(int bits) { return __builtin_ffs(bits); }

static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float load_shared(uint32_t at) {
    if (at % 4 || at + 4 > machine::SHARED) machine::fail("a float that is not aligned, or beyond the memory");
    float value;
    memcpy(&value, (const char*)gpipe::shared + at % machine::SHARED, sizeof(value));
    return value;
}

static inline float half_of(uint32_t pair, unsigned upper) {
    return __uint_as_float(upper ? pair & 0xffff0000u : pair << 16);
}

/// d += a · b as mma.m16n8k16 lays fragments out over the lanes: each lane sums its four in order.
static inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const auto* factors = machine::hold_out({a[0], a[1], a[2], a[3], b0, b1});
    unsigned g = machine::current % machine::LANES / 4, t = machine::current % 4;
    for (unsigned i = 0; i < 4; i++) {
        unsigned column = 2 * t + i % 2;
        float sum = 0.0f;
        for (unsigned k = 0; k < 16; k++) {
            unsigned pair = k % 8 / 2, upper_half = k / 8;
            float left = half_of(factors[4 * g + pair][i / 2 + 2 * upper_half], k % 2);
            float right = half_of(factors[4 * column + pair][4 + upper_half], k % 2);
            sum += left * right;
        }
        d[i] += sum;
    }
}

static inline uint32_t round_to_tf32(float value) {
    uint32_t bits = __float_as_uint(value);
    if (value != value) return 0x7fffe000u;
    return (bits + 0x1000u) & ~0x1fffu;
}

/// d += a · b as mma.m16n8k8 lays fragments out over the lanes: each lane sums its four in order.
static inline void multiply_add_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const auto* factors = machine::hold_out({a[0], a[1], a[2], a[3], b0, b1});
    for (unsigned word = 0; word < 6; word++) {
        if (factors[machine::current % machine::LANES][word] & 0x1fffu) machine::fail("a factor that is not TF32");
    }
    unsigned g = machine::current % machine::LANES / 4, t = machine::current % 4;
    for (unsigned i = 0; i < 4; i++) {
        unsigned column = 2 * t + i % 2;
        float sum = 0.0f;
        for (unsigned k = 0; k < 8; k++) {
            float left = __uint_as_float(factors[4 * g + k % 4][i / 2 + 2 * (k / 4)]);
            float right = __uint_as_float(factors[4 * column + k % 4][4 + k / 4]);
            sum += left * right;
        }
        d[i] += sum;
    }
}

static inline uint32_t round_to_half(float value) {
    uint32_t bits = __float_as_uint(value);
    if (value != value) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

static inline uint32_t pack(float low, float high) { return round_to_half(low) | round_to_half(high) << 16; }
static inline float exp2_fast(float x) { return exp2f(x); }
static inline float reciprocal_fast(float x) { return 1.0f / x; }

// Products of warpgroups, which devices of compute capability 9.0 alone have. Those that copies bring are seen at once here.
#define WARPGROUP_PRODUCTS

namespace machine {

/// The element of bf16 at an address of a matrix whose rows of 128 bytes have changed places of 16 bytes.
static inline float product_element(uint32_t at) {
    at ^= (at >> 7 & 7) << 4;
    if (at + 2 > SHARED) fail("a product of what is beyond the shared memory");
    uint16_t bits;
    memcpy(&bits, (const char*)gpipe::shared + at % SHARED, 2);
    return __uint_as_float((uint32_t)bits << 16);
}

/// Where the matrix of a descriptor begins.
static inline uint32_t product_begin(uint64_t matrix) {
    if (matrix >> 62 != 1 || (matrix >> 32 & 0x3fff) != 1024 >> 4 || (matrix >> 46 & 0xffff) != 0) {
        fail("a descriptor of another layout");
    }
    return (uint32_t)(matrix & 0x3fff) << 4;
}

/// The address of element (row, column) of a matrix of rows of 128 bytes.
static inline uint32_t product_address(uint64_t matrix, unsigned row, unsigned column) {
    return product_begin(matrix) + row / 8 * 1024 + row % 8 * 128 + 2 * column;
}

static void finish(const Product& product, unsigned thread) {
    unsigned g = thread % LANES / 4, t = thread % 4, warp = thread / LANES % 4;
    for (unsigned e = 0; e < product.columns / 2; e++) {
        unsigned row = g + e % 4 / 2 * 8, column = e / 4 * 8 + 2 * t + e % 2;
        float sum = 0.0f;
        for (unsigned k = 0; k < 16; k++) {
            float left = product.is_held
                             ? half_of(product.held[k % 8 / 2][row / 8 + k / 8 * 2], k % 2)
                             : product_element(product_address(product.left, 16 * warp + row, k));
            float right = product_element(product.transposed ? product_address(product.right, k, column)
                                                             : product_address(product.right, column, k));
            sum += left * right;
        }
        product.sums[e] = product.add ? product.sums[e] + sum : sum;
    }
}

/// Computes this thread's part of the products up to a group.
static void finish_products(unsigned up_to) {
    std::vector<Product>& pending = products[current];
    size_t count = 0;
    while (count < pending.size() && pending[count].group < up_to) finish(pending[count++], current);
    pending.erase(pending.begin(), pending.begin() + count);
}

/// Begins a product: computed as late as can be, or at once, as the seed says.
static inline void begin(Product product) {
    if (current % LANES == 0) begun[current / LANES]++;
    product.group = groups[current];
    products[current].push_back(product);
    if (!in_order && random_below(4) == 0) finish_products(~0u);
}

/// Waits for this thread's products, the `number`-th wait of the source.
static inline void wait_for_products(unsigned number) {
    if (number != without) finish_products(groups[current]);
}

/// The same but those of the last group.
static inline void wait_for_older_products(unsigned number) {
    if (number != without && groups[current] > 0) finish_products(groups[current] - 1);
}

}  // namespace machine

static inline uint32_t of_first_lane(uint32_t value) {
    uint32_t first = machine::exchange(value, 0);
    if (value != first) machine::fail("lanes differ where all are to be alike");
    return first;
}

static inline void show_to_products() {}
static inline void begin_products() {}
static inline void commit_products() { machine::groups[machine::current]++; }

template <uint32_t N>
static inline void hold_results(float (&)[N][4]) {}

/// d += a · b, or d = a · b, as wgmma.m64nNk16 lays fragments out over the lanes: each lane sums its own in order.
template <bool TRANSPOSED, uint32_t N>
static inline void begin_product(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    const auto* factors = machine::hold_out({a[0], a[1], a[2], a[3], 0, 0});
    machine::Product product{&d[0][0], 8 * N, {}, true, 0, b, TRANSPOSED, add, 0};
    unsigned row = machine::current % machine::LANES / 4;
    for (unsigned t = 0; t < 4; t++) memcpy(product.held[t], factors[4 * row + t], sizeof(product.held[t]));
    machine::begin(product);
}

template <uint32_t N>
static inline void begin_product(float (&d)[N][4], uint64_t a, uint64_t b, bool add) {
    machine::begin({&d[0][0], 8 * N, {}, false, a, b, false, add, 0});
}

struct Kernel {
    const char* name;
    /// Its parameters: I and O are addresses that are read and written, L and u numbers of eight and of
    /// four bytes, d and f doubles and floats.
    const char* params;
    void (*run)(void* const* args);
};

template <class... P, size_t... I>
static void call(void (*kernel)(P...), void* const* args, std::index_sequence<I...>) {
    kernel(*(P*)args[I]...);
}

/// Calls a kernel with the values that the pointers point to.
template <class... P>
static void call(void (*kernel)(P...), void* const* args) {
    call(kernel, args, std::index_sequence_for<P...>());
}

// KERNELS

namespace gpipe {
alignas(16) float shared[machine::SHARED / sizeof(float)];
}

namespace machine {

/// What every fiber runs: one thread of one block after the other.
static void thread_main() {
    for (;;) {
        kernel(arguments);
        done++;
        wait(State::DONE);
    }
}

static void prepare(unsigned thread) {
    Fiber& fiber = fibers[thread];
    if (!fiber.memory) fiber.memory = new char[STACK];
    if (!fiber.stack) {
        uintptr_t top = ((uintptr_t)fiber.memory + STACK) & ~(uintptr_t)15;
        void** slots = (void**)(top - 16);
        slots[0] = (void*)thread_main;
        fiber.stack = slots - 6;
    }
    fiber.turn = 0;
    copies[thread].clear();
    products[thread].clear();
    groups[thread] = 0;
}

/// Whether each byte is as it was before the launch: the first one is, and each is like the one before it.
static bool is_untouched(const unsigned char* bytes, size_t size) {
    return size == 0 || (bytes[0] == 0xff && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static void run_block(unsigned shared_bytes) {
    memset(gpipe::shared, 0xff, shared_bytes);
    memset(warps, 0xff, sizeof(warps));
    for (unsigned w = 0; w < threads / LANES; w++) warps[w].arrived = begun[w] = 0;
    ready = {};
    line_first = line_end = 0;
    ranked = random_below(2) == 0;
    for (unsigned w = 0; w < threads / LANES; w++) rank_of_warp[w] = random_below(1u << 15);
    arrived = done = 0;
    any = false;
    for (unsigned t = 0; t < threads; t++) {
        prepare(t);
        make_ready(t);
    }
    while (next_thread(current)) {
        threadIdx = {current, 0, 0};
        machine_switch(&scheduler, fibers[current].stack);
    }
    for (unsigned t = 0; t < threads; t++) {
        if (!copies[t].empty()) fail("a copy to shared memory is never waited for");
        if (!products[t].empty()) fail("a product is never waited for");
    }
    for (unsigned w = 0; w < threads / LANES; w++) {
        if (begun[w] != begun[w / 4 * 4]) fail("a product of which not all warps of a warpgroup take part");
    }
    if (done < threads) fail("some threads wait where others never come");
}

/// Fibers that hang in the middle of a kernel begin anew.
static void abandon() {
    for (Fiber& fiber : fibers) fiber.stack = nullptr;
}

}  // namespace machine

/// Runs the named kernel over all blocks, in an order drawn from the seed too; gives what went wrong,
/// or null.
extern "C" const char* emulate(const char* name, unsigned blocks, unsigned block_threads,
                               unsigned shared_bytes, void* const* args, uint64_t seed,
                               unsigned without) {
    using namespace machine;
    kernel = nullptr;
    for (const Kernel& candidate : KERNELS) {
        if (strcmp(candidate.name, name) == 0) kernel = candidate.run;
    }
    if (!kernel) return "there is no such kernel";
    if (block_threads > MOST_THREADS || block_threads % LANES != 0 || shared_bytes > SHARED) {
        return "no block has that many threads or that much shared memory";
    }
    threads = block_threads;
    arguments = args;
    machine::without = without;
    error = nullptr;
    random_state = seed * 2654435761ull + 88172645463325252ull;
    blockDim = {threads, 1, 1};
    gridDim = {blocks, 1, 1};
    std::vector<unsigned> order(blocks);
    for (unsigned b = 0; b < blocks; b++) {
        order[b] = b;
        std::swap(order[b], order[random_below(b + 1)]);
    }
    memset(gpipe::shared, 0xff, SHARED);
    for (unsigned b : order) {
        blockIdx = {b, 0, 0};
        run_block(shared_bytes);
        if (error) {
            abandon();
            return error;
        }
    }
    if (!is_untouched((const unsigned char*)gpipe::shared + shared_bytes, SHARED - shared_bytes)) {
        return "shared memory is written beyond what was asked for";
    }
    return nullptr;
}
