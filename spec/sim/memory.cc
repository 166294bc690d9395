/* The driver's memory: device blocks, pinned host blocks, copies and fills. */
#include "state.h"

#include <map>
#include <stdlib.h>
#include <string.h>

#include "poison.h"

namespace sim
{
static std::mutex &pinned_lock = *new std::mutex;
static std::map<const char *, size_t> &pinned = *new std::map<const char *, size_t>;

Open::Open(CUcontext context) : context_(context)
{
    context_->run.lock();
    context_->memory.open();
}

Open::~Open()
{
    context_->memory.close();
    context_->run.unlock();
}

bool is_pinned(const void *at, size_t bytes)
{
    std::lock_guard<std::mutex> hold(pinned_lock);
    const char *from = static_cast<const char *>(at);
    auto next = pinned.upper_bound(from);
    if (next == pinned.begin())
        return false;
    --next;
    return from + bytes <= next->first + next->second;
}

/* Are all the bytes in one allocation of one device? */
static int check_device(CUdeviceptr at, size_t bytes, CUcontext *out)
{
    const void *from = reinterpret_cast<const void *>(at);
    CUcontext device = device_of(from);
    if (device) {
        std::lock_guard<std::mutex> running(device->run);
        if (!device->memory.find(from, bytes)) {
            report(CUDA_ERROR_INVALID_VALUE, "a copy or fill of " + std::to_string(bytes) + " bytes that begins at " +
                                                 device->memory.place(from));
            return CUDA_ERROR_INVALID_VALUE;
        }
    } else {
        report(CUDA_ERROR_INVALID_VALUE, "a copy or fill of other memory than a device's");
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = device;
    return 0;
}

/* The n-th copy breaks the context, as a bus error does: when it runs. */
static int give_copy(CUstream stream, std::function<void()> run)
{
    CUcontext context = stream->context;
    if (fault_now(FAULT_COPY))
        run = [context] { context->fail(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy failed, as ACCELHOST_SIM_FAIL asked"); };
    return stream_give(stream, {run, true});
}

/* Wait for the queued work of a stream, without `api`; a copy's error is returned at once. */
static int finish(CUstream stream)
{
    stream_wait(stream);
    return stream->context->sticky;
}
} // namespace sim

using namespace sim;

SIM_API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    std::lock_guard<std::mutex> running(context->run);
    *total = context->memory.bytes();
    *available = *total - context->memory.used();
    return 0;
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    if (int code = refuse_in_capture())
        return code;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (fault_now(FAULT_ALLOC))
        return CUDA_ERROR_OUT_OF_MEMORY;
    std::lock_guard<std::mutex> running(context->run);
    *out = reinterpret_cast<CUdeviceptr>(context->memory.allocate(bytes));
    return *out ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The device and all its streams, each at its end; the waiting is without `api`. */
static int wait_for_all(CUcontext device)
{
    std::vector<CUstream> streams;
    {
        Api hold(api);
        CUcontext context;
        if (int code = current(&context))
            return code;
        if (int code = refuse_in_capture())
            return code;
        for (int i = 0; i < device_count(); i++)
            if (!device || device == device_at(i))
                streams.insert(streams.end(), device_at(i)->streams.begin(), device_at(i)->streams.end());
    }
    for (CUstream stream : streams)
        stream_wait(stream);
    return 0;
}

/* As the driver, which waits for the device before it frees memory. */
SIM_API CUresult cuMemFree_v2(CUdeviceptr block)
{
    count_call();
    void *at = reinterpret_cast<void *>(block);
    CUcontext device = device_of(at);
    if (block && !device)
        return CUDA_ERROR_INVALID_VALUE;
    if (int code = wait_for_all(device))
        return code;
    if (!block)
        return 0;
    Open open(device);
    device->check(false, "seen by cuMemFree");
    if (!device->memory.release(at)) {
        report(CUDA_ERROR_INVALID_VALUE, "cuMemFree of " + device->memory.place(at));
        return CUDA_ERROR_INVALID_VALUE;
    }
    return device->sticky;
}

SIM_API CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    if (int code = refuse_in_capture())
        return code;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (fault_now(FAULT_PINNED) || posix_memalign(out, 4096, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(*out, POISON, bytes);
    std::lock_guard<std::mutex> more(pinned_lock);
    pinned[static_cast<char *>(*out)] = bytes;
    return 0;
}

SIM_API CUresult cuMemFreeHost(void *block)
{
    count_call();
    if (int code = wait_for_all(nullptr))
        return code;
    std::lock_guard<std::mutex> more(pinned_lock);
    auto found = pinned.find(static_cast<char *>(block));
    if (found == pinned.end())
        return CUDA_ERROR_INVALID_VALUE;
    pinned.erase(found);
    free(block);
    return 0;
}

/* The driver has read bytes of pageable memory when the call returns. */
SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream handle)
{
    Api hold(api);
    CUstream stream;
    CUcontext device;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!bytes)
        return 0;
    if (int code = check_device(to, bytes, &device))
        return code;
    void *target = reinterpret_cast<void *>(to);
    if (is_pinned(from, bytes))
        return give_copy(stream, [target, from, bytes] { memcpy(target, from, bytes); });
    if (stream->capture)
        return refuse_in_capture();
    auto staged = std::make_shared<std::vector<char>>(static_cast<const char *>(from),
                                                      static_cast<const char *>(from) + bytes);
    return give_copy(stream, [target, staged] { memcpy(target, staged->data(), staged->size()); });
}

/* To pageable memory the copy has happened when the call returns. */
SIM_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    CUstream stream;
    {
        Api hold(api);
        CUcontext device;
        if (int code = stream_of(handle, &stream))
            return code;
        if (!bytes)
            return 0;
        if (int code = check_device(from, bytes, &device))
            return code;
        const void *source = reinterpret_cast<const void *>(from);
        bool pageable = !is_pinned(to, bytes);
        if (pageable && stream->capture)
            return refuse_in_capture();
        if (int code = give_copy(stream, [to, source, bytes] { memcpy(to, source, bytes); }))
            return code;
        if (!pageable)
            return 0;
    }
    return finish(stream);
}

SIM_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    Api hold(api);
    CUstream stream;
    CUcontext device, source_device;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!bytes)
        return 0;
    if (int code = check_device(to, bytes, &device))
        return code;
    if (int code = check_device(from, bytes, &source_device))
        return code;
    if (device != stream->context || source_device != stream->context)
        return CUDA_ERROR_INVALID_VALUE;
    void *target = reinterpret_cast<void *>(to);
    const void *source = reinterpret_cast<const void *>(from);
    return give_copy(stream, [target, source, bytes] { memmove(target, source, bytes); });
}

SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                   size_t bytes, CUstream handle)
{
    Api hold(api);
    CUstream stream;
    CUcontext device, source_device;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!bytes)
        return 0;
    if (int code = check_device(to, bytes, &device))
        return code;
    if (int code = check_device(from, bytes, &source_device))
        return code;
    if (device != to_context || source_device != from_context)
        return CUDA_ERROR_INVALID_VALUE;
    void *target = reinterpret_cast<void *>(to);
    const void *source = reinterpret_cast<const void *>(from);
    /* Through the host, so that never two devices are held at once. */
    return stream_give(stream, {[=] {
                                    std::vector<char> staged(bytes);
                                    {
                                        Open open(source_device);
                                        memcpy(staged.data(), source, bytes);
                                    }
                                    Open open(device);
                                    memcpy(target, staged.data(), bytes);
                                },
                                false});
}

SIM_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle)
{
    Api hold(api);
    CUstream stream;
    CUcontext device;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!count)
        return 0;
    if (int code = check_device(to, count, &device))
        return code;
    void *target = reinterpret_cast<void *>(to);
    return stream_give(stream, {[=] { memset(target, value, count); }, true});
}

SIM_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream handle)
{
    Api hold(api);
    CUstream stream;
    CUcontext device;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!count)
        return 0;
    if (to % 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (int code = check_device(to, 4 * count, &device))
        return code;
    unsigned *target = reinterpret_cast<unsigned *>(to);
    return stream_give(stream, {[=] {
                                    for (size_t i = 0; i < count; i++)
                                        target[i] = value;
                                },
                                true});
}
