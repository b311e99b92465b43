// Which bytes of the devices' memory were written. Where the compiler is told to call a function at each access
// (-fsanitize=thread; the functions are those below, not the sanitizer's library), a kernel or a product that reads what
// nobody wrote is a fault, whether or not its result depends on that.

namespace host {

constexpr uint64_t ROOM = 1ull << 38;

/// The rooms of all devices, and behind them that of the host's pinned memory.
static uint64_t rooms_start() {
    auto reserve = [] {
        void* rooms = mmap(nullptr, (MOST_DEVICES + 1) * ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (rooms == MAP_FAILED) abort();
        return (uint64_t)rooms;
    };
    static uint64_t start = reserve();
    return start;
}

#ifdef __SANITIZE_THREAD__

#define UNSEEN __attribute__((no_sanitize_thread))

/// One byte for each of the devices' memory: whether it was written.
static unsigned char* written = nullptr;
static uint64_t first_room = 0;
/// The name of the kernel or product that runs.
static const char* reader = nullptr;

static std::string describe(uint64_t address);

UNSEEN static bool is_of_device(uint64_t at) { return first_room && at - first_room < MOST_DEVICES * ROOM; }

/// A kernel or a product while it runs: what it reads is looked at.
struct Reader {
    explicit Reader(const char* name) { reader = name; }
    ~Reader() { reader = nullptr; }
};

static void open_rooms() {
    if (first_room) return;
    void* all = mmap(nullptr, MOST_DEVICES * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) abort();
    written = (unsigned char*)all;
    first_room = rooms_start();
}

UNSEEN static void set_written(uint64_t at, uint64_t bytes, bool is_written) {
    if (is_of_device(at)) memset(written + (at - first_room), is_written, bytes);
}

UNSEEN static void copy_written(uint64_t to, uint64_t from, uint64_t bytes) {
    if (!is_of_device(from)) return set_written(to, bytes, true);
    if (is_of_device(to)) memmove(written + (to - first_room), written + (from - first_room), bytes);
}

/// Each place of the program is told once, by its distance from the start of the library (for addr2line).
UNSEEN static void note_unwritten(uint64_t at, uint64_t bytes, void* caller) {
    const char* name = reader;
    reader = nullptr;
    static auto* told = new std::set<std::pair<std::string, void*>>();
    if (told->emplace(name, caller).second) {
        Dl_info found = {};
        dladdr(caller, &found);
        fault(text("%s reads %d bytes that nobody wrote, %s (+%#lx)", name, (int)bytes, describe(at).c_str(),
                   (unsigned long)((uint64_t)caller - (uint64_t)found.dli_fbase)));
    }
    reader = name;
}

UNSEEN static inline void reads(void* address, uint64_t bytes, void* caller) {
    uint64_t at = (uint64_t)address;
    if (!reader || !is_of_device(at)) return;
    const unsigned char* known = written + (at - first_room);
    for (uint64_t i = 0; i < bytes; i++) {
        if (!known[i]) return note_unwritten(at, bytes, caller);
    }
}

UNSEEN static inline void writes(void* address, uint64_t bytes) {
    if (reader) set_written((uint64_t)address, bytes, true);
}

#else

struct Reader {
    explicit Reader(const char*) {}
};

static void open_rooms() {}
static void set_written(uint64_t, uint64_t, bool) {}
static void copy_written(uint64_t, uint64_t, uint64_t) {}

#endif

}  // namespace host

#ifdef __SANITIZE_THREAD__

extern "C" {

#define ACCESSES(bytes)                                                                                                \
    UNSEEN void __tsan_read##bytes(void* at) { host::reads(at, bytes, __builtin_return_address(0)); }                  \
    UNSEEN void __tsan_write##bytes(void* at) { host::writes(at, bytes); }                                             \
    UNSEEN void __tsan_unaligned_read##bytes(void* at) { host::reads(at, bytes, __builtin_return_address(0)); }        \
    UNSEEN void __tsan_unaligned_write##bytes(void* at) { host::writes(at, bytes); }

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

UNSEEN void __tsan_read_range(void* at, size_t bytes) { host::reads(at, bytes, __builtin_return_address(0)); }
UNSEEN void __tsan_write_range(void* at, size_t bytes) { host::writes(at, bytes); }
UNSEEN void __tsan_init() {}
UNSEEN void __tsan_func_entry(void*) {}
UNSEEN void __tsan_func_exit() {}
UNSEEN void __tsan_vptr_update(void**, void*) {}
// What the C++ library's headers do atomically.
UNSEEN char __tsan_atomic8_load(const volatile char* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
UNSEEN int __tsan_atomic32_fetch_add(volatile int* at, int by, int) { return __atomic_fetch_add(at, by, __ATOMIC_SEQ_CST); }

}  // extern "C"

#endif
