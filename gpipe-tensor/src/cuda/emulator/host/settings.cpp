// An emulated host: a driver, cuBLAS and NVRTC whose devices are the machine above. Every call that a
// device would do later is put in its stream's queue; which one is done next, and when, is drawn from
// a seed, and only the order of each stream and its events hold it back. Nothing here is fast, and
// nothing says how fast a GPU is.
//
// The variable EMULATED_GPU holds settings, `key=value` parted by spaces:
//   seed=N          the draws; without `order`, the way of drawing too
//   order=WAY       random, ranked, starved, lazy, eager (see queue.cpp)
//   devices=N       0 to 8
//   memory=N        bytes a device
//   scattered=0|1   whether what a pool keeps free stays in the pieces in which it was freed
//   peers=0|1       whether devices may reach each other's memory
//   capability=N    90 is 9.0
//   odd=N           the same of each second device, if it is another one
//   archs=N         the newest architecture that NVRTC knows
//   drop=1          copies between devices report success and write nothing
//   builtins=1      NVRTC compiles only where its second library is loaded
//   driver=N        13000 is 13.0
//   threads=1       the threads of kernels in an order drawn from the seed
//   forget=N        the Nth change of a graph's node reports success and changes nothing
//   astray=N        the Nth product that cuBLASLt captures adds what the one before adds
//   fail=NAME:N:E   the Nth call of NAME (from 1) gives the error E; may be repeated
//   break=N:E       the Nth operation that a device does (from 1) gives the error E, which stays
//   blas=N          the version of cuBLAS: 130000 is 13.0
//   lt=N            the version of cuBLASLt: 130000 is 13.0; 0 has no algorithm for anything
//   nccl=N          22703 is NCCL 2.27.3
//   polls=N         devices go on at one of N questions whether an event is past (3)
//   deaf=1          NCCL does not notice that a peer is gone
//   sever=N         NCCL reports a fault at its Nth transfer, and makes no more
//   signal=N:S      the Nth transfer of NCCL sends the signal S to its own process
//   gpus=shared     processes have the same GPUs, by their UUIDs; each has its own without it
//   delay=N         up to N microseconds before a call, by the seed
//   skip=A,B        no wait is done for which one of the callers has such an address in the program
//   faults=PATH     a line for each fault; on standard error without it
//   calls=PATH      at the end: the calls' names and numbers
//   copies=PATH     at the end: the bytes copied between devices, as `from to bytes`
//   waits=PATH      a line for each place that waits: the call, its callers' addresses

#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>

namespace host {

constexpr int MOST_DEVICES = 8;

/// What is not a number in any type, and no index either.
constexpr unsigned char POISON = 0xff;

enum Error {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    PEER_ACCESS_UNSUPPORTED = 217,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_ISOLATION = 905,
    STREAM_CAPTURE_WRONG_THREAD = 908,
};

struct Refusal {
    std::string name;
    uint64_t at;
    int error;
};

struct Settings {
    uint64_t seed = 0;
    std::string order;
    int devices = 4;
    uint64_t memory = 1ull << 30;
    bool scattered = false;
    bool peers = true;
    int capability = 90, odd = 0;
    int archs = 121;
    bool drop = false, builtins = false;
    int driver = 13000;
    bool threads = false;
    std::vector<Refusal> refusals;
    uint64_t break_at = 0;
    int break_with = 0;
    uint64_t polls = 3, delay = 0, sever = 0, forget = 0, astray = 0;
    int nccl = 22703, signal = 0;
    size_t lt = 130000;
    int blas = 130000;
    bool no_algorithm = false;
    uint64_t signal_at = 0;
    bool deaf = false, shared = false;
    std::set<uint64_t> skipped;
    std::string faults, calls, copies, waits;

    Settings() {
        const char* text = getenv("EMULATED_GPU");
        std::istringstream words(text ? text : "");
        std::string word;
        while (words >> word) {
            size_t middle = word.find('=');
            std::string key = word.substr(0, middle);
            std::string value = middle == std::string::npos ? "" : word.substr(middle + 1);
            if (!set(key, value)) {
                fprintf(stderr, "EMULATED_GPU: %s is not understood\n", word.c_str());
                abort();
            }
        }
        if (order.empty()) order = order_of(seed);
    }

