// The driver's calls about modules and kernels, and NVRTC: it makes images that name the hash of a
// source, and a module of such an image holds those of the kernels compiled here that this source has.

using host::text;

namespace host {

struct Module {
    Device* device;
    /// The source that it was made of.
    size_t source;
    bool alive;
};

/// The place of a source among those whose kernels were compiled here; their number if it is another one.
static size_t source_of(uint64_t hash) {
    return (size_t)(std::find(std::begin(SOURCES), std::end(SOURCES), hash) - SOURCES);
}

struct Function {
    Module* module;
    const Kernel* kernel;
    unsigned shared;
    bool is_loaded;
};

/// Loads a kernel, unless it is: a driver may wait for all that its device does, and holds up calls of other threads meanwhile.
static void load(Function* function) {
    bool waits = !function->is_loaded && nccl::is_under_way(function->module->device);
    if (waits) fault(text("%s is loaded while a transfer is under way", function->kernel->name));
    function->is_loaded = true;
}

/// Bytes of the header of an image, an ELF file without tables.
constexpr size_t HEADER = 64;

/// An image: what begins as NVIDIA's do, and says what it is for.
static std::string image_of(int number, unsigned long long hash) {
    std::string image("\177ELF\2\1\1", 7);
    image.resize(HEADER);
    image[18] = (char)190;
    return image + text("emulated sm_%d %llx\n", number, hash);
}

/// What an image is for: `sm_90` of "emulated sm_90 …" after the header, `.target sm_80` of PTX.
static int load(Module** module, const char* image) {
    CURRENT();
    int made_for = 0;
    unsigned long long hash = 0;
    int own = capability_of(device->number);
    if (memcmp(image, "\177ELF\2\1\1", 8) == 0 && sscanf(image + HEADER, "emulated sm_%d %llx", &made_for, &hash) == 2) {
        if (made_for / 10 != own / 10 || made_for > own) return NO_BINARY_FOR_GPU;
    } else if (sscanf(image, ".version 8.1 .target sm_%d // %llx", &made_for, &hash) == 2) {
        if (made_for > own) return NO_BINARY_FOR_GPU;
    } else {
        return INVALID_IMAGE;
    }
    size_t source = source_of(hash);
    if (source == std::size(SOURCES)) return wrong(INVALID_IMAGE, "an image is loaded that was made of another source");
    *module = new Module{device, source, true};
    return 0;
}

static uint64_t hash_of(const char* bytes) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (; *bytes; bytes++) hash = (hash ^ (unsigned char)*bytes) * 0x100000001b3ull;
    return hash;
}

/// The arguments of a kernel, copied when it is launched.
struct Arguments {
    std::vector<uint64_t> values;
    const char* kinds;

    Arguments(const char* kinds, void* const* given) : kinds(kinds) {
        for (size_t i = 0; kinds[i]; i++) {
            uint64_t value = 0;
            memcpy(&value, given[i], strchr("uf", kinds[i]) ? 4 : 8);
            values.push_back(value);
        }
    }

    /// Does something with each address, until it says that something is wrong.
    template <class F>
    std::string each_pointer(F check) const {
        for (size_t i = 0; kinds[i]; i++) {
            if (!strchr("IO", kinds[i]) || !values[i]) continue;
            std::string wrong = check(values[i]);
            if (!wrong.empty()) return text("argument %d: ", (int)i) + wrong;
        }
        return "";
    }
};

static std::string run(Device& device, const Kernel* kernel, unsigned blocks, unsigned threads,
                       unsigned shared, const Arguments& arguments) {
    auto usable = [&](uint64_t address) { return check_use(device, address, 0); };
    std::string wrong = arguments.each_pointer(usable);
    if (wrong.empty()) {
        std::vector<void*> places;
        for (const uint64_t& value : arguments.values) places.push_back((void*)&value);
        uint64_t seed = settings().threads ? draw(5, operations) : 0;
        machine::in_order = !settings().threads;
        Reader reader(kernel->name);
        const char* error = emulate(kernel->name, blocks, threads, shared, places.data(), seed, 0);
        if (error) wrong = error;
    }
    if (wrong.empty()) wrong = arguments.each_pointer(check_around);
    return wrong;
}

/// A program of NVRTC's.
struct Program {
    std::string source, log, ptx, cubin;
};

