// The driver's calls about graphs: what a stream is asked for while it is captured becomes nodes, one behind the other, and a
// launch puts copies of them into a stream's queue. A launch has the arguments that its nodes had when it was asked for.

namespace host {

/// What was captured. Its nodes are named by their operations.
struct Graph {
    Device* device;
    std::vector<Work> nodes;
    bool alive;
};

/// A graph that can be launched.
struct Executable {
    Graph* graph;
    /// As those of the graph, with arguments of their own.
    std::vector<Work> nodes;
    bool alive;
    /// The end of the last launch, and where that was.
    Work last;
    Stream* stream;
};

/// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
    Function* function;
    unsigned blocks[3], threads[3], shared;
    void** arguments;
    void** extra;
    void* kernel;
    Device* context;
};

static Work copy_of(const Work& node) { return std::make_shared<Operation>(*node); }

static int executable_of(Executable* executable) {
    static const char* const NONE = "a graph is used that is none, or no more";
    if (!is_initialised) return NOT_INITIALIZED;
    if (!executable || !executable->alive) return wrong(INVALID_VALUE, NONE);
    return trouble(executable->graph->device);
}

static int launch(Executable* executable, Stream* stream) {
    if (int e = breaks_capture(stream, "cuGraphLaunch", NOT_SUPPORTED)) return e;
    if (stream->device != executable->graph->device) {
        return wrong(INVALID_VALUE, "a graph is launched on a stream of another context");
    }
    bool runs = executable->last && !executable->last->done;
    // The driver would put one behind the other.
    if (runs && executable->stream != stream) fault("a graph is launched on a second stream while it runs");
    std::vector<Work> after;
    if (runs) after.push_back(executable->last);
    for (const Work& node : executable->nodes) {
        if (node->module && !((Module*)node->module)->alive) {
            return wrong(INVALID_HANDLE, "a graph is launched whose module is unloaded");
        }
        Work work = enqueue(stream, node->name.c_str(), node->cost, node->act, after);
        work->detail = node->detail + " of a graph,";
        work->module = node->module;
        after.clear();
        executable->last = work;
    }
    executable->stream = stream;
    pass_time();
    return 0;
}

static int set_arguments(Executable* executable, Operation* name, const KernelNode* params) {
    if (!executable->graph->alive) {
        return wrong(INVALID_VALUE, "a node is named of a graph that is no more");
    }
    auto& nodes = executable->graph->nodes;
    auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Work& node) { return node.get() == name; });
    if (found == nodes.end()) return wrong(INVALID_VALUE, "a node is named that is none of the graph");
    Work& node = executable->nodes[(size_t)(found - nodes.begin())];
    Function* function = params->function;
    if (!node->function || !function) return wrong(INVALID_VALUE, "a node is no kernel's");
    if (!function->module->alive || function->module->device != executable->graph->device) {
        return wrong(INVALID_VALUE, "a node is given a kernel of another context");
    }
    unsigned blocks = params->blocks[0], threads = params->threads[0], shared = params->shared;
    bool is_one_row = params->blocks[1] == 1 && params->blocks[2] == 1 && params->threads[1] == 1 && params->threads[2] == 1;
    if (!is_one_row || params->extra || blocks == 0 || threads == 0 || threads > 256 || shared > function->shared) {
        return INVALID_VALUE;
    }
    static uint64_t changes = 0;
    if (++changes == settings().forget) return 0;
    Device* device = executable->graph->device;
    const Kernel* kernel = function->kernel;
    Arguments copied(kernel->params, params->arguments);
    node->act = [=] { return run(*device, kernel, blocks, threads, shared, copied); };
    node->detail = kernel->name;
    node->module = function->module;
    return 0;
}

}  // namespace host

using host::Capture;
using host::Executable;
using host::Graph;

