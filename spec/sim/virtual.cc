/* The driver's virtual memory: addresses and memory apart, and one mapped into the other. As on a card, sizes are
 * multiples of 2 MiB, mapped memory may be used after cuMemSetAccess alone, and unmapping waits for nothing: a kernel
 * that is still at it finds addresses of no allocation. */
#include "state.h"

#include <map>

namespace sim
{
enum : size_t { GRANULE = 2 << 20 };

struct Memory {
    CUcontext device;
    size_t bytes;
    int uses; /* the handle, and its mappings */
};

/* Under `api`. */
static std::map<CUmemGenericAllocationHandle, Memory> &memories = *new std::map<CUmemGenericAllocationHandle, Memory>;
static std::map<void *, CUmemGenericAllocationHandle> &mapped = *new std::map<void *, CUmemGenericAllocationHandle>;
static CUmemGenericAllocationHandle made;

static void let_go(CUmemGenericAllocationHandle handle)
{
    Memory &memory = memories[handle];
    if (--memory.uses)
        return;
    std::lock_guard<std::mutex> running(memory.device->run);
    memory.device->memory.give_memory(memory.bytes);
    memories.erase(handle);
}

static void *pointer(CUdeviceptr at)
{
    return reinterpret_cast<void *>(at);
}
} // namespace sim

using namespace sim;

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wish,
                                     unsigned long long flags)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    if (!bytes || bytes % GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> running(context->run);
    *out = reinterpret_cast<CUdeviceptr>(context->memory.reserve_addresses(bytes));
    return *out ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    Api hold(api);
    CUcontext device = device_of(pointer(at));
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> running(device->run);
    return device->memory.free_addresses(pointer(at), bytes) ? 0 : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                             unsigned long long flags)
{
    Api hold(api);
    CUcontext device = device_at(prop->location.id);
    if (!device || !bytes || bytes % GRANULE || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (int code = refuse_in_capture())
        return code;
    if (fault_now(FAULT_MAP))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fault_now(FAULT_ALLOC))
        return CUDA_ERROR_OUT_OF_MEMORY;
    std::lock_guard<std::mutex> running(device->run);
    if (!device->memory.take_memory(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = ++made;
    memories[made] = {device, bytes, 1};
    return 0;
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    Api hold(api);
    if (!memories.count(handle))
        return CUDA_ERROR_INVALID_VALUE;
    let_go(handle);
    return 0;
}

SIM_API CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    Api hold(api);
    auto found = memories.find(handle);
    if (found == memories.end() || offset || bytes != found->second.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext device = found->second.device;
    std::lock_guard<std::mutex> running(device->run);
    if (!device->memory.map(pointer(at), bytes))
        return CUDA_ERROR_INVALID_VALUE;
    mapped[pointer(at)] = handle;
    found->second.uses++;
    return 0;
}

SIM_API CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    Api hold(api);
    CUcontext device = device_of(pointer(at));
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    {
        std::lock_guard<std::mutex> running(device->run);
        if (!device->memory.unmap(pointer(at), bytes)) {
            report(CUDA_ERROR_INVALID_VALUE, "cuMemUnmap of a range that is not mapped so");
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    auto piece = mapped.lower_bound(pointer(at));
    while (piece != mapped.end() && piece->first < pointer(at + bytes)) {
        CUmemGenericAllocationHandle handle = piece->second;
        piece = mapped.erase(piece);
        let_go(handle);
    }
    return 0;
}

/* Another device's access is noted nowhere: its kernels may not use this one's memory here. */
SIM_API CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    Api hold(api);
    CUcontext device = device_of(pointer(at));
    if (!device || !count)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> running(device->run);
    return device->memory.allow(pointer(at), bytes) ? 0 : CUDA_ERROR_INVALID_VALUE;
}