    static const char* order_of(uint64_t seed) {
        static const char* ORDERS[] = {"random", "lazy", "ranked", "starved", "eager"};
        return ORDERS[seed % 5];
    }

    bool set(const std::string& key, const std::string& value) {
        uint64_t number = strtoull(value.c_str(), nullptr, 10);
        if (key == "seed") seed = number;
        else if (key == "order") order = value;
        else if (key == "devices") devices = (int)std::min<uint64_t>(number, MOST_DEVICES);
        else if (key == "memory") memory = number;
        else if (key == "scattered") scattered = number != 0;
        else if (key == "peers") peers = number != 0;
        else if (key == "capability") capability = (int)number;
        else if (key == "odd") odd = (int)number;
        else if (key == "archs") archs = (int)number;
        else if (key == "drop") drop = number != 0;
        else if (key == "builtins") builtins = number != 0;
        else if (key == "driver") driver = (int)number;
        else if (key == "threads") threads = number != 0;
        else if (key == "delay") delay = number;
        else if (key == "lt" && number == 0) no_algorithm = true;
        else if (key == "lt") lt = number;
        else if (key == "blas") blas = (int)number;
        else if (key == "nccl") nccl = (int)number;
        else if (key == "polls") polls = std::max<uint64_t>(number, 1);
        else if (key == "deaf") deaf = number != 0;
        else if (key == "sever") sever = number;
        else if (key == "forget") forget = number;
        else if (key == "astray") astray = number;
        else if (key == "gpus") shared = value == "shared";
        else if (key == "faults") faults = value;
        else if (key == "calls") calls = value;
        else if (key == "copies") copies = value;
        else if (key == "waits") waits = value;
        else if (key == "fail") return refuse(value);
        else if (key == "signal") {
            char* rest;
            signal_at = strtoull(value.c_str(), &rest, 10);
            signal = *rest == ':' ? atoi(rest + 1) : SIGKILL;
        }
        else if (key == "break") {
            char* rest;
            break_at = strtoull(value.c_str(), &rest, 10);
            break_with = *rest == ':' ? atoi(rest + 1) : ILLEGAL_ADDRESS;
        } else if (key == "skip") {
            std::istringstream places(value);
            std::string place;
            while (std::getline(places, place, ',')) skipped.insert(strtoull(place.c_str(), nullptr, 16));
        } else return false;
        return true;
    }

    bool refuse(const std::string& value) {
        size_t first = value.find(':'), second = value.rfind(':');
        if (first == std::string::npos || second == first) return false;
        uint64_t at = strtoull(value.c_str() + first + 1, nullptr, 10);
        refusals.push_back({value.substr(0, first), at, atoi(value.c_str() + second + 1)});
        return true;
    }
};

static Settings& settings() {
    static auto* settings = new Settings();
    return *settings;
}

/// The capability of a device, 90 for 9.0.
static int capability_of(int device) {
    return device % 2 == 1 && settings().odd ? settings().odd : settings().capability;
}

/// A number that depends on the seed and on both arguments, on nothing else.
static uint64_t draw(uint64_t a, uint64_t b) {
    uint64_t x = settings().seed * 0x9e3779b97f4a7c15ull + a * 0xbf58476d1ce4e5b9ull + b;
    for (int round = 0; round < 2; round++) {
        x ^= x >> 30;
        x *= 0xbf58476d1ce4e5b9ull;
        x ^= x >> 27;
        x *= 0x94d049bb133111ebull;
        x ^= x >> 31;
    }
    return x;
}

static std::string text(const char* format, ...) {
    char buffer[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof(buffer), format, arguments);
    va_end(arguments);
    return buffer;
}

/// Adds a line to a file, in one write.
static void add_line(const std::string& path, const std::string& line) {
    std::string whole = line + "\n";
    int file = path.empty() ? 2 : open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (file < 0 || write(file, whole.data(), whole.size()) < 0) abort();
    if (file != 2) close(file);
}

/// Something that a program must not do was done.
static void fault(const std::string& what) {
    add_line(settings().faults, "fault: " + what);
}

/// Guards everything.
static std::mutex& lock = *new std::mutex();
static std::condition_variable& changed = *new std::condition_variable();

/// The calls until now, by name.
static std::map<std::string, uint64_t>& calls() {
    static auto* calls = new std::map<std::string, uint64_t>();
    return *calls;
}

static void write_calls() {
    std::string lines;
    for (auto& call : calls()) lines += call.first + " " + std::to_string(call.second) + "\n";
    lines.pop_back();
    add_line(settings().calls, lines);
}

/// The bytes copied until now, by the devices from and to.
static std::map<std::pair<int, int>, uint64_t>& copies() {
    static auto* copies = new std::map<std::pair<int, int>, uint64_t>();
    return *copies;
}

static void write_copies() {
    for (auto& [ends, bytes] : copies()) {
        add_line(settings().copies, text("%d %d %llu", ends.first, ends.second, (unsigned long long)bytes));
    }
}

/// Counts a copy between two devices.
static void count_copy(int from, int to, uint64_t bytes) {
    if (settings().copies.empty()) return;
    if (copies().empty()) atexit(write_copies);
    copies()[{from, to}] += bytes;
}

/// Whether this thread runs a function of the program's for a stream, which may not call the driver.
static thread_local bool in_host_function = false;

/// One call from the program: it holds the lock, and may be refused by the settings.
struct Call {
    std::unique_lock<std::mutex> held;
    int refused = 0;

