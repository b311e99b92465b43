// The driver's calls about streams and events, and copies.

using host::Event;
using host::Work;

namespace host {

/// The event that a handle names; reports one that is none.
static int event_of(Event* event) {
    static const char* const NONE = "an event is used that is none, or no more";
    if (!is_initialised) return NOT_INITIALIZED;
    if (!event || !event->alive) return wrong(INVALID_HANDLE, NONE);
    return trouble(event->device);
}

/// Polling makes devices go on, now or a few calls later.
static void poll(const Work& work) {
    static uint64_t polls = 0;
    pass_time();
    if (work && !work->done && draw(4, ++polls) % settings().polls == 0) {
        if (Stream* stream = next_stream(work)) do_first(stream);
    }
}

static double copying(uint64_t bytes) { return 1 + (double)bytes / 20e3; }

/// Waits for a copy that the host takes part in, and gives its outcome.
static int finish_now(Stream* stream, const Work& work, std::unique_lock<std::mutex>& held) {
    finish(work, held);
    return stream->device->error;
}

static int to_device(uint64_t to, const void* from, uint64_t bytes, Stream* stream, Work& work) {
    if (bytes == 0) return 0;
    Device* device = stream->device;
    uint64_t source = (uint64_t)from;
    // What is not pinned is copied elsewhere before the call returns.
    std::shared_ptr<std::vector<char>> staged;
    if (!is_pinned(source)) {
        staged = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
    }
    work = enqueue(stream, "copy to the device", copying(bytes), [=]() -> std::string {
        std::string wrong = check_use(*device, to, bytes);
        if (wrong.empty() && !staged) wrong = check_use(*device, source, bytes);
        if (!wrong.empty()) return wrong;
        memcpy((void*)to, staged ? staged->data() : from, bytes);
        set_written(to, bytes, true);
        return wrong;
    });
    uses_pinned(work, source);
    return 0;
}

static int to_host(void* to, uint64_t from, uint64_t bytes, Stream* stream, Work& work) {
    if (bytes == 0) return 0;
    Device* device = stream->device;
    bool pinned = is_pinned((uint64_t)to);
    work = enqueue(stream, "copy to the host", copying(bytes), [=]() -> std::string {
        std::string wrong = check_use(*device, from, bytes);
        if (wrong.empty() && pinned) wrong = check_use(*device, (uint64_t)to, bytes);
        if (wrong.empty()) memcpy(to, (void*)from, bytes);
        return wrong;
    });
    uses_pinned(work, (uint64_t)to);
    return 0;
}

static Work between(uint64_t to, uint64_t from, uint64_t bytes, Stream* stream, Device* owner_to,
                    Device* owner_from) {
    return enqueue(stream, "copy between devices", copying(bytes), [=]() -> std::string {
        std::string wrong = check_use(*owner_to, to, bytes);
        if (wrong.empty()) wrong = check_use(*owner_from, from, bytes);
        bool dropped = settings().drop && owner_to != owner_from;
        if (!wrong.empty() || dropped) return wrong;
        memmove((void*)to, (void*)from, bytes);
        copy_written(to, from, bytes);
        return wrong;
    });
}

static int fill(uint64_t to, uint32_t value, uint64_t count, uint64_t width, Stream* stream) {
    if (count == 0) return 0;
    if (to % width) return INVALID_VALUE;
    Device* device = stream->device;
    enqueue(stream, "filling", copying(count * width), [=]() -> std::string {
        std::string wrong = check_use(*device, to, count * width);
        if (!wrong.empty()) return wrong;
        for (uint64_t i = 0; i < count; i++) memcpy((char*)to + i * width, &value, width);
        set_written(to, count * width, true);
        return wrong;
    });
    pass_time();
    return 0;
}

static int elapsed(float* milliseconds, Event* start, Event* end) {
    for (Event* event : {start, end}) {
        if (int error = event_of(event)) return error;
        if (!event->timed || !event->mark) return INVALID_HANDLE;
    }
    if (!start->mark->done || !end->mark->done) return NOT_READY;
    *milliseconds = (float)((end->mark->end - start->mark->end) / 1000);
    return 0;
}

/// The error of a call that waits for a device, none of whose streams may be captured, by whichever thread; or none.
static int breaks_captures(Device* device, const char* call) {
    int error = 0;
    for (Stream* stream : streams()) {
        if (stream->device != device) continue;
        if (int e = breaks_capture(stream, call)) error = e;
    }
    return error;
}

/// The device's work until now is done.
static int finish_device(Device* device, std::unique_lock<std::mutex>& held) {
    for (size_t i = 0; i < streams().size(); i++) {
        Stream* stream = streams()[i];
        if (stream->device == device) finish_stream(stream, held);
    }
    return device->error;
}

static int create_stream(Stream** stream, unsigned flags) {
    CURRENT();
    *stream = new_stream(device, !(flags & 1));
    return 0;
}

}  // namespace host

