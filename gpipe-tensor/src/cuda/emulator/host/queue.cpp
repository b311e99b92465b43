// Streams, events, and what is done next.
//
// The ways of drawing:
//   random   each time another stream
//   ranked   the stream of the highest rank; ranks are drawn anew now and then, so that some streams
//            run far ahead of others
//   starved  one stream's operations are done when nothing else can be, or they must
//   lazy     nothing is done before something waits for it, and then only what that needs
//   eager    everything is done as soon as it can be

namespace host {

struct Stream;
struct Device;
struct Function;

/// Something that a device will do.
struct Operation {
    std::string name;
    /// Which kernel or product, and the module that it comes from.
    std::string detail;
    const void* module;
    Stream* stream;
    /// What has to be done before, beside what is before it in its stream.
    std::vector<std::shared_ptr<Operation>> after;
    /// What it does; gives what is wrong, or nothing.
    std::function<std::string()> act;
    /// Runs without the lock: it is the program's own.
    std::function<void()> host;
    /// Logical microseconds that it takes, when the host asked for it, and when it is done.
    double cost, asked, end;
    bool done, busy;
    /// Blocks of pinned memory that it reads or writes.
    std::vector<uint64_t> pinned;
    /// Whether another process has come to it too; and its number among those of its kind.
    std::function<bool()> ready;
    uint64_t number;
    /// Of a kernel that the program launched, as the node of a graph names it.
    Function* function;
    unsigned blocks, threads, shared;
};

using Work = std::shared_ptr<Operation>;

/// How a stream is captured: what it is asked for is not done, but noted.
struct Capture {
    std::thread::id thread;
    /// 0: calls of all threads may break it, 1: those of its own, 2: none.
    int mode;
    uint64_t number;
    std::vector<Work> nodes;
    /// The call that broke it.
    std::string broken;
    /// What `cuStreamGetCaptureInfo` points to.
    Operation* last;
};

struct Stream {
    Device* device;
    uint64_t number;
    /// Waits for the default stream, and it for this.
    bool blocking;
    bool alive;
    std::deque<Work> queue;
    Work last;
    double time;
    std::shared_ptr<Capture> capture;
};

struct Event {
    Device* device;
    bool timed, alive;
    /// The record that a wait waits for.
    Work mark;
};

struct Device {
    int number;
    bool is_initialised;
    int holders;
    unsigned flags;
    int error;
    uint64_t used;
    bool peers[MOST_DEVICES];
    Stream standard;
    Pool* pool;
    Pool pool_of_its_own;
    double compute;
};

static Device devices[MOST_DEVICES];
static bool is_initialised = false;
static uint64_t operations = 0;
/// The logical time that the host has seen.
static double now = 0;

static std::vector<Stream*>& streams() {
    static auto* streams = new std::vector<Stream*>();
    return *streams;
}

static Stream* new_stream(Device* device, bool blocking) {
    Stream* stream = new Stream();
    stream->device = device;
    stream->number = streams().size() + 1;
    stream->blocking = blocking;
    stream->alive = true;
    streams().push_back(stream);
    return stream;
}

static bool can_start(const Work& work) {
    if (work->busy) return false;
    for (auto& other : work->after) {
        if (!other->done) return false;
    }
    return !work->ready || work->ready();
}

/// What stands in the way of an operation: the one to do for it, or none if it is being done.
static Stream* needed_for(Work work) {
    for (;;) {
        Work head = work->stream->queue.front();
        if (head->busy) return nullptr;
        auto waits = [](const Work& other) { return !other->done; };
        auto other = std::find_if(head->after.begin(), head->after.end(), waits);
        if (other == head->after.end()) return head->ready && !head->ready() ? nullptr : head->stream;
        work = *other;
    }
}

/// The stream whose turn it is; on the way to `target`, if there is one.
static Stream* next_stream(const Work& target) {
    const std::string& order = settings().order;
    if (order == "lazy") return target ? needed_for(target) : nullptr;
    std::vector<Stream*> can;
    for (Stream* stream : streams()) {
        if (!stream->queue.empty() && can_start(stream->queue.front())) can.push_back(stream);
    }
    if (can.empty()) return nullptr;
    if (order == "ranked" || order == "starved") {
        uint64_t era = order == "ranked" ? operations / 64 : 0;
        auto rank = [&](Stream* stream) { return draw(1000 + stream->number, era); };
        return *std::max_element(can.begin(), can.end(),
                                 [&](Stream* a, Stream* b) { return rank(a) < rank(b); });
    }
    return can[draw(1, operations) % can.size()];
}

/// Does what an operation is about; what it touches wrongly is its error.
static std::string act(Operation& operation) {
    Interrupted here;
    if (sigsetjmp(here.back, 1)) {
        interrupted = nullptr;
        machine::abandon();
        return "touches " + describe(here.address);
    }
    interrupted = &here;
    std::string wrong = operation.act ? operation.act() : "";
    interrupted = nullptr;
    return wrong;
}

/// An operation will not use pinned memory any more.
static void let_go(Operation& work) {
    for (uint64_t block : work.pinned) {
        auto found = blocks().find(block);
        if (found != blocks().end()) found->second.pending--;
    }
    work.pinned.clear();
}

/// An error of a device's stays, and it does nothing any more.
static void break_down(Device& device, int error) {
    device.error = error;
    for (Stream* stream : streams()) {
        if (stream->device != &device) continue;
        for (const Work& work : stream->queue) let_go(*work);
    }
}

/// Does the first operation of a stream.
static void do_first(Stream* stream) {
    Work work = stream->queue.front();
    Device& device = *stream->device;
    double start = std::max(stream->time, work->asked);
    for (auto& other : work->after) start = std::max(start, other->end);
    if (work->name == "kernel") start = std::max(start, device.compute);
    operations++;
    if (operations == settings().break_at && !device.error) break_down(device, settings().break_with);
    if (work->host) {
        work->busy = true;
        lock.unlock();
        in_host_function = true;
        work->host();
        in_host_function = false;
        lock.lock();
    } else if (!device.error) {
        std::string wrong = act(*work);
        // What a broken device left undone is no fault of others.
        bool alone = std::none_of(devices, devices + MOST_DEVICES, [](Device& d) { return d.error; });
        if (!wrong.empty() && alone) {
            fault(text("%s %s on stream %d of device %d ", work->name.c_str(), work->detail.c_str(),
                       (int)stream->number, device.number) + wrong);
        }
        if (!wrong.empty()) break_down(device, ILLEGAL_ADDRESS);
    }
    let_go(*work);
    work->end = start + work->cost;
    stream->time = work->end;
    if (work->name == "kernel") device.compute = work->end;
    work->done = true;
    work->busy = false;
    work->act = nullptr;
    work->after.clear();
    stream->queue.pop_front();
    if (stream->queue.empty()) stream->last = nullptr;
    changed.notify_all();
}

/// Does operations until one is done.
static void finish(Work work, std::unique_lock<std::mutex>& held) {
    while (!work->done) {
        Stream* stream = next_stream(work);
        if (stream) do_first(stream);
        // What comes from another process wakes nobody.
        else changed.wait_for(held, std::chrono::milliseconds(1));
    }
    now = std::max(now, work->end);
}

/// Devices do something while the host goes on.
static void pass_time() {
    if (settings().order == "eager") {
        while (Stream* stream = next_stream(nullptr)) do_first(stream);
        return;
    }
    static uint64_t times = 0;
    uint64_t luck = draw(2, ++times);
    // In some runs devices are quick, in others they lag behind.
    uint64_t pace = 2 + draw(3, 0) % 16;
    for (uint64_t n = luck % pace == 0 ? 1 + luck / pace % 8 : 0; n > 0; n--) {
        Stream* stream = next_stream(nullptr);
        if (!stream) return;
        do_first(stream);
    }
}

/// Puts an operation at the end of a stream.
static Work enqueue(Stream* stream, const char* name, double cost, std::function<std::string()> act,
                    std::vector<Work> after = {}) {
    Work work = std::make_shared<Operation>();
    work->name = name;
    work->stream = stream;
    work->cost = cost;
    work->asked = now;
    work->act = std::move(act);
    work->after = std::move(after);
    if (stream->capture) {
        stream->capture->nodes.push_back(work);
        return work;
    }
    Device* device = stream->device;
    if (stream == &device->standard) {
        for (Stream* other : streams()) {
            if (other->device == device && other->blocking && other->last) {
                work->after.push_back(other->last);
            }
        }
    } else if (stream->blocking && device->standard.last) {
        work->after.push_back(device->standard.last);
    }
    stream->queue.push_back(work);
    stream->last = work;
    return work;
}

/// The stream's work until now is done.
static void finish_stream(Stream* stream, std::unique_lock<std::mutex>& held) {
    if (stream->last) finish(stream->last, held);
}

/// Says that an operation will use pinned memory, if the address lies in some.
static void uses_pinned(const Work& work, uint64_t address) {
    if (!is_pinned(address)) return;
    Block* block = block_of(address);
    block->pending++;
    work->pinned.push_back(block->start);
}

/// What is wrong with a device's use of memory, or nothing.
static std::string check_use(Device& device, uint64_t address, uint64_t bytes) {
    Block* block = block_of(address);
    if (!block || address + bytes > block->start + block->bytes || block->freed || !block->allocated) {
        return text("uses %llu bytes from ", (unsigned long long)bytes) + describe(address);
    }
    if (block->arena) {
        uint64_t range = range_of(address);
        if (!range || address + bytes > range + ranges().at(range)) {
            return text("uses %llu bytes from ", (unsigned long long)bytes) + describe(address);
        }
    }
    if (block->device == PINNED || block->device == device.number) return "";
    Device& owner = devices[block->device];
    bool may = block->pool ? block->pool->access[device.number] : device.peers[owner.number];
    if (may) return "";
    return "has no access to " + describe(address);
}

/// An error if something was written around the block that an address lies in.
static std::string check_around(uint64_t address) {
    Block* block = block_of(address);
    if (!block || block->freed) return "";
    uint64_t range = block->arena ? range_of(address) : 0;
    if (!is_spoilt(*block) && !(range && is_range_spoilt(range))) return "";
    return "or one before it wrote around " + describe(address);
}

}  // namespace host
