/* Modules and launches. A module's image is the name of the file that contains its kernels. */
#include "state.h"

#include <algorithm>
#include <string.h>

#include "engine.h"

namespace sim
{
static const Kernel *kernels;

Kernel::Kernel(const char *its_name, const char *its_file, void (*its_run)(const void *), size_t bytes,
               unsigned threads)
    : name(its_name), file(its_file), run(its_run), argument_bytes(bytes), max_threads(threads), next(kernels)
{
    kernels = this;
}

static bool stands_in(const Kernel *kernel, const std::string &file)
{
    const char *slash = strrchr(kernel->file, '/');
    const char *base = slash ? slash + 1 : kernel->file;
    return file.compare(0, std::string::npos, base, strcspn(base, ".")) == 0;
}

/* A launch on its way: the arguments are the kernel's own copy. */
struct Pending {
    Launch launch;
    std::vector<char> arguments;
};

/* All of a device's blocks; kept from launch to launch, since it is large. */
struct Snapshot {
    std::vector<Range::Block> blocks;
    std::vector<char> bytes;

    void take(CUcontext context)
    {
        blocks.clear();
        bytes.clear();
        for (const auto *map : {&context->memory.blocks(), &context->memory.pieces()})
            for (const auto &entry : *map) {
                const Range::Block &block = entry.second;
                blocks.push_back(block);
                bytes.insert(bytes.end(), block.at, block.at + block.bytes);
            }
    }
    void put_back() const
    {
        const char *at = bytes.data();
        for (const Range::Block &block : blocks) {
            memcpy(block.at, at, block.bytes);
            at += block.bytes;
        }
    }
    /* The block that has changed, and its first byte that has; null when none has. */
    const Range::Block *changed(size_t *byte) const
    {
        const char *at = bytes.data();
        for (const Range::Block &block : blocks) {
            if (memcmp(block.at, at, block.bytes)) {
                *byte = (size_t)(std::mismatch(at, at + block.bytes, block.at).first - at);
                return &block;
            }
            at += block.bytes;
        }
        return nullptr;
    }
};

static bool run_once(CUcontext context, Launch launch, Launch::Order order)
{
    Failure failure;
    launch.order = order;
    if (Engine::mine().run(launch, &failure))
        return true;
    context->fail(failure.code, failure.text);
    return false;
}

/* In two opposite orders from the same memory: a difference depends on the order of threads that nothing orders. */
static void run_twice(CUcontext context, const Launch &launch)
{
    static Snapshot &before = *new Snapshot, &after = *new Snapshot;
    static std::mutex &lock = *new std::mutex; /* of the two: devices run concurrently */
    std::lock_guard<std::mutex> hold(lock);
    before.take(context);
    if (!run_once(context, launch, Launch::FORWARD))
        return;
    after.take(context);
    before.put_back();
    if (!run_once(context, launch, Launch::REVERSED))
        return;
    size_t byte = 0;
    if (const Range::Block *block = after.changed(&byte))
        context->fail(CUDA_ERROR_LAUNCH_FAILED,
                      std::string("kernel ") + launch.kernel->name +
                          ": the result depends on the order of its threads (is a barrier missing?): byte " +
                          std::to_string(byte) + " of an allocation of " + std::to_string(block->bytes) + " bytes");
}

static void carry_out_launch(CUcontext context, const Pending &pending, uint64_t seed)
{
    Launch launch = pending.launch;
    launch.arguments = pending.arguments.data();
    launch.seed = seed;
    if (settings.twice)
        run_twice(context, launch);
    else
        run_once(context, launch, Launch::DRAWN);
    context->check(false, std::string("kernel ") + launch.kernel->name);
}

/* The blocks whose addresses are among the arguments. */
static void note_used(CUcontext context, const std::vector<char> &arguments, Graph *graph)
{
    std::lock_guard<std::mutex> running(context->run);
    for (size_t at = 0; at + sizeof(uint64_t) <= arguments.size(); at += sizeof(uint64_t)) {
        uintptr_t word;
        memcpy(&word, arguments.data() + at, sizeof word);
        const Range::Block *block = context->memory.find(reinterpret_cast<const void *>(word), 1);
        if (block)
            graph->used.push_back({block->at, block->bytes, block->number});
    }
}

/* The arguments, as an array of one pointer or as a buffer; null when they are neither. */
static const void *arguments_of(const Kernel *kernel, void **params, void **extra)
{
    if (params && !extra)
        return params[0];
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (int i = 0; extra && extra[i]; i += 2) {
        if (extra[i] == (void *)1)
            buffer = extra[i + 1];
        else if (extra[i] == (void *)2)
            bytes = *static_cast<size_t *>(extra[i + 1]);
    }
    return bytes == kernel->argument_bytes ? buffer : nullptr;
}

static const char *refuse_launch(const CUfunc_st *function, const Launch &launch)
{
    uint64_t threads = (uint64_t)launch.block.x * launch.block.y * launch.block.z;
    if (!launch.grid.x || !launch.grid.y || !launch.grid.z || !threads)
        return "a grid or block without threads";
    if (launch.grid.x > 2147483647u || launch.grid.y > 65535 || launch.grid.z > 65535)
        return "a grid that is too large";
    if (launch.block.x > 1024 || launch.block.y > 1024 || launch.block.z > 64 || threads > 1024)
        return "a block that is too large";
    if (threads > function->kernel->max_threads)
        return "more threads than the kernel is made for";
    if (launch.dynamic_bytes > (size_t)function->dynamic_limit)
        return "more dynamic shared memory than cuFuncSetAttribute has allowed";
    return nullptr;
}
} // namespace sim