static bool is_option(const std::string& option, std::string& architecture) {
    static const char* KNOWN[] = {"--fmad=false", "--fmad=true", "-fmad=false", "-fmad=true", "--std=c++11",
                                  "--std=c++14", "--std=c++17", "--std=c++20", "-std=c++14", "-std=c++17",
                                  "--ptxas-options=-v", "--generate-line-info", "-lineinfo", "--device-as-default-execution-space",
                                  "-default-device", "--restrict", "--extra-device-vectorization"};
    for (const char* prefix : {"--gpu-architecture=", "-arch="}) {
        if (option.rfind(prefix, 0) != 0) continue;
        architecture = option.substr(strlen(prefix));
        int number = 0, length = 0;
        bool real = sscanf(architecture.c_str(), "sm_%d%n", &number, &length) == 1;
        bool known = real || sscanf(architecture.c_str(), "compute_%d%n", &number, &length) == 1;
        std::string rest = architecture.substr(known ? (size_t)length : 0);
        return known && number >= 75 && number <= settings().archs && (rest.empty() || rest == "a");
    }
    return std::find(std::begin(KNOWN), std::end(KNOWN), option) != std::end(KNOWN);
}

enum Outcome { COMPILED = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, BUILTIN_FAILURE = 7 };

/// Whether a library of this name is part of the process.
static bool is_loaded(const char* name) {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    while (std::getline(maps, line)) {
        if (line.find(std::string("/") + name) != std::string::npos) return true;
    }
    return false;
}

static int compile(Program* program, int count, const char* const* options) {
    std::string architecture = "compute_75";
    for (int i = 0; i < count; i++) {
        if (!is_option(options[i], architecture)) {
            program->log = text("nvrtc: error: invalid value or option %s\n", options[i]);
            return INVALID_OPTION;
        }
    }
    if (settings().builtins && !is_loaded("libnvrtc-builtins.so.13.0")) {
        program->log = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n";
        return BUILTIN_FAILURE;
    }
    uint64_t hash = hash_of(program->source.c_str());
    if (source_of(hash) == std::size(SOURCES)) {
        program->log = "error: this is not the source that the emulator was compiled with\n";
        return COMPILATION;
    }
    size_t underscore = architecture.find('_');
    int number = atoi(architecture.c_str() + underscore + 1);
    unsigned long long printed = hash;
    program->ptx = text(".version 8.1 .target sm_%d // %llx\n", number, printed);
    if (architecture[0] == 's') program->cubin = image_of(number, printed);
    return COMPILED;
}

}  // namespace host