    explicit Call(const char* name) {
        if (settings().delay) {
            static thread_local uint64_t count = 0;
            uint64_t thread = std::hash<std::thread::id>()(std::this_thread::get_id());
            uint64_t pause = draw(thread, ++count) % settings().delay;
            if (pause) usleep((useconds_t)pause);
        }
        held = std::unique_lock<std::mutex>(lock);
        if (in_host_function) fault(text("%s is called by a function that a stream runs", name));
        if (calls().empty() && !settings().calls.empty()) atexit(write_calls);
        uint64_t number = ++calls()[name];
        for (const Refusal& refusal : settings().refusals) {
            if (refusal.name == name && refusal.at == number) refused = refusal.error;
        }
    }
};

#define CALL(name)         \
    host::Call call(#name); \
    if (call.refused) return call.refused

/// The callers of a wait, as addresses in the program itself.
struct Callers {
    uint64_t base = 0;
    std::vector<uint64_t> addresses;
};

static _Unwind_Reason_Code add_caller(_Unwind_Context* context, void* data) {
    Callers& callers = *(Callers*)data;
    uint64_t address = _Unwind_GetIP(context);
    Dl_info info;
    if (!address || !dladdr((void*)address, &info)) return _URC_NO_REASON;
    static const uint64_t program = []() -> uint64_t {
        // The first line of the maps that names the program's file is its base.
        char path[4096], line[8192];
        ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
        path[length > 0 ? length : 0] = 0;
        FILE* maps = fopen("/proc/self/maps", "r");
        uint64_t base = 0;
        while (maps && !base && fgets(line, sizeof(line), maps)) {
            if (strstr(line, path)) base = strtoull(line, nullptr, 16);
        }
        if (maps) fclose(maps);
        return base;
    }();
    if ((uint64_t)info.dli_fbase == program) callers.addresses.push_back(address - program - 1);
    return _URC_NO_REASON;
}

/// Whether a wait is left out by the settings; notes where it stands, if they say so.
static bool skips(const char* name) {
    if (settings().waits.empty() && settings().skipped.empty()) return false;
    Callers callers;
    _Unwind_Backtrace(add_caller, &callers);
    if (!settings().waits.empty()) {
        static auto* known = new std::set<std::string>();
        std::string line = name;
        for (uint64_t address : callers.addresses) line += text(" %lx", (unsigned long)address);
        if (known->insert(line).second) add_line(settings().waits, line);
    }
    for (uint64_t address : callers.addresses) {
        if (settings().skipped.count(address)) return true;
    }
    return false;
}

}  // namespace host