using namespace sim;

SIM_API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    if (int code = refuse_in_capture())
        return code;
    if (fault_now(FAULT_LOAD))
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    std::string file(static_cast<const char *>(image));
    const Kernel *kernel = kernels;
    while (kernel && !stands_in(kernel, file))
        kernel = kernel->next;
    if (!kernel)
        return CUDA_ERROR_INVALID_IMAGE;
    *out = new CUmod_st{context, file, {}};
    return 0;
}

SIM_API CUresult cuModuleUnload(CUmodule module)
{
    Api hold(api);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (CUfunction function : module->functions)
        delete function;
    delete module;
    return 0;
}

/* A driver that loads lazily copies the function's code to the device now. */
SIM_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    Api hold(api);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (int code = refuse_in_capture())
        return code;
    const Kernel *kernel = kernels;
    while (kernel && (strcmp(kernel->name, name) || !stands_in(kernel, module->file)))
        kernel = kernel->next;
    if (!kernel)
        return CUDA_ERROR_NOT_FOUND;
    *out = new CUfunc_st{module, kernel, STATIC_LIMIT};
    module->functions.push_back(*out);
    return 0;
}

SIM_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    count_call();
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > SHARED_LIMIT)
        return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_limit = value;
    return 0;
}

SIM_API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    count_call();
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case 0: /* threads of a block */
        *value = (int)function->kernel->max_threads;
        return 0;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = 0;
        return 0;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return 0;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->dynamic_limit;
        return 0;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                CUstream handle, void **params, void **extra)
{
    Api hold(api);
    CUstream stream;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!function || function->module->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    const Kernel *kernel = function->kernel;
    const char *arguments = static_cast<const char *>(arguments_of(kernel, params, extra));
    Launch launch = {kernel, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, nullptr, 0,
                     Launch::DRAWN};
    const char *refused = arguments ? refuse_launch(function, launch) : "arguments that are not the kernel's struct";
    if (refused) {
        report(CUDA_ERROR_INVALID_VALUE, std::string("kernel ") + kernel->name + ": " + refused);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUcontext context = stream->context;
    if (fault_now(FAULT_LAUNCH)) {
        std::string text = std::string("kernel ") + kernel->name + " failed, as ACCELHOST_SIM_FAIL asked";
        return stream_give(stream, {[=] { context->fail(CUDA_ERROR_LAUNCH_FAILED, text); }, true});
    }
    if (fault_now(FAULT_ECC))
        return stream_give(stream, {[=] { context->fail(CUDA_ERROR_ECC_UNCORRECTABLE,
                                                        "uncorrectable ECC error encountered"); }, true});
    Pending pending = {launch, std::vector<char>(arguments, arguments + kernel->argument_bytes)};
    if (stream->capture)
        note_used(context, pending.arguments, &stream->capture->graph);
    return stream_give(stream, {[=] { carry_out_launch(context, pending, stream->random.next()); }, true});
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                             size_t shared_bytes)
{
    count_call();
    if (!function || threads < 1)
        return CUDA_ERROR_INVALID_VALUE;
    int by_threads = 2048 / threads, by_shared = (int)((SHARED_LIMIT + 1024) / (shared_bytes + 1024));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    return 0;
}