extern "C" {

int cuStreamBeginCapture_v2(void* handle, int mode) {
    CALL(cuStreamBeginCapture_v2);
    STREAM(handle);
    if (!handle) return host::wrong(host::STREAM_CAPTURE_UNSUPPORTED, "the default stream is captured");
    if (stream->capture) return host::wrong(host::ILLEGAL_STATE, "a stream is captured twice at once");
    if (mode < 0 || mode > 2) return host::INVALID_VALUE;
    static uint64_t captures = 0;
    stream->capture = std::make_shared<Capture>();
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->mode = mode;
    stream->capture->number = ++captures;
    return 0;
}

int cuStreamEndCapture(void* handle, Graph** graph) {
    host::Call call("cuStreamEndCapture");
    STREAM(handle);
    *graph = nullptr;
    if (call.refused) {
        // It ends in any case.
        stream->capture.reset();
        return call.refused;
    }
    if (!stream->capture) return host::wrong(host::ILLEGAL_STATE, "the capture of a stream ends that is not captured");
    if (stream->capture->mode != 2 && stream->capture->thread != std::this_thread::get_id()) {
        return host::wrong(host::STREAM_CAPTURE_WRONG_THREAD, "a capture ends in another thread than it began in");
    }
    std::shared_ptr<Capture> capture;
    capture.swap(stream->capture);
    if (!capture->broken.empty()) return host::STREAM_CAPTURE_INVALIDATED;
    *graph = new Graph{stream->device, capture->nodes, true};
    return 0;
}

int cuStreamGetCaptureInfo_v3(void* handle, int* status, uint64_t* number, Graph** graph,
                              host::Operation* const** last, const void** edges, size_t* count) {
    CALL(cuStreamGetCaptureInfo_v3);
    STREAM(handle);
    Capture* capture = stream->capture.get();
    *status = !capture ? 0 : capture->broken.empty() ? 1 : 2;
    if (*status != 1) return *status == 0 ? 0 : host::STREAM_CAPTURE_INVALIDATED;
    if (number) *number = capture->number;
    // It is not known before the capture ends.
    if (graph) *graph = nullptr;
    if (edges) *edges = nullptr;
    capture->last = capture->nodes.empty() ? nullptr : capture->nodes.back().get();
    if (last) *last = &capture->last;
    if (count) *count = !capture->nodes.empty();
    return 0;
}

int cuGraphInstantiateWithFlags(Executable** executable, Graph* graph, uint64_t flags) {
    CALL(cuGraphInstantiateWithFlags);
    CURRENT();
    if (!graph || !graph->alive) return host::wrong(host::INVALID_VALUE, "a graph is instantiated that is none, or no more");
    if (flags != 0 || device != graph->device) return host::INVALID_VALUE;
    *executable = new Executable{graph, {}, true, nullptr, nullptr};
    for (const Work& node : graph->nodes) (*executable)->nodes.push_back(host::copy_of(node));
    return 0;
}

int cuGraphExecKernelNodeSetParams_v2(Executable* executable, host::Operation* node, const host::KernelNode* params) {
    CALL(cuGraphExecKernelNodeSetParams_v2);
    if (int e = host::executable_of(executable)) return e;
    return host::set_arguments(executable, node, params);
}

int cuGraphLaunch(Executable* executable, void* handle) {
    CALL(cuGraphLaunch);
    if (int e = host::executable_of(executable)) return e;
    STREAM(handle);
    return host::launch(executable, stream);
}

int cuGraphExecDestroy(Executable* executable) {
    CALL(cuGraphExecDestroy);
    if (int e = host::executable_of(executable)) return e;
    // What was launched is done still.
    executable->alive = false;
    executable->nodes.clear();
    return 0;
}

int cuGraphDestroy(Graph* graph) {
    CALL(cuGraphDestroy);
    INITIALISED();
    if (!graph || !graph->alive) return host::wrong(host::INVALID_VALUE, "a graph is destroyed twice");
    graph->alive = false;
    graph->nodes.clear();
    return 0;
}

}  // extern "C"
