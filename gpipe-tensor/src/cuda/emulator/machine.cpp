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
#define __launch_bounds__(n)

struct Index {
    unsigned x, y, z;
};

static Index threadIdx, blockIdx, blockDim, gridDim;

namespace machine {

constexpr unsigned LANES = 32;
constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 64 * 1024;
constexpr size_t SHARED = 64 * 1024;

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
};

static Fiber fibers[MOST_THREADS];
static Warp warps[MOST_THREADS / LANES];
/// Who could go on: the largest draw does.
static std::priority_queue<std::pair<unsigned, unsigned>> ready;
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

static inline unsigned __ballot_sync(unsigned, bool vote) {
    unsigned bits = vote ? 1u << (machine::current % machine::LANES) : 0u;
    for (unsigned distance = 1; distance < machine::LANES; distance *= 2) {
        bits |= __shfl_xor_sync(~0u, bits, distance);
    }
    return bits;
}

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
}

static void run_block(unsigned shared_bytes) {
    memset(gpipe::shared, 0xff, SHARED);
    memset(warps, 0xff, sizeof(warps));
    for (unsigned w = 0; w < threads / LANES; w++) warps[w].arrived = 0;
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
    if (done < threads) fail("some threads wait where others never come");
    const unsigned char* bytes = (const unsigned char*)gpipe::shared;
    for (size_t i = shared_bytes; i < SHARED; i++) {
        if (bytes[i] != 0xff) {
            fail("shared memory is written beyond what was asked for");
            break;
        }
    }
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
    for (unsigned b : order) {
        blockIdx = {b, 0, 0};
        run_block(shared_bytes);
        if (error) {
            abandon();
            return error;
        }
    }
    return nullptr;
}
