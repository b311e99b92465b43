// The driver's calls about devices, contexts and errors. A context is its device: there are no others
// than the primary ones.

using host::Device;
using host::devices;
using host::settings;

namespace host {

static thread_local std::vector<Device*> contexts;

/// What a call on a device gives before it does anything: the error of what was done before, too.
static int trouble(Device* device) {
    if (!is_initialised) return NOT_INITIALIZED;
    if (!device) return INVALID_CONTEXT;
    if (device->holders == 0) return CONTEXT_IS_DESTROYED;
    return device->error;
}

static Device* current() { return contexts.empty() ? nullptr : contexts.back(); }

static bool is_context(const void* context) {
    return context >= devices && context < devices + settings().devices;
}

/// The error of a call that says what no program should.
static int wrong(int error, const std::string& what) {
    fault(what);
    return error;
}

/// The error of a call about a stream that is captured, which breaks the capture; or none.
static int breaks_capture(Stream* stream, const char* call, int error = STREAM_CAPTURE_UNSUPPORTED) {
    if (!stream->capture) return 0;
    stream->capture->broken = call;
    return wrong(error, text("%s is called about a stream that is captured", call));
}

/// The error of a call that is not safe while something is captured, which breaks the capture; or none.
static int unsafe_in_capture(const char* call) {
    int error = 0;
    for (Stream* stream : streams()) {
        if (!stream->capture || stream->capture->mode == 2) continue;
        if (stream->capture->mode == 1 && stream->capture->thread != std::this_thread::get_id()) continue;
        error = breaks_capture(stream, call);
    }
    return error;
}

struct Named {
    int error;
    const char *name, *words;
};

static const Named ERRORS[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {226, "CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client has been terminated by the server"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

/// The name of a device among those of all processes.
static void uuid_of(int device, char* uuid) {
    memset(uuid, 0, 16);
    int owner = settings().shared ? 0 : (int)getpid();
    memcpy(uuid, &owner, sizeof owner);
    uuid[15] = (char)(device + 1);
}

static int attribute_of(int attribute, int device) {
    switch (attribute) {
        case 1: return 1024;                           // threads a block
        case 2: return 1024;                           // extents of a block
        case 5: return 0x7fffffff;                     // blocks of a grid
        case 8: return 48 * 1024;                      // shared memory a block
        case 10: return 32;                            // warp size
        case 13: return 1000000;                       // clock, kHz
        case 16: return 4;                             // multiprocessors
        case 31: return 1;                             // concurrent kernels
        case 36: return 1000000;                       // memory clock, kHz
        case 37: return 512;                           // memory bus, bits
        case 38: return 1 << 20;                       // L2 cache
        case 40: return 2;                             // copy engines
        case 41: return 1;                             // unified addresses
        case 75: return capability_of(device) / 10;
        case 76: return capability_of(device) % 10;
        case 97: return (int)machine::SHARED;          // shared memory a block that asks for more
        case 115: return 1;                            // memory pools
        default: return 0;
    }
}

}  // namespace host

#define INITIALISED() \
    if (!host::is_initialised) return host::NOT_INITIALIZED
#define DEVICE(number) \
    INITIALISED();     \
    if (number < 0 || number >= settings().devices) return host::INVALID_DEVICE
/// A call that no thread may make which captures a stream; by default, while any does.
#define UNSAFE_IN_CAPTURE(name) \
    if (int e = host::unsafe_in_capture(#name)) return e
#define CURRENT()                          \
    Device* device = host::current();      \
    if (int e = host::trouble(device)) return e

extern "C" {

/// For tests of the emulator: another seed from now on.
void emulated_seed(uint64_t seed) {
    std::lock_guard<std::mutex> held(host::lock);
    settings().seed = seed;
    settings().order = host::Settings::order_of(seed);
}

int cuInit(unsigned) {
    CALL(cuInit);
    if (settings().devices == 0) return host::NO_DEVICE;
    if (!host::is_initialised) {
        for (int d = 0; d < settings().devices; d++) {
            Device& device = devices[d];
            device.number = d;
            device.standard.device = &device;
            device.standard.alive = true;
            host::streams().push_back(&device.standard);
            device.pool = &device.pool_of_its_own;
            device.pool->device = d;
            device.pool->access[d] = true;
            device.pool->alive = device.pool->hidden_waits = true;
        }
        host::catch_touches();
        host::is_initialised = true;
    }
    return 0;
}

int cuDriverGetVersion(int* version) {
    CALL(cuDriverGetVersion);
    *version = settings().driver;
    return 0;
}

int cuDeviceGetCount(int* count) {
    CALL(cuDeviceGetCount);
    INITIALISED();
    *count = settings().devices;
    return 0;
}

int cuDeviceGet(int* device, int ordinal) {
    CALL(cuDeviceGet);
    DEVICE(ordinal);
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char* name, int length, int device) {
    CALL(cuDeviceGetName);
    DEVICE(device);
    snprintf(name, (size_t)length, "Emulated GPU %d", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    CALL(cuDeviceTotalMem_v2);
    DEVICE(device);
    *bytes = settings().memory;
    return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
    CALL(cuDeviceGetAttribute);
    DEVICE(device);
    *value = host::attribute_of(attribute, device);
    if (attribute == 33) *value = device + 1;  // PCI bus
    return 0;
}

int cuDeviceGetUuid_v2(char* uuid, int device) {
    CALL(cuDeviceGetUuid_v2);
    DEVICE(device);
    host::uuid_of(device, uuid);
    return 0;
}

int cuDeviceGetUuid(char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

int cuDevicePrimaryCtxRetain(Device** context, int device) {
    CALL(cuDevicePrimaryCtxRetain);
    DEVICE(device);
    if (devices[device].error) return devices[device].error;
    devices[device].holders++;
    *context = &devices[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    CALL(cuDevicePrimaryCtxRelease_v2);
    DEVICE(device);
    if (devices[device].holders == 0) return host::INVALID_CONTEXT;
    devices[device].holders--;
    return 0;
}

int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    CALL(cuDevicePrimaryCtxSetFlags_v2);
    DEVICE(device);
    devices[device].flags = flags;
    return 0;
}

int cuCtxSetFlags(unsigned flags) {
    CALL(cuCtxSetFlags);
    CURRENT();
    device->flags = flags;
    return 0;
}

int cuCtxSetCurrent(Device* context) {
    CALL(cuCtxSetCurrent);
    INITIALISED();
    if (context && !host::is_context(context)) {
        return host::wrong(host::INVALID_CONTEXT, "cuCtxSetCurrent: not a context");
    }
    if (!host::contexts.empty()) host::contexts.pop_back();
    if (context) host::contexts.push_back(context);
    return 0;
}

int cuCtxGetCurrent(Device** context) {
    CALL(cuCtxGetCurrent);
    INITIALISED();
    *context = host::current();
    return 0;
}

int cuCtxPushCurrent_v2(Device* context) {
    CALL(cuCtxPushCurrent_v2);
    INITIALISED();
    if (!host::is_context(context)) return host::INVALID_CONTEXT;
    host::contexts.push_back(context);
    return 0;
}

int cuCtxPopCurrent_v2(Device** context) {
    CALL(cuCtxPopCurrent_v2);
    INITIALISED();
    if (host::contexts.empty()) return host::INVALID_CONTEXT;
    if (context) *context = host::current();
    host::contexts.pop_back();
    return 0;
}

int cuCtxGetDevice(int* number) {
    CALL(cuCtxGetDevice);
    CURRENT();
    *number = device->number;
    return 0;
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    CALL(cuCtxGetStreamPriorityRange);
    CURRENT();
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return 0;
}

int cuDeviceCanAccessPeer(int* can, int device, int peer) {
    CALL(cuDeviceCanAccessPeer);
    DEVICE(device);
    DEVICE(peer);
    *can = settings().peers && device != peer;
    return 0;
}

int cuCtxEnablePeerAccess(Device* peer, unsigned) {
    CALL(cuCtxEnablePeerAccess);
    CURRENT();
    if (!host::is_context(peer) || peer == device) return host::INVALID_DEVICE;
    if (!settings().peers) return host::PEER_ACCESS_UNSUPPORTED;
    if (device->peers[peer->number]) return host::PEER_ACCESS_ALREADY_ENABLED;
    device->peers[peer->number] = true;
    return 0;
}

int cuGetErrorName(int error, const char** name) {
    CALL(cuGetErrorName);
    for (const host::Named& known : host::ERRORS) {
        if (known.error == error) return *name = known.name, 0;
    }
    *name = nullptr;
    return host::INVALID_VALUE;
}

int cuGetErrorString(int error, const char** words) {
    CALL(cuGetErrorString);
    for (const host::Named& known : host::ERRORS) {
        if (known.error == error) return *words = known.words, 0;
    }
    *words = nullptr;
    return host::INVALID_VALUE;
}

int cuGetExportTable(const void** table, const void*) {
    CALL(cuGetExportTable);
    *table = nullptr;
    return host::NOT_FOUND;
}

int cuGetProcAddress_v2(const char* symbol, void** address, int, uint64_t, int* status) {
    CALL(cuGetProcAddress_v2);
    Dl_info info;
    dladdr((void*)cuInit, &info);
    void* library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *address = library ? dlsym(library, symbol) : nullptr;
    if (status) *status = *address ? 0 : 1;
    return *address ? 0 : host::NOT_FOUND;
}

}  // extern "C"
