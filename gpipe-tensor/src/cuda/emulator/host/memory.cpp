// Memory of devices, and the host's that is pinned. An address is given out once; what is not yet
// allocated or already freed, in the order that the device does it, cannot be touched. What nobody
// wrote holds no numbers, and what lies around a block is looked at after every use.

namespace host {

constexpr uint64_t PAGE = 4096;
constexpr uint64_t ALIGNMENT = 256;
/// The room of the host's pinned memory, after those of the devices.
constexpr int PINNED = MOST_DEVICES;

struct Pool;

struct Block {
    uint64_t start, bytes;
    /// The pages that hold it.
    uint64_t first, end;
    int device;
    /// None for what is not allocated in the order of a stream.
    Pool* pool;
    /// Whether the device has done the allocation, or the freeing.
    bool allocated, freed;
    /// Whether freeing was asked for.
    bool given_up;
    /// Operations that will still read or write it; of pinned memory.
    unsigned pending;
    /// Whether its ranges are given out by the program: an arena.
    bool arena;
};

struct Pool {
    int device;
    bool access[MOST_DEVICES];
    /// Whether memory may be reused behind a wait between streams that the program did not ask for.
    bool hidden_waits;
    uint64_t threshold, used, most_used, reserved, most_reserved;
    bool alive;
    /// Bytes whose freeing was asked for and is not done.
    uint64_t freeing;
    /// Where free memory is scattered: the bytes of each free piece.
    std::multiset<uint64_t> free;
};

/// Where the next block of each room may begin; 0 before the first.
static uint64_t cursors[MOST_DEVICES + 1];

/// By their starts.
static std::map<uint64_t, Block>& blocks() {
    static auto* blocks = new std::map<uint64_t, Block>();
    return *blocks;
}

static const char* place_name(int device) {
    static const char* NAMES[] = {"device 0", "device 1", "device 2", "device 3", "device 4",
                                  "device 5", "device 6", "device 7", "the host's pinned memory"};
    return NAMES[device];
}

/// A new block that cannot be touched yet.
static Block& reserve(int device, uint64_t bytes, Pool* pool) {
    open_rooms();
    uint64_t room = rooms_start() + (uint64_t)device * ROOM;
    if (!cursors[device]) cursors[device] = room + PAGE;
    uint64_t content = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    uint64_t pages = (content + PAGE - 1) / PAGE * PAGE;
    uint64_t first = cursors[device];
    cursors[device] += pages + PAGE;
    if (cursors[device] > room + ROOM) {
        fault("the emulator's addresses are used up");
        abort();
    }
    // At the end of its pages: what reaches beyond by an alignment touches one that is closed.
    uint64_t start = first + pages - content;
    Block block = {start, bytes, first, first + pages, device, pool, false, false, false, 0, false};
    return blocks().emplace(start, block).first->second;
}

/// Ranges of arenas that are taken, in the order of the device: bytes by start.
static std::map<uint64_t, uint64_t>& ranges() {
    static auto* ranges = new std::map<uint64_t, uint64_t>();
    return *ranges;
}

/// The end of a range with the bytes behind it that belong to nobody.
static uint64_t guarded_end(uint64_t start, uint64_t bytes) {
    return (start + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
}

/// The range that an address lies in, or is the end of; its start, or 0.
static uint64_t range_of(uint64_t address) {
    auto after = ranges().upper_bound(address);
    if (after == ranges().begin()) return 0;
    --after;
    return address <= after->first + after->second ? after->first : 0;
}

/// Whether something was written behind a range.
static bool is_range_spoilt(uint64_t start) {
    uint64_t end = start + ranges().at(start);
    return !std::all_of((unsigned char*)end, (unsigned char*)guarded_end(end, 0),
                        [](unsigned char byte) { return byte == POISON; });
}

static void open_block(Block& block) {
    block.allocated = true;
    if (mprotect((void*)block.first, block.end - block.first, PROT_READ | PROT_WRITE)) abort();
    memset((void*)block.first, POISON, block.end - block.first);
}

/// Whether something was written around the block.
static bool is_spoilt(const Block& block) {
    auto poisoned = [](uint64_t from, uint64_t to) {
        return std::all_of((unsigned char*)from, (unsigned char*)to,
                           [](unsigned char byte) { return byte == POISON; });
    };
    return !poisoned(block.first, block.start) || !poisoned(block.start + block.bytes, block.end);
}

static void close_block(Block& block) {
    block.freed = true;
    madvise((void*)block.first, block.end - block.first, MADV_DONTNEED);
    if (mprotect((void*)block.first, block.end - block.first, PROT_NONE)) abort();
    // A few are remembered, to say what was touched.
    static auto* closed = new std::deque<uint64_t>();
    closed->push_back(block.start);
    if (closed->size() > 4096) {
        blocks().erase(closed->front());
        closed->pop_front();
    }
}

/// The block whose pages an address lies in, or the closed one after them; or none.
static Block* block_around(uint64_t address) {
    auto after = blocks().upper_bound(address);
    if (after != blocks().end() && after->second.first <= address) return &after->second;
    if (after == blocks().begin()) return nullptr;
    Block& block = (--after)->second;
    return address < block.end + PAGE ? &block : nullptr;
}

static std::string describe(uint64_t address) {
    Block* block = block_around(address);
    if (!block) return "memory that is not a device's";
    if (block->arena && !block->freed && !range_of(address)) {
        return text("byte %llu of an arena on %s, in a range that nobody has",
                    (unsigned long long)(address - block->start), place_name(block->device));
    }
    const char* state = block->freed ? ", freed" : !block->allocated ? ", not yet allocated" : "";
    long long offset = (long long)(address - block->start);
    return text("byte %lld of a block of %llu bytes on %s%s", offset,
                (unsigned long long)block->bytes, place_name(block->device), state);
}

/// The block that an address lies in, or is the end of; none is found for an address of anything else.
static Block* block_of(uint64_t address) {
    auto after = blocks().upper_bound(address);
    if (after == blocks().begin()) return nullptr;
    Block& block = (--after)->second;
    return address <= block.start + block.bytes ? &block : nullptr;
}

/// Whether an address is in one of the rooms that the emulator gives out.
static bool is_ours(uint64_t address) { return address - rooms_start() < (MOST_DEVICES + 1) * ROOM; }

static bool is_pinned(uint64_t address) {
    Block* block = block_of(address);
    return block && block->device == PINNED;
}

struct Interrupted {
    sigjmp_buf back;
    uint64_t address;
};

/// Where this thread goes on when what it does for a device touches what it may not.
static thread_local Interrupted* interrupted = nullptr;
static struct sigaction before_us[2];

static void touched(int number, siginfo_t* info, void*) {
    uint64_t address = (uint64_t)info->si_addr;
    if (interrupted) {
        interrupted->address = address;
        siglongjmp(interrupted->back, 1);
    }
    if (is_ours(address)) fault("the host touches " + describe(address));
    // Done again, it goes where it would have gone without us.
    sigaction(number, &before_us[number == SIGBUS], nullptr);
}

static void catch_touches() {
    struct sigaction action = {};
    action.sa_sigaction = touched;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_us[0]);
    sigaction(SIGBUS, &action, &before_us[1]);
}

}  // namespace host
