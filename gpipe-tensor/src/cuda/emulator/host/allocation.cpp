// The driver's calls about memory and pools. Memory counts as used from the call that asks for it to
// the one that gives it up: what may be used again in the order of streams is.

using host::Block;
using host::Pool;
using host::Stream;

namespace host {

/// The stream that a handle names; reports one that is none.
static int stream_of(void* handle, Stream*& stream) {
    if (!is_initialised) return NOT_INITIALIZED;
    if (!handle) {
        Device* device = current();
        if (int error = trouble(device)) return error;
        stream = &device->standard;
        return 0;
    }
    stream = (Stream*)handle;
    auto found = std::find(streams().begin(), streams().end(), stream);
    if (found == streams().end() || !stream->alive) {
        return wrong(INVALID_HANDLE, "a stream is used that is none, or no more");
    }
    return trouble(stream->device);
}

static uint64_t counted(const Block& block) { return (block.bytes + 511) / 512 * 512; }

static int take(int number, uint64_t bytes, Pool* pool, Block*& block) {
    Device& device = devices[number];
    uint64_t wanted = (bytes + 511) / 512 * 512;
    if (bytes == 0) return INVALID_VALUE;
    if (wanted > settings().memory || device.used + wanted > settings().memory) return OUT_OF_MEMORY;
    if (settings().scattered) {
        // What a pool keeps helps those alone whom a piece of it has room for.
        auto piece = pool ? pool->free.lower_bound(wanted) : std::multiset<uint64_t>::iterator();
        if (pool && piece != pool->free.end()) {
            if (*piece > wanted) pool->free.insert(*piece - wanted);
            pool->free.erase(piece);
        } else {
            uint64_t kept = device.pool_of_its_own.reserved - device.pool_of_its_own.used;
            if (device.used + kept + wanted > settings().memory) return OUT_OF_MEMORY;
            if (pool) pool->reserved += wanted;
        }
    }
    device.used += wanted;
    if (pool) {
        pool->used += wanted;
        pool->most_used = std::max(pool->most_used, pool->used);
        pool->reserved = std::max(pool->reserved, pool->used);
        pool->most_reserved = std::max(pool->most_reserved, pool->reserved);
    }
    block = &reserve(number, bytes, pool);
    return 0;
}

/// Finds the block that a program gives up, and counts it no more.
static int give_up(uint64_t address, Block*& block) {
    auto found = blocks().find(address);
    if (found == blocks().end() || found->second.device == PINNED) {
        return wrong(INVALID_VALUE, "memory is freed that is none: " + describe(address));
    }
    block = &found->second;
    if (block->given_up) return wrong(INVALID_VALUE, "memory is freed twice: " + describe(address));
    block->given_up = true;
    devices[block->device].used -= counted(*block);
    if (block->pool) block->pool->used -= counted(*block);
    if (block->pool && settings().scattered) block->pool->free.insert(counted(*block));
    return 0;
}

static int allocate_on(Stream* stream, uint64_t bytes, Pool* pool, uint64_t* address) {
    // A graph would own the memory from its launch to its freeing.
    if (int e = breaks_capture(stream, "an allocation in the order of a stream", NOT_SUPPORTED)) return e;
    if (!pool->alive || pool->device != stream->device->number) {
        return wrong(INVALID_VALUE, "memory of one device is asked for in a stream of another");
    }
    Block* block;
    if (int error = take(pool->device, bytes, pool, block)) return error;
    *address = block->start;
    uint64_t start = block->start;
    enqueue(stream, "allocation", 0, [start] {
        open_block(blocks().at(start));
        return std::string();
    });
    pass_time();
    return 0;
}

/// What a pool keeps goes back to the device.
static void trim(Pool* pool, uint64_t keep) {
    // What is not freed yet is outstanding.
    if (pool->freeing) return;
    if (keep == 0) pool->free.clear();
    pool->reserved = std::max(pool->used, std::min(pool->reserved, keep));
}

}  // namespace host

#define STREAM(handle) \
    Stream* stream;    \
    if (int e = host::stream_of(handle, stream)) return e