#define EVENT(event) \
    if (int e = host::event_of(event)) return e

extern "C" {

int cuStreamCreate(Stream** stream, unsigned flags) {
    CALL(cuStreamCreate);
    return host::create_stream(stream, flags);
}

int cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) {
    CALL(cuStreamCreateWithPriority);
    return host::create_stream(stream, flags);
}

int cuStreamDestroy_v2(void* handle) {
    CALL(cuStreamDestroy_v2);
    if (!handle) return host::INVALID_HANDLE;
    STREAM(handle);
    if (int e = host::breaks_capture(stream, "cuStreamDestroy")) return e;
    // What is in its queue is done still.
    stream->alive = false;
    return 0;
}

int cuStreamSynchronize(void* handle) {
    CALL(cuStreamSynchronize);
    STREAM(handle);
    if (int e = host::breaks_capture(stream, "cuStreamSynchronize")) return e;
    if (host::skips("cuStreamSynchronize")) return 0;
    host::finish_stream(stream, call.held);
    return stream->device->error;
}

int cuStreamQuery(void* handle) {
    CALL(cuStreamQuery);
    STREAM(handle);
    if (int e = host::breaks_capture(stream, "cuStreamQuery")) return e;
    if (host::skips("cuStreamQuery")) return 0;
    host::poll(stream->last);
    if (stream->device->error) return stream->device->error;
    return stream->last ? host::NOT_READY : 0;
}

int cuStreamWaitEvent(void* handle, Event* event, unsigned) {
    CALL(cuStreamWaitEvent);
    STREAM(handle);
    EVENT(event);
    // The event is none of the capture: those are not emulated.
    if (int e = host::breaks_capture(stream, "cuStreamWaitEvent", host::STREAM_CAPTURE_ISOLATION)) return e;
    if (host::skips("cuStreamWaitEvent")) return 0;
    if (event->mark && !event->mark->done) {
        host::enqueue(stream, "wait", 0, nullptr, {event->mark});
        host::pass_time();
    } else if (event->mark) {
        stream->time = std::max(stream->time, event->mark->end);
    }
    return 0;
}

int cuStreamGetCtx(void* handle, Device** context) {
    CALL(cuStreamGetCtx);
    STREAM(handle);
    *context = stream->device;
    return 0;
}

int cuCtxSynchronize() {
    CALL(cuCtxSynchronize);
    CURRENT();
    if (int e = host::breaks_captures(device, "cuCtxSynchronize")) return e;
    if (host::skips("cuCtxSynchronize")) return 0;
    return host::finish_device(device, call.held);
}

int cuEventCreate(Event** event, unsigned flags) {
    CALL(cuEventCreate);
    CURRENT();
    *event = new Event{device, !(flags & 2), true, nullptr};
    return 0;
}

int cuEventDestroy_v2(Event* event) {
    CALL(cuEventDestroy_v2);
    EVENT(event);
    // Who waits for it waits still.
    event->alive = false;
    event->mark = nullptr;
    return 0;
}

int cuEventRecord(Event* event, void* handle) {
    CALL(cuEventRecord);
    STREAM(handle);
    EVENT(event);
    if (int e = host::breaks_capture(stream, "cuEventRecord", host::NOT_SUPPORTED)) return e;
    if (event->device != stream->device) {
        return host::wrong(host::INVALID_HANDLE, "an event of one device is recorded in a stream of another");
    }
    event->mark = host::enqueue(stream, "event", 0, nullptr);
    host::pass_time();
    return 0;
}

