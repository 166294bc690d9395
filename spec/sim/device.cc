/* The driver's devices, contexts and errors. */
#include "state.h"

#include <map>
#include <set>
#include <stdio.h>
#include <string.h>

namespace sim
{
std::mutex api;

/* Never destroyed: streams' threads may still run when the program ends. */
static std::vector<CUcontext> &devices = *new std::vector<CUcontext>;
static thread_local CUcontext current_context;
static bool initialised;

static std::mutex &text_lock = *new std::mutex;
static std::map<int, const char *> &texts_of = *new std::map<int, const char *>;
static std::set<std::string> &texts = *new std::set<std::string>;

static const struct Code {
    int code;
    const char *name, *text;
} codes[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture from another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const Code *code_of(int code)
{
    for (const Code &row : codes)
        if (row.code == code)
            return &row;
    return nullptr;
}

void report(int code, const std::string &text)
{
    std::lock_guard<std::mutex> hold(text_lock);
    std::string line = text + " (simulated GPU, ACCELHOST_SIM_SEED=" + std::to_string(settings.seed) + ")";
    texts_of[code] = texts.insert(line).first->c_str();
}

CUcontext device_at(int ordinal)
{
    return ordinal >= 0 && ordinal < (int)devices.size() ? devices[(size_t)ordinal] : nullptr;
}

int device_count()
{
    return (int)devices.size();
}

/* Its number on the bus. */
int bus_of(int device)
{
    return settings.slices ? 1 : settings.number[device] + 1;
}

CUcontext device_of(const void *at)
{
    for (CUcontext device : devices)
        if (device->memory.has(at))
            return device;
    return nullptr;
}

int current(CUcontext *out)
{
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    *out = current_context;
    if (!current_context || !current_context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    return current_context->sticky;
}

/* Report memory that was not freed. */
__attribute__((destructor)) static void leave()
{
    for (CUcontext device : devices) {
        size_t bytes = 0, count = device->memory.count();
        for (const auto &entry : device->memory.blocks())
            bytes += entry.second.bytes;
        for (const auto &entry : device->memory.pieces())
            bytes += entry.second.bytes;
        count += device->memory.pieces().size();
        if (settings.leaks && count)
            fprintf(stderr, "simulated GPU: %zu allocation%s of cuda:%d, of %zu bytes in all, %s never freed\n", count,
                    count > 1 ? "s" : "", device->index, bytes, count > 1 ? "were" : "was");
    }
}
} // namespace sim

void CUctx_st::fail(int code, const std::string &text)
{
    int none = 0;
    if (sticky.compare_exchange_strong(none, code))
        sim::report(code, text);
}

void CUctx_st::check(bool freed, const std::string &after)
{
    std::string what;
    if (!sticky && !memory.check(freed, &what))
        fail(CUDA_ERROR_ILLEGAL_ADDRESS, after + ": " + what);
}

using namespace sim;

SIM_API CUresult cuInit(unsigned flags)
{
    Api hold(api);
    if (initialised)
        return 0;
    settings_read();
    for (int i = 0; i < settings.devices; i++) {
        CUcontext device = new CUctx_st;
        device->index = i;
        if (!device->memory.reserve(settings.memory))
            return CUDA_ERROR_OUT_OF_MEMORY;
        devices.push_back(device);
    }
    faults_install();
    initialised = true;
    return devices.empty() ? CUDA_ERROR_NO_DEVICE : 0;
}

SIM_API CUresult cuDriverGetVersion(int *version)
{
    *version = settings.driver;
    return 0;
}

SIM_API CUresult cuGetErrorName(CUresult error, const char **text)
{
    const Code *row = code_of(error);
    *text = row ? row->name : nullptr;
    return row ? 0 : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **text)
{
    std::lock_guard<std::mutex> hold(text_lock);
    const Code *row = code_of(error);
    auto more = texts_of.find(error);
    *text = more != texts_of.end() ? more->second : row ? row->text : nullptr;
    return *text ? 0 : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuDeviceGetCount(int *count)
{
    *count = device_count();
    return initialised ? 0 : CUDA_ERROR_NOT_INITIALIZED;
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return device_at(ordinal) ? 0 : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceGetName(char *name, int room, CUdevice device)
{
    if (!device_at(device) || room < 1)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)room, "simulated GPU");
    return 0;
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    count_call();
    *can = bus_of(device) != bus_of(peer);
    return device_at(device) && device_at(peer) ? 0 : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    if (flags || peer == context)
        return CUDA_ERROR_INVALID_VALUE;
    return context->peers.insert(peer->index).second ? 0 : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SIM_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    count_call();
    static const struct {
        int attribute, value;
    } rows[] = {
        {1, 1024},     {2, 1024},   {3, 1024},     {4, 64},     {5, 2147483647}, {6, 65535},  {7, 65535},
        {8, 48 * 1024}, {9, 65536}, {10, 32},      {12, 65536}, {13, 1000000},   {16, 4},     {18, 0},
        {31, 1},       {32, 0},     {34, 0},       {36, 1000000}, {37, 1024},    {38, 1 << 20}, {39, 2048},
        {40, 2},       {41, 1},     {50, 0},       {78, 1},     {81, 228 * 1024},
        {82, 65536},   {83, 0},     {97, 227 * 1024}, {102, 1}, {110, 0}, {106, 32}, {111, 1024},    {115, 0},
    };
    if (!device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == 33 ? bus_of(device) : -1;
    for (auto row : rows)
        if (row.attribute == attribute)
            *value = row.value;
    if (attribute == 75 || attribute == 76)
        *value = attribute == 75 ? settings.capability / 10 : settings.capability % 10;
    if (attribute == 87) /* how many floats are computed in the time of a double */
        *value = settings.slow_double ? 64 : 2;
    return *value < 0 ? CUDA_ERROR_INVALID_VALUE : 0;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    if (!device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = device_at(device)->memory.bytes();
    return 0;
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    if (!device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memset(uuid, 0, sizeof *uuid);
    memcpy(uuid->bytes, "simulated GPU", 13);
    uuid->bytes[15] = (char)settings.number[device];
    return 0;
}

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    Api hold(api);
    *context = device_at(device);
    if (!*context)
        return CUDA_ERROR_INVALID_DEVICE;
    (*context)->retained++;
    return 0;
}

/* The last release ends the context: streams, memory and a sticky error are freed. */
SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    Api hold(api);
    CUcontext context = device_at(device);
    if (!context)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--context->retained)
        return 0;
    while (!context->streams.empty())
        stream_end(context->streams.back());
    context->null_stream = nullptr;
    std::lock_guard<std::mutex> running(context->run);
    context->memory.release_all();
    context->sticky = 0;
    context->peers.clear();
    return 0;
}

SIM_API CUresult cuCtxSetCurrent(CUcontext context)
{
    count_call();
    if (!initialised)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (context && !context->retained)
        return CUDA_ERROR_INVALID_CONTEXT;
    current_context = context;
    return 0;
}
