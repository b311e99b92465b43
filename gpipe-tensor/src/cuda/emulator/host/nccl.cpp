// An emulated NCCL: communicators of two, over sockets between processes of one machine. Nothing is sent before the
// other end's device has come to its receive, and a receive is done when a device comes to it and the bytes are there:
// as late as may be. Calls that do not block are made some time after they return, the first one when the other end
// has made its own.

using host::Device;
using host::fault;
using host::settings;
using host::Stream;
using host::text;
using host::Work;

namespace nccl {

enum Result {
    SUCCESS = 0,
    UNHANDLED_CUDA = 1,
    SYSTEM = 2,
    INTERNAL = 3,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE = 6,
    IN_PROGRESS = 7,
};

struct Id {
    char name[128];
};

struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

enum Kind : uint64_t { HELLO, FIRST, WANT, DATA };

struct Head {
    Kind kind;
    uint64_t number, bytes;
};

struct Hello {
    int version, rank;
    char uuid[16];
};

struct Communicator {
    Device* device;
    int rank;
    Id id;
    bool is_aborted = false;
    /// A call that is to be made when the communicator is asked next, and how often it says no before.
    std::function<void()> deferred;
    uint64_t refusals = 0;
    bool has_asked = false;
    uint64_t sends = 0, receives = 0;
    std::map<uint64_t, Work> pending;
    /// The last transfer that was asked of the device.
    Work last;
    /// Guards what follows, which the thread of the socket writes.
    std::mutex inbox;
    int socket = -1;
    bool is_connected = false, is_first_heard = false;
    int error = 0;
    std::string why;
    /// Sends that the other end's device waits for, and receives that this one told of.
    uint64_t wanted = 0, told = 0;
    std::map<uint64_t, std::vector<char>> arrived;
};

static std::string last_error;
/// Sockets that wait for one of the two ends, by names.
static std::map<std::string, int>& listeners() {
    static auto* listeners = new std::map<std::string, int>();
    return *listeners;
}

/// All that were begun and not aborted.
static std::set<Communicator*>& alive() {
    static auto* alive = new std::set<Communicator*>();
    return *alive;
}

/// Whether a transfer of a communicator other than `except` may wait on a device for its other end.
static bool is_under_way(Device* device, const Communicator* except = nullptr) {
    return std::any_of(alive().begin(), alive().end(), [&](const Communicator* comm) {
        if (comm == except || comm->device != device) return false;
        return comm->deferred || (comm->last && !comm->last->done);
    });
}

/// A connection is made for a communicator, for which NCCL may wait for all that the device does: for another communicator's kernel, which
/// waits for its other end, which may wait likewise.
static void connects(const Communicator* comm) {
    if (is_under_way(comm->device, comm)) fault("a communicator connects while a transfer of another one is under way");
    for (Communicator* other : alive()) {
        std::lock_guard<std::mutex> held(other->inbox);
        bool is_beside = other != comm && other->device == comm->device;
        if (is_beside && comm->is_connected && !other->is_connected && !other->error) {
            fault("a transfer is asked for while another communicator connects");
        }
    }
}

static int wrong(int error, const std::string& what) {
    last_error = what;
    fault(what);
    return error;
}

static bool write_all(int socket, const void* from, size_t bytes) {
    const char* at = (const char*)from;
    while (bytes) {
        ssize_t written = send(socket, at, bytes, MSG_NOSIGNAL);
        if (written <= 0) return false;
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

static bool read_all(int socket, void* to, size_t bytes) {
    char* at = (char*)to;
    while (bytes) {
        ssize_t got = recv(socket, at, bytes, 0);
        if (got <= 0) return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static void fail(Communicator* comm, int error, const std::string& why) {
    std::lock_guard<std::mutex> held(comm->inbox);
    if (!comm->error) comm->error = error, comm->why = why;
}

/// Sends a head and what follows it. What cannot be sent is missed at the other end.
static void tell(Communicator* comm, Kind kind, uint64_t number, const void* body = nullptr, uint64_t bytes = 0) {
    Head head = {kind, number, bytes};
    bool sent = write_all(comm->socket, &head, sizeof head);
    if (sent && bytes) write_all(comm->socket, body, bytes);
}

static sockaddr_un address_of(const Id& id, socklen_t& length) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    // A name that begins with zero is in no folder.
    size_t name = strnlen(id.name, 100);
    memcpy(address.sun_path + 1, id.name, name);
    length = (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + name);
    return address;
}

/// Connects the two ends, and hears of the other one.
static bool meet(Communicator* comm, int listener) {
    int other = -1;
    if (listener >= 0) {
        other = accept(listener, nullptr, nullptr);
        close(listener);
    } else {
        socklen_t length;
        sockaddr_un address = address_of(comm->id, length);
        other = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(other, (sockaddr*)&address, length)) return fail(comm, SYSTEM, "no such peer"), false;
    }
    Hello own = {settings().nccl, comm->rank, {}}, peer;
    host::uuid_of(comm->device->number, own.uuid);
    if (other < 0 || !write_all(other, &own, sizeof own) || !read_all(other, &peer, sizeof peer)) {
        return fail(comm, REMOTE, "the peer went away"), false;
    }
    if (peer.version != own.version) return fail(comm, INVALID_USAGE, "other versions"), false;
    if (peer.rank == own.rank) return fail(comm, INVALID_USAGE, "both are the same rank"), false;
    if (!memcmp(peer.uuid, own.uuid, sizeof own.uuid)) {
        fault("a communicator has one GPU twice");
        return fail(comm, INVALID_USAGE, "Duplicate GPU detected"), false;
    }
    std::lock_guard<std::mutex> held(comm->inbox);
    comm->socket = other;
    comm->is_connected = true;
    return true;
}

/// Takes what the other end sends, until it goes away.
static void hear(Communicator* comm, int listener) {
    if (!meet(comm, listener)) return;
    Head head;
    while (read_all(comm->socket, &head, sizeof head)) {
        std::vector<char> body(head.bytes);
        if (!read_all(comm->socket, body.data(), body.size())) break;
        std::lock_guard<std::mutex> held(comm->inbox);
        if (head.kind == FIRST) comm->is_first_heard = true;
        if (head.kind == WANT) comm->wanted = head.number;
        if (head.kind == DATA) comm->arrived[head.number] = std::move(body);
    }
    // Between GPUs of one machine nobody hears of the end of a peer.
    if (!settings().deaf) fail(comm, REMOTE, "the peer went away");
}

/// Has devices do the sends that the other end waits for: a real one does them by itself.
static void drive(Communicator* comm) {
    for (;;) {
        usleep(500);
        std::unique_lock<std::mutex> held(host::lock);
        if (comm->is_aborted) return;
        uint64_t wanted;
        {
            std::lock_guard<std::mutex> inbox(comm->inbox);
            wanted = comm->wanted;
        }
        auto first = comm->pending.begin();
        if (first == comm->pending.end() || first->first >= wanted) continue;
        Work work = first->second;
        host::finish(work, held);
        comm->pending.erase(work->number);
    }
}

/// Counts a transfer: whether it is one that fails, by the settings.
static bool is_severed() {
    static uint64_t transfers = 0;
    transfers++;
    if (transfers == settings().signal_at) raise(settings().signal);
    return settings().sever && transfers >= settings().sever;
}

static void ask_to_send(Communicator* comm, uint64_t from, uint64_t bytes, Stream* stream) {
    uint64_t number = comm->sends++;
    Work work = host::enqueue(stream, "send", host::copying(bytes), [=]() -> std::string {
        std::string wrong = host::check_use(*comm->device, from, bytes);
        if (wrong.empty() && !comm->is_aborted) tell(comm, DATA, number, (void*)from, bytes);
        return wrong;
    });
    comm->last = work;
    bool is_severed = nccl::is_severed();
    work->ready = [=] {
        if (comm->is_aborted) return true;
        if (is_severed) return fail(comm, SYSTEM, "the link is severed"), false;
        std::lock_guard<std::mutex> held(comm->inbox);
        return number < comm->wanted;
    };
    work->number = number;
    comm->pending[number] = work;
}

static void ask_to_receive(Communicator* comm, uint64_t to, uint64_t bytes, Stream* stream) {
    uint64_t number = comm->receives++;
    Work work = host::enqueue(stream, "receive", host::copying(bytes), [=]() -> std::string {
        std::string wrong = host::check_use(*comm->device, to, bytes);
        if (!wrong.empty()) return wrong;
        if (comm->is_aborted) return memset((void*)to, host::POISON, bytes), wrong;
        std::lock_guard<std::mutex> held(comm->inbox);
        std::vector<char>& body = comm->arrived[number];
        if (body.size() != bytes) {
            return text("receives %llu bytes where %llu were sent", (unsigned long long)bytes,
                        (unsigned long long)body.size());
        }
        memcpy((void*)to, body.data(), bytes);
        host::set_written(to, bytes, true);
        comm->arrived.erase(number);
        return wrong;
    });
    comm->last = work;
    bool is_severed = nccl::is_severed();
    work->ready = [=] {
        if (comm->is_aborted) return true;
        if (is_severed) return fail(comm, SYSTEM, "the link is severed"), false;
        std::lock_guard<std::mutex> held(comm->inbox);
        if (comm->arrived.count(number)) return true;
        if (comm->told <= number) tell(comm, WANT, comm->told = number + 1);
        return false;
    };
}

/// Asks for a transfer, which is made later.
static int ask(Communicator* comm, const char* name, uint64_t at, uint64_t bytes, int peer, Stream* stream,
               void (*make)(Communicator*, uint64_t, uint64_t, Stream*)) {
    if (!alive().count(comm)) return wrong(INVALID_USAGE, text("%s on a communicator that is none, or aborted", name));
    if (comm->deferred || !comm->is_connected) {
        return wrong(INVALID_USAGE, text("%s while a communicator is in progress", name));
    }
    if (peer != 1 - comm->rank) return wrong(INVALID_ARGUMENT, text("%s with itself", name));
    if (stream->device != comm->device) {
        return wrong(INVALID_USAGE, text("%s of one device on a stream of another", name));
    }
    static uint64_t asked = 0;
    comm->refusals = host::draw(5, ++asked) % 4;
    comm->deferred = [=] { make(comm, at, bytes, stream); };
    if (!comm->has_asked) connects(comm), tell(comm, FIRST, 0);
    comm->has_asked = true;
    return IN_PROGRESS;
}

}  // namespace nccl

using nccl::Communicator;

#define COMMUNICATOR(comm)                                                                 \
    if (!nccl::alive().count(comm)) {                                                      \
        return nccl::wrong(nccl::INVALID_USAGE, "a communicator that is none, or aborted"); \
    }

extern "C" {

int ncclGetVersion(int* version) {
    CALL(ncclGetVersion);
    *version = settings().nccl;
    return 0;
}

int ncclGetUniqueId(nccl::Id* id) {
    CALL(ncclGetUniqueId);
    static int count = 0;
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "gpipe-emulated-nccl-%d-%d", (int)getpid(), ++count);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length;
    sockaddr_un address = nccl::address_of(*id, length);
    if (bind(listener, (sockaddr*)&address, length) || listen(listener, 2)) return nccl::SYSTEM;
    nccl::listeners()[id->name] = listener;
    return 0;
}

int ncclCommInitRankConfig(Communicator** comm, int ranks, nccl::Id id, int rank, nccl::Config* config) {
    CALL(ncclCommInitRankConfig);
    Device* device = host::current();
    if (host::trouble(device)) return nccl::UNHANDLED_CUDA;
    if (ranks != 2 || rank < 0 || rank > 1 || config->magic != 0xcafebeef || config->blocking) {
        return nccl::wrong(nccl::INVALID_ARGUMENT, "a communicator that is not emulated");
    }
    Communicator* made = new Communicator();
    made->device = device;
    made->rank = rank;
    made->id = id;
    int listener = -1;
    auto known = nccl::listeners().find(id.name);
    if (known != nccl::listeners().end()) {
        listener = known->second;
        nccl::listeners().erase(known);
    }
    nccl::connects(made);
    nccl::alive().insert(made);
    std::thread(nccl::hear, made, listener).detach();
    std::thread(nccl::drive, made).detach();
    *comm = made;
    return nccl::IN_PROGRESS;
}

int ncclCommGetAsyncError(Communicator* comm, int* error) {
    CALL(ncclCommGetAsyncError);
    COMMUNICATOR(comm);
    bool is_connected, is_first_heard;
    {
        std::lock_guard<std::mutex> held(comm->inbox);
        *error = comm->error;
        if (comm->error) nccl::last_error = comm->why;
        is_connected = comm->is_connected;
        is_first_heard = comm->is_first_heard;
    }
    if (*error) return 0;
    *error = nccl::IN_PROGRESS;
    if (!is_connected) return 0;
    if (comm->deferred) {
        // Connections are made by the first call of both ends.
        if (!is_first_heard) return 0;
        if (comm->refusals) return comm->refusals--, 0;
        comm->deferred();
        comm->deferred = nullptr;
        host::pass_time();
    }
    *error = 0;
    return 0;
}

int ncclCommAbort(Communicator* comm) {
    CALL(ncclCommAbort);
    COMMUNICATOR(comm);
    comm->is_aborted = true;
    comm->deferred = nullptr;
    nccl::alive().erase(comm);
    std::lock_guard<std::mutex> held(comm->inbox);
    if (comm->socket >= 0) shutdown(comm->socket, SHUT_RDWR);
    return 0;
}

int ncclSend(const void* from, size_t count, int type, int peer, Communicator* comm, void* handle) {
    CALL(ncclSend);
    STREAM(handle);
    if (type != 1) return nccl::wrong(nccl::INVALID_ARGUMENT, "a type that is not emulated");
    return nccl::ask(comm, "ncclSend", (uint64_t)from, count, peer, stream, nccl::ask_to_send);
}

int ncclRecv(void* to, size_t count, int type, int peer, Communicator* comm, void* handle) {
    CALL(ncclRecv);
    STREAM(handle);
    if (type != 1) return nccl::wrong(nccl::INVALID_ARGUMENT, "a type that is not emulated");
    return nccl::ask(comm, "ncclRecv", (uint64_t)to, count, peer, stream, nccl::ask_to_receive);
}

const char* ncclGetErrorString(int error) {
    static const char* const WORDS[] = {"no error", "unhandled cuda error", "unhandled system error",
                                        "internal error", "invalid argument", "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return error >= 0 && error < 8 ? WORDS[error] : "unknown result code";
}

const char* ncclGetLastError(Communicator*) { return nccl::last_error.c_str(); }

}  // extern "C"