extern "C" {

int cuModuleLoadData(host::Module** module, const char* image) {
    CALL(cuModuleLoadData);
    UNSAFE_IN_CAPTURE(cuModuleLoadData);
    return host::load(module, image);
}

int cuModuleLoadDataEx(host::Module** module, const char* image, unsigned, int*, void**) {
    CALL(cuModuleLoadDataEx);
    return host::load(module, image);
}

int cuModuleUnload(host::Module* module) {
    CALL(cuModuleUnload);
    UNSAFE_IN_CAPTURE(cuModuleUnload);
    if (!module->alive) return host::wrong(host::INVALID_HANDLE, "a module is unloaded twice");
    module->alive = false;
    for (Stream* stream : host::streams()) {
        for (const Work& work : stream->queue) {
            if (work->module == module) host::fault("a module is unloaded before its kernels are done");
        }
    }
    return host::trouble(module->device);
}

int cuModuleGetFunction(host::Function** function, host::Module* module, const char* name) {
    CALL(cuModuleGetFunction);
    if (!module->alive) return host::wrong(host::INVALID_HANDLE, "a module is used after it was unloaded");
    for (const Kernel& kernel : KERNELS) {
        if (strcmp(kernel.name, name) == 0 && SOURCE_OF[&kernel - KERNELS] == module->source) {
            *function = new host::Function{module, &kernel, 48 * 1024, false};
            return 0;
        }
    }
    return host::NOT_FOUND;
}

int cuFuncSetAttribute(host::Function* function, int attribute, int value) {
    CALL(cuFuncSetAttribute);
    if (attribute == 8) {
        if (value < 0 || (size_t)value > machine::SHARED) return host::INVALID_VALUE;
        function->shared = (unsigned)value;
    }
    return 0;
}

int cuFuncLoad(host::Function* function) {
    CALL(cuFuncLoad);
    if (!function->module->alive) return host::wrong(host::INVALID_HANDLE, "a kernel is loaded whose module is unloaded");
    host::load(function);
    return 0;
}

int cuFuncGetAttribute(int* value, int attribute, host::Function* function) {
    CALL(cuFuncGetAttribute);
    switch (attribute) {
        case 0: *value = 256; break;
        case 4: *value = 32; break;
        case 8: *value = (int)function->shared; break;
        default: *value = 0;
    }
    return 0;
}

int cuLaunchKernel(host::Function* function, unsigned blocks, unsigned blocks_y, unsigned blocks_z,
                   unsigned threads, unsigned threads_y, unsigned threads_z, unsigned shared,
                   void* handle, void** arguments, void** extra) {
    CALL(cuLaunchKernel);
    CURRENT();
    STREAM(handle);
    if (!function->module->alive) return host::wrong(host::INVALID_HANDLE, "a kernel is launched whose module is unloaded");
    if (function->module->device != stream->device || device != stream->device) {
        return host::wrong(host::INVALID_HANDLE,
                           text("%s is launched on a stream of another context", function->kernel->name));
    }
    if (extra || blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1 || threads % 32) {
        return host::wrong(host::INVALID_VALUE, text("%s is launched in a way that is not emulated", function->kernel->name));
    }
    if (blocks == 0 || blocks > 0x7fffffff || threads == 0 || threads > 256 || shared > function->shared) {
        return host::INVALID_VALUE;
    }
    host::load(function);
    const Kernel* kernel = function->kernel;
    host::Arguments copied(kernel->params, arguments);
    Work work = host::enqueue(stream, "kernel", 2 + blocks, [=] {
        return host::run(*device, kernel, blocks, threads, shared, copied);
    });
    work->detail = kernel->name;
    work->module = function->module;
    work->function = function;
    work->blocks = blocks;
    work->threads = threads;
    work->shared = shared;
    host::pass_time();
    return 0;
}

int cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
    CALL(cuLaunchHostFunc);
    STREAM(handle);
    Work work = host::enqueue(stream, "host function", 1, nullptr);
    work->host = [=] { function(data); };
    host::pass_time();
    return 0;
}

int nvrtcVersion(int* major, int* minor) {
    CALL(nvrtcVersion);
    *major = 13;
    *minor = 0;
    return 0;
}

static const int ARCHITECTURES[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

int nvrtcGetNumSupportedArchs(int* count) {
    CALL(nvrtcGetNumSupportedArchs);
    *count = 0;
    for (int one : ARCHITECTURES) *count += one <= settings().archs;
    return 0;
}

int nvrtcGetSupportedArchs(int* known) {
    CALL(nvrtcGetSupportedArchs);
    for (int one : ARCHITECTURES) {
        if (one <= settings().archs) *known++ = one;
    }
    return 0;
}

int nvrtcCreateProgram(host::Program** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
    CALL(nvrtcCreateProgram);
    if (!source) return host::INVALID_INPUT;
    *program = new host::Program();
    (*program)->source = source;
    return 0;
}

int nvrtcDestroyProgram(host::Program** program) {
    CALL(nvrtcDestroyProgram);
    delete *program;
    *program = nullptr;
    return 0;
}

int nvrtcCompileProgram(host::Program* program, int count, const char* const* options) {
    CALL(nvrtcCompileProgram);
    return host::compile(program, count, options);
}

#define TEXT_OF(what, member, terminator)                          \
    int nvrtcGet##what##Size(host::Program* program, size_t* size) { \
        CALL(nvrtcGet##what##Size);                                \
        *size = program->member.size() + terminator;               \
        return 0;                                                  \
    }                                                              \
    int nvrtcGet##what(host::Program* program, char* text) {        \
        CALL(nvrtcGet##what);                                      \
        memcpy(text, program->member.c_str(), program->member.size() + terminator); \
        return 0;                                                  \
    }

TEXT_OF(PTX, ptx, 1)
TEXT_OF(CUBIN, cubin, 1)
TEXT_OF(ProgramLog, log, 1)

const char* nvrtcGetErrorString(int result) {
    switch (result) {
        case 0: return "NVRTC_SUCCESS";
        case host::INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case host::INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case host::INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case host::COMPILATION: return "NVRTC_ERROR_COMPILATION";
        default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

}  // extern "C"
