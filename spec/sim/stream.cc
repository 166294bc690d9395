/* Streams and events. A stream is a thread with a queue; before some of its works it waits a drawn while, so that
 * missing synchronisation shows. Memory stays open while a queue has more to do. */
#include "state.h"

#include <algorithm>
#include <sys/prctl.h>
#include <time.h>

namespace sim
{
static double now()
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

void Record::reach()
{
    std::lock_guard<std::mutex> hold(lock);
    done = true;
    when = now();
    reached.notify_all();
}

void Record::wait()
{
    std::unique_lock<std::mutex> hold(lock);
    reached.wait(hold, [this] { return done; });
}

bool Record::is_done()
{
    std::lock_guard<std::mutex> hold(lock);
    return done;
}

/* One work in 8 waits up to 0.1 ms, one in 128 up to 1 ms. */
static void delay(Random &random)
{
    if (!settings.delay)
        return;
    unsigned draw = random.below(128);
    if (draw >= 16)
        return;
    struct timespec time = {0, (long)random.below(draw ? 100000 : 1000000)};
    nanosleep(&time, nullptr);
}

static void carry_out(CUstream stream, const Work &work)
{
    CUcontext context = stream->context;
    if (!work.touches) {
        work.run();
        return;
    }
    std::lock_guard<std::mutex> running(context->run);
    if (!context->sticky) {
        context->memory.open();
        work.run();
    }
    bool more;
    {
        std::lock_guard<std::mutex> hold(stream->lock);
        more = stream->queue.size() > 1;
    }
    if (!more)
        context->memory.close();
}

static void serve(CUstream stream)
{
    use_signal_stack();
    prctl(PR_SET_TIMERSLACK, 1000UL);
    std::unique_lock<std::mutex> hold(stream->lock);
    for (;;) {
        stream->some.wait(hold, [stream] { return stream->stop || !stream->queue.empty(); });
        if (stream->queue.empty())
            return;
        Work &work = stream->queue.front(); /* a deque: stays where it is */
        hold.unlock();
        delay(stream->random);
        carry_out(stream, work);
        hold.lock();
        stream->queue.pop_front();
        stream->done++;
        stream->finished.notify_all();
    }
}

CUstream stream_new(CUcontext context, unsigned flags, int priority)
{
    static uint64_t made;
    CUstream stream = new CUstream_st;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->random.seed(settings.seed + 7919 * ++made);
    stream->thread = std::thread(serve, stream);
    context->streams.push_back(stream);
    return stream;
}

void stream_end(CUstream stream)
{
    {
        std::lock_guard<std::mutex> hold(stream->lock);
        stream->stop = true;
        stream->some.notify_all();
    }
    stream->thread.join();
    auto &streams = stream->context->streams;
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
}

int stream_of(CUstream handle, CUstream *out)
{
    CUcontext context;
    if (!handle) {
        if (int code = current(&context))
            return code;
        if (!context->null_stream)
            context->null_stream = stream_new(context, 0, 0);
        handle = context->null_stream;
    }
    bool known = false;
    for (int i = 0; i < device_count() && !known; i++) {
        const auto &streams = device_at(i)->streams;
        known = std::find(streams.begin(), streams.end(), handle) != streams.end();
    }
    if (!known)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = handle;
    if (fault_now(FAULT_LOST))
        handle->context->fail(CUDA_ERROR_UNKNOWN, "the device was lost, as ACCELHOST_SIM_FAIL asked");
    return handle->context->sticky;
}

int stream_give(CUstream stream, Work work)
{
    if (stream->capture) {
        if (stream->capture->broken)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        auto &nodes = stream->capture->graph.nodes;
        nodes.push_back({work, stream->last});
        stream->last = {(int)nodes.size() - 1};
        return 0;
    }
    std::lock_guard<std::mutex> hold(stream->lock);
    stream->queue.push_back(work);
    stream->given++;
    stream->some.notify_one();
    return 0;
}

void stream_wait(CUstream stream)
{
    std::unique_lock<std::mutex> hold(stream->lock);
    uint64_t until = stream->given;
    stream->finished.wait(hold, [=] { return stream->done >= until; });
}
} // namespace sim