extern "C" {

/// No call of the driver: the program takes a range of memory that it manages itself, or gives it back. From the first range
/// on, what lies outside of all ranges cannot be used.
void emulated_range(uint64_t at, uint64_t bytes, int is_taken, void* handle) {
    std::lock_guard<std::mutex> held(host::lock);
    Stream* stream;
    if (host::stream_of(handle, stream)) return;
    host::enqueue(stream, is_taken ? "taking" : "giving back", 0, [=]() -> std::string {
        auto& ranges = host::ranges();
        Block* block = host::block_of(at);
        uint64_t end = host::guarded_end(at, bytes);
        if (!block || !block->allocated || block->freed || end > block->start + block->bytes) {
            return "a range beyond an arena: " + host::describe(at);
        }
        if (is_taken) {
            auto next = ranges.lower_bound(at);
            bool meets = next != ranges.end() && next->first < end;
            if (next != ranges.begin() && !meets) {
                --next;
                meets = host::guarded_end(next->first, next->second) > at;
            }
            if (meets) return "a range of which another has a part: " + host::describe(at);
            block->arena = true;
            ranges[at] = bytes;
            memset((void*)at, host::POISON, end - at);
            host::set_written(at, end - at, false);
            return "";
        }
        auto found = ranges.find(at);
        if (found == ranges.end() || found->second != bytes) return "a range that nobody has: " + host::describe(at);
        bool spoilt = host::is_range_spoilt(at);
        ranges.erase(found);
        memset((void*)at, host::POISON, end - at);
        host::set_written(at, end - at, false);
        return spoilt ? "or one before it wrote behind a range: " + host::describe(at) : "";
    });
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
    CALL(cuMemGetInfo_v2);
    CURRENT();
    uint64_t taken = device->used - device->pool->used + device->pool->reserved;
    *total = settings().memory;
    *free = settings().memory - std::min(taken, settings().memory);
    return 0;
}

int cuDeviceGetDefaultMemPool(Pool** pool, int device) {
    CALL(cuDeviceGetDefaultMemPool);
    DEVICE(device);
    *pool = &devices[device].pool_of_its_own;
    return 0;
}

int cuDeviceGetMemPool(Pool** pool, int device) {
    CALL(cuDeviceGetMemPool);
    DEVICE(device);
    *pool = devices[device].pool;
    return 0;
}

int cuMemPoolCreate(Pool** pool, const int* properties) {
    CALL(cuMemPoolCreate);
    // Kind of allocation, kinds of handles, kind of location, its number.
    int device = properties[3];
    DEVICE(device);
    *pool = new Pool();
    (*pool)->device = device;
    (*pool)->access[device] = (*pool)->alive = (*pool)->hidden_waits = true;
    return 0;
}

int cuMemPoolDestroy(Pool* pool) {
    CALL(cuMemPoolDestroy);
    INITIALISED();
    if (!pool->alive || pool == &devices[pool->device].pool_of_its_own) return host::INVALID_VALUE;
    pool->alive = false;
    return 0;
}

int cuMemPoolSetAttribute(Pool* pool, int attribute, const void* value) {
    CALL(cuMemPoolSetAttribute);
    INITIALISED();
    if (attribute < 1 || attribute > 8) return host::INVALID_VALUE;
    if (attribute == 3) pool->hidden_waits = *(const int*)value != 0;
    if (attribute == 4) memcpy(&pool->threshold, value, sizeof(uint64_t));
    if (attribute == 6) pool->most_reserved = pool->reserved;
    if (attribute == 8) pool->most_used = pool->used;
    return 0;
}

int cuMemPoolGetAttribute(Pool* pool, int attribute, void* value) {
    CALL(cuMemPoolGetAttribute);
    INITIALISED();
    const uint64_t sizes[] = {pool->threshold, pool->reserved, pool->most_reserved, pool->used, pool->most_used};
    if (attribute < 1 || attribute > 8) return host::INVALID_VALUE;
    if (attribute == 3) return *(int*)value = pool->hidden_waits, 0;
    if (attribute < 4) return *(int*)value = 1, 0;
    memcpy(value, &sizes[attribute - 4], sizeof(uint64_t));
    return 0;
}

int cuMemPoolSetAccess(Pool* pool, const int* map, size_t count) {
    CALL(cuMemPoolSetAccess);
    INITIALISED();
    for (size_t i = 0; i < count; i++) {
        // Kind of location, its number, what it may do.
        int device = map[3 * i + 1];
        DEVICE(device);
        if (device != pool->device && !settings().peers) return host::INVALID_DEVICE;
        pool->access[device] = map[3 * i + 2] != 0 || device == pool->device;
    }
    return 0;
}

int cuMemPoolTrimTo(Pool* pool, size_t keep) {
    CALL(cuMemPoolTrimTo);
    INITIALISED();
    host::trim(pool, keep);
    return 0;
}

int cuMemAllocAsync(uint64_t* address, size_t bytes, void* handle) {
    CALL(cuMemAllocAsync);
    STREAM(handle);
    return host::allocate_on(stream, bytes, stream->device->pool, address);
}

int cuMemAllocFromPoolAsync(uint64_t* address, size_t bytes, Pool* pool, void* handle) {
    CALL(cuMemAllocFromPoolAsync);
    STREAM(handle);
    return host::allocate_on(stream, bytes, pool, address);
}

int cuMemFreeAsync(uint64_t address, void* handle) {
    CALL(cuMemFreeAsync);
    STREAM(handle);
    if (int e = host::breaks_capture(stream, "cuMemFreeAsync", host::INVALID_VALUE)) return e;
    Block* block;
    if (int e = host::give_up(address, block)) return e;
    if (block->device != stream->device->number) {
        return host::wrong(host::INVALID_VALUE, "memory of one device is freed in a stream of another");
    }
    if (block->pool) block->pool->freeing += host::counted(*block);
    host::enqueue(stream, "freeing", 0, [address]() -> std::string {
        Block& block = host::blocks().at(address);
        if (block.pool) block.pool->freeing -= host::counted(block);
        if (!block.allocated) return "comes before the allocation of " + host::describe(address);
        std::string wrong = host::check_around(address);
        auto range = host::ranges().lower_bound(block.start);
        bool has_range = range != host::ranges().end() && range->first < block.start + block.bytes;
        if (has_range && wrong.empty()) wrong = "of an arena whose ranges are taken: " + host::describe(range->first);
        host::close_block(block);
        return wrong;
    });
    host::pass_time();
    return 0;
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    CALL(cuMemAlloc_v2);
    UNSAFE_IN_CAPTURE(cuMemAlloc_v2);
    CURRENT();
    Block* block;
    if (int e = host::take(device->number, bytes, nullptr, block)) return e;
    host::open_block(*block);
    *address = block->start;
    return 0;
}

int cuMemFree_v2(uint64_t address) {
    CALL(cuMemFree_v2);
    UNSAFE_IN_CAPTURE(cuMemFree_v2);
    CURRENT();
    if (!address) return 0;
    Block* block;
    if (int e = host::give_up(address, block)) return e;
    // A device may wait for its work here, but nothing promises it.
    if (!block->allocated) return host::wrong(host::INVALID_VALUE, "memory is freed before its allocation");
    std::string wrong = host::check_around(address);
    if (!wrong.empty()) host::fault("an operation before cuMemFree " + wrong);
    host::close_block(*block);
    return 0;
}

int cuMemHostAlloc(uint64_t* address, size_t bytes, unsigned) {
    CALL(cuMemHostAlloc);
    UNSAFE_IN_CAPTURE(cuMemHostAlloc);
    CURRENT();
    if (bytes == 0) return host::INVALID_VALUE;
    Block& block = host::reserve(host::PINNED, bytes, nullptr);
    host::open_block(block);
    *address = block.start;
    return 0;
}

int cuMemAllocHost_v2(uint64_t* address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

int cuMemFreeHost(uint64_t address) {
    CALL(cuMemFreeHost);
    UNSAFE_IN_CAPTURE(cuMemFreeHost);
    INITIALISED();
    auto found = host::blocks().find(address);
    if (found == host::blocks().end() || found->second.device != host::PINNED || found->second.freed) {
        return host::wrong(host::INVALID_VALUE, "pinned memory is freed that is none");
    }
    Block& block = found->second;
    if (block.pending) host::fault("pinned memory is freed before a copy is done: " + host::describe(address));
    if (host::is_spoilt(block)) host::fault("something wrote around " + host::describe(address));
    host::close_block(block);
    return 0;
}

}  // extern "C"