int cuEventRecordWithFlags(Event* event, void* handle, unsigned) { return cuEventRecord(event, handle); }

int cuEventQuery(Event* event) {
    CALL(cuEventQuery);
    UNSAFE_IN_CAPTURE(cuEventQuery);
    EVENT(event);
    if (host::skips("cuEventQuery")) return 0;
    host::poll(event->mark);
    if (event->device->error) return event->device->error;
    if (!event->mark) return 0;
    if (!event->mark->done) return host::NOT_READY;
    host::now = std::max(host::now, event->mark->end);
    return 0;
}

int cuEventSynchronize(Event* event) {
    CALL(cuEventSynchronize);
    UNSAFE_IN_CAPTURE(cuEventSynchronize);
    EVENT(event);
    if (host::skips("cuEventSynchronize")) return 0;
    // Another thread may record it anew meanwhile.
    Work mark = event->mark;
    if (mark) host::finish(mark, call.held);
    return event->device->error;
}

int cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
    CALL(cuEventElapsedTime);
    return host::elapsed(milliseconds, start, end);
}

int cuEventElapsedTime_v2(float* milliseconds, Event* start, Event* end) {
    CALL(cuEventElapsedTime_v2);
    return host::elapsed(milliseconds, start, end);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* handle) {
    CALL(cuMemcpyHtoDAsync_v2);
    STREAM(handle);
    if (int e = host::breaks_capture(stream, "a copy from or to the host", host::is_pinned((uint64_t)from) ? host::NOT_SUPPORTED : host::STREAM_CAPTURE_UNSUPPORTED)) return e;
    Work work;
    int e = host::to_device(to, from, bytes, stream, work);
    host::pass_time();
    return e;
}

int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
    CALL(cuMemcpyHtoD_v2);
    UNSAFE_IN_CAPTURE(cuMemcpyHtoD_v2);
    STREAM(nullptr);
    Work work;
    int e = host::to_device(to, from, bytes, stream, work);
    return e || !work ? e : host::finish_now(stream, work, call.held);
}

int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* handle) {
    CALL(cuMemcpyDtoHAsync_v2);
    STREAM(handle);
    if (int e = host::breaks_capture(stream, "a copy from or to the host", host::is_pinned((uint64_t)to) ? host::NOT_SUPPORTED : host::STREAM_CAPTURE_UNSUPPORTED)) return e;
    Work work;
    int e = host::to_host(to, from, bytes, stream, work);
    // What is not pinned is there when the call returns.
    if (!e && work && !host::is_pinned((uint64_t)to)) e = host::finish_now(stream, work, call.held);
    host::pass_time();
    return e;
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
    CALL(cuMemcpyDtoH_v2);
    UNSAFE_IN_CAPTURE(cuMemcpyDtoH_v2);
    STREAM(nullptr);
    Work work;
    int e = host::to_host(to, from, bytes, stream, work);
    return e || !work ? e : host::finish_now(stream, work, call.held);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* handle) {
    CALL(cuMemcpyDtoDAsync_v2);
    STREAM(handle);
    if (bytes) host::between(to, from, bytes, stream, stream->device, stream->device);
    host::pass_time();
    return 0;
}

int cuMemcpyPeerAsync(uint64_t to, Device* owner_to, uint64_t from, Device* owner_from, size_t bytes,
                      void* handle) {
    CALL(cuMemcpyPeerAsync);
    STREAM(handle);
    if (!host::is_context(owner_to) || !host::is_context(owner_from)) return host::INVALID_CONTEXT;
    host::count_copy(owner_from->number, owner_to->number, bytes);
    if (bytes) host::between(to, from, bytes, stream, owner_to, owner_from);
    host::pass_time();
    return 0;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void* handle) {
    CALL(cuMemsetD8Async);
    STREAM(handle);
    return host::fill(to, value, count, 1, stream);
}

int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* handle) {
    CALL(cuMemsetD32Async);
    STREAM(handle);
    return host::fill(to, value, count, 4, stream);
}

}  // extern "C"