using namespace sim;

SIM_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    if (flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *out = stream_new(context, flags, priority);
    return 0;
}

SIM_API CUresult cuStreamDestroy_v2(CUstream handle)
{
    Api hold(api);
    CUstream stream;
    int code = stream_of(handle, &stream);
    if (!handle || code == CUDA_ERROR_INVALID_HANDLE)
        return CUDA_ERROR_INVALID_HANDLE;
    stream_end(stream);
    return code;
}

SIM_API CUresult cuStreamSynchronize(CUstream handle)
{
    CUstream stream;
    {
        Api hold(api);
        if (int code = stream_of(handle, &stream))
            return code;
        if (stream->capture)
            return refuse_in_capture();
    }
    stream_wait(stream);
    return stream->context->sticky;
}

SIM_API CUresult cuStreamQuery(CUstream handle)
{
    Api hold(api);
    CUstream stream;
    if (int code = stream_of(handle, &stream))
        return code;
    if (stream->capture)
        return refuse_in_capture();
    if (int code = refuse_in_capture())
        return code;
    std::lock_guard<std::mutex> more(stream->lock);
    return stream->done < stream->given ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

SIM_API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    Api hold(api);
    CUstream stream;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    auto capture = event->capture && !event->capture->over ? event->capture : nullptr;
    if (capture) {
        if (stream->capture && stream->capture != capture)
            return ERROR_STREAM_CAPTURE_MERGE;
        if (!stream->capture) {
            stream->capture = capture;
            stream->last.clear();
            capture->streams.push_back(stream);
        }
        for (int node : event->nodes)
            if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end())
                stream->last.push_back(node);
        return 0;
    }
    if (stream->capture) {
        stream->capture->broken = true;
        return ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!event->record || fault_now(FAULT_WAIT))
        return 0;
    auto record = event->record;
    return stream_give(stream, {[record] { record->wait(); }, false});
}

SIM_API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    *out = new CUevent_st{context, flags, nullptr, nullptr, {}};
    return 0;
}

SIM_API CUresult cuEventDestroy_v2(CUevent event)
{
    count_call();
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    delete event;
    return 0;
}

SIM_API CUresult cuEventRecord(CUevent event, CUstream handle)
{
    Api hold(api);
    CUstream stream;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!event || event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    event->capture = stream->capture;
    event->nodes = stream->last;
    if (stream->capture)
        return 0;
    auto record = std::make_shared<Record>();
    event->record = record;
    return stream_give(stream, {[record] { record->reach(); }, false});
}

/* Find the record that an event waits for, without `api`. */
static int record_of(CUevent event, std::shared_ptr<Record> *out)
{
    Api hold(api);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->context->sticky)
        return event->context->sticky;
    if (event->capture) {
        /* Also after the capture: a graph's events are not the host's. */
        event->capture->broken = true;
        return ERROR_CAPTURED_EVENT;
    }
    *out = event->record;
    return 0;
}

SIM_API CUresult cuEventQuery(CUevent event)
{
    std::shared_ptr<Record> record;
    if (int code = record_of(event, &record))
        return code;
    {
        Api hold(api);
        if (int code = refuse_in_capture())
            return code;
    }
    return record && !record->is_done() && !fault_now(FAULT_EARLY) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

SIM_API CUresult cuEventSynchronize(CUevent event)
{
    count_call();
    std::shared_ptr<Record> record;
    if (int code = record_of(event, &record))
        return code;
    if (record)
        record->wait();
    return event->context->sticky;
}

SIM_API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    count_call();
    std::shared_ptr<Record> from, to;
    if (int code = record_of(start, &from))
        return code;
    if (int code = record_of(end, &to))
        return code;
    if (!from || !to || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!from->is_done() || !to->is_done())
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)(to->when - from->when);
    return 0;
}
