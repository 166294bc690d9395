/* The device type "cuda", as the host opens it (tensor/device.h): counting and opening devices, and their properties.
 * A device keeps its primary context, which libraries share, to the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver/api/property.h"
#include "cuda/driver/api/images.h"
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/memory/pinned.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/prefetch.h"
#include "cuda/driver/stream/graph.h"
#include "cuda/driver/stream/launch.h"
#include "cuda/driver/stream/event.h"
#include "cuda/driver/stream/philox.h"
#include "cuda/driver/stream/times.h"
#include "cuda/nccl/nccl_group.h"
#include "cuda/ops/linear/attention_dnn.h"
#include "cuda/ops/linear/conv.h"
#include "cuda/vendor/dnn_plan.h"
#include "cuda/vendor/matmul.h"
#include "cuda/vendor/nvml.h"
#include "cuda/vendor/nvtx.h"
#include "cuda/vendor/solver.h"
#include "ops/dispatch/op.h"
#include "ops/schema/table_text.h"

/* The release of the driver that begins a version of CUDA, as text. */
static const char *release_of(int version)
{
    return version == 13000 ? "580 " : version == 12040 ? "550 " : version == 12000 ? "525 " : "";
}

/* Open the driver and check that it can load the kernels. AH_EINVAL. */
static int open_usable_driver(void)
{
    AH_TRY(ah_cuda_driver_open());
    bool simulated = ah_cuda_is_simulated();
    int toolkit = simulated ? AH_CUDA_SIMULATED_TOOLKIT : ah_cuda_images_toolkit;
    int needed = simulated ? AH_CUDA_SIMULATED_TOOLKIT : ah_cuda_images_driver;
    int driver = ah_cuda_driver_version();
    if (driver >= needed)
        return 0;
    return ah_fail(AH_EINVAL,
                   "the kernels were built by CUDA %d.%d and need driver %s(CUDA %d.%d) or newer; this "
                   "driver is for CUDA %d.%d: update it, or build the kernels by CUDA 12 (make cuda)",
                   toolkit / 1000, toolkit % 1000 / 10, release_of(needed), needed / 1000, needed % 1000 / 10,
                   driver / 1000, driver % 1000 / 10);
}

static int cuda_count(void)
{
    int count = 0;
    if (open_usable_driver() < 0 || ah_cuda_check(ah_cuda.device_count(&count), "counting devices") < 0)
        return 0;
    return count < AH_CUDA_DEVICES ? count : AH_CUDA_DEVICES;
}

static const char *cuda_missing(void)
{
    int count;
    if (open_usable_driver() < 0 || ah_cuda_check(ah_cuda.device_count(&count), "counting devices") < 0)
        return ah_error_text();
    return count ? NULL : "the driver sees no device (is CUDA_VISIBLE_DEVICES empty?)";
}

static int cuda_attribute(CUdevice handle, CUdevice_attribute which)
{
    int value = 0;
    return ah_cuda.device_attribute(&value, which, handle) == CUDA_SUCCESS ? value : 0;
}

static int cuda_describe(int index, char *text, size_t room)
{
    AH_TRY(ah_cuda_driver_open());
    if (index < 0) {
        int version = ah_cuda_driver_version();
        const char *kernels = ah_cuda_images_for[0] ? ah_cuda_images_for : "not built (no nvcc)";
        snprintf(text, room, "%sdriver for CUDA %d.%d, kernels %s", ah_cuda_is_simulated() ? "simulated, " : "",
                 version / 1000, version % 1000 / 10, kernels);
        return 0;
    }
    CUdevice handle;
    char name[128];
    size_t bytes;
    AH_TRY(ah_cuda_check(ah_cuda.device_get(&handle, index), "device"));
    AH_TRY(ah_cuda_check(ah_cuda.device_name(name, sizeof name, handle), "its name"));
    AH_TRY(ah_cuda_check(ah_cuda.device_total_memory(&bytes, handle), "its memory"));
    snprintf(text, room, "%s, capability %d.%d, %d multiprocessors, %.1f GiB", name,
             cuda_attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
             cuda_attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
             cuda_attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), (double)bytes / (double)(1u << 30));
    return 0;
}

static void cuda_close(struct ah_device *device)
{
    struct ah_cuda_device *cuda = device->state;
    if (!cuda)
        return;
    if (cuda->context && ah_cuda_make_current(cuda) == 0) {
        ah_nccl_close_all(cuda);
        if (cuda->compute)
            ah_cuda.stream_synchronise(cuda->compute);
        ah_cuda_graphs_sweep(cuda);
        ah_cuda_matmul_forget(cuda);
        ah_cuda_dnn_forget(cuda);
        ah_cuda_attention_dnn_forget(cuda);
        ah_dnn_close(cuda);
        ah_solver_close(cuda);
        ah_cuda_prefetch_close(cuda->prefetch);
        ah_cuda_pinned_close(cuda->pinned);
        ah_cuda_faults_close(cuda);
        ah_cuda_times_close(cuda->times);
        ah_cuda_memory_close(cuda->memory);
        if (cuda->compute)
            ah_cuda.stream_destroy(cuda->compute);
        if (cuda->copy)
            ah_cuda.stream_destroy(cuda->copy);
        if (cuda->fetch)
            ah_cuda.stream_destroy(cuda->fetch);
        ah_cuda_launch_forget(cuda);
        ah_cuda_leave();
        ah_cuda.context_release(cuda->handle);
    }
    free(cuda);
    device->state = NULL;
}

static int read_random(struct ah_cuda_device *cuda)
{
    const char *where = getenv("ACCELHOST_CUDA_RANDOM");
    cuda->generator.of_cpu = cuda->device->draws_on_cpu = where && !strcmp(where, "cpu");
    if (where && *where && !cuda->generator.of_cpu && strcmp(where, "device") != 0)
        return ah_fail(AH_EINVAL, "ACCELHOST_CUDA_RANDOM: expected \"device\" or \"cpu\", got \"%s\"", where);
    return 0;
}

static int open_state(struct ah_cuda_device *cuda)
{
    const char *name = cuda->device->name;
    AH_TRY(read_random(cuda));
    AH_TRY(ah_cuda_attention_dnn_read());
    AH_TRY(ah_cuda_check(ah_cuda.device_get(&cuda->handle, cuda->ordinal), "%s", name));
    cuda->multiprocessors = cuda_attribute(cuda->handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    cuda->resident_blocks = cuda->multiprocessors *
                            (cuda_attribute(cuda->handle, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / 256);
    cuda->capability = 10 * cuda_attribute(cuda->handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                       cuda_attribute(cuda->handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    cuda->slow_double = cuda_attribute(cuda->handle, CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO) > 2;
    cuda->shared_limit = cuda_attribute(cuda->handle, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    AH_TRY(ah_cuda_check(ah_cuda.context_retain(&cuda->context, cuda->handle), "%s: its context", name));
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_check(ah_cuda.stream_create(&cuda->compute, CU_STREAM_NON_BLOCKING, 0), "%s: a stream", name));
    AH_TRY(ah_cuda_check(ah_cuda.stream_create(&cuda->copy, CU_STREAM_NON_BLOCKING, 0), "%s: a stream", name));
    AH_TRY(ah_cuda_memory_open(&cuda->memory, cuda));
    AH_TRY(ah_cuda_pinned_open(&cuda->pinned, cuda));
    AH_TRY(ah_cuda_prefetch_open(&cuda->prefetch, cuda));
    AH_TRY(ah_nvtx_open());
    return ah_cuda_times_open(cuda);
}

static int cuda_open(struct ah_device *device)
{
    struct ah_cuda_device *cuda = calloc(1, sizeof *cuda);
    AH_TRY_MEMORY(cuda, "out of memory");
    const char *waits = getenv("CUDA_LAUNCH_BLOCKING");
    cuda->device = device;
    cuda->ordinal = device->index;
    cuda->waits = waits && !strcmp(waits, "1");
    device->state = cuda;
    int status = open_usable_driver();
    status = status < 0 ? status : open_state(cuda);
    if (status < 0) {
        cuda_close(device);
        return status;
    }
    device->kernels = ah_cuda_kernels;
    device->optim = &ah_cuda_optim;
    device->table = ah_op_table_text;
    return 0;
}

static int cuda_allocate(struct ah_device *device, size_t bytes, void **out)
{
    return ah_cuda_memory_take(ah_cuda_state(device)->memory, bytes, out);
}

static void cuda_release(struct ah_device *device, void *block, size_t bytes)
{
    ah_cuda_memory_give(ah_cuda_state(device)->memory, block);
}

static void cuda_memory_stats(struct ah_device *device, struct ah_memory_stats *stats)
{
    ah_cuda_memory_stats(ah_cuda_state(device)->memory, stats);
}

static void cuda_reset_peak(struct ah_device *device)
{
    ah_cuda_memory_reset_peak(ah_cuda_state(device)->memory);
}

static void cuda_trim(struct ah_device *device)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    ah_cuda_prefetch_trim(cuda->prefetch);
    ah_cuda_pinned_trim(cuda->pinned);
    ah_cuda_memory_trim(cuda->memory);
}

static int cuda_memory_info(struct ah_device *device, size_t *available, size_t *total, size_t *pinned)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    AH_TRY(ah_cuda_enter(cuda));
    *pinned = ah_cuda_pinned_bytes(cuda->pinned);
    CUstreamCaptureMode mode = ah_cuda_relax();
    CUresult code = ah_cuda.memory_info(available, total);
    ah_cuda_tighten(mode);
    return ah_cuda_check(code, "%s: its memory", device->name);
}

extern const struct ah_device_type ah_device_plugin;
const struct ah_device_type ah_device_plugin = {
    .abi = AH_DEVICE_ABI,
    .name = "cuda",
    .count = cuda_count,
    .missing = cuda_missing,
    .describe = cuda_describe,
    .property = ah_cuda_property,
    .sensors = ah_nvml_sensors,
    .open = cuda_open,
    .close = cuda_close,
    .allocate = cuda_allocate,
    .collects = true,
    .release = cuda_release,
    .copy = ah_cuda_copy,
    .fill = ah_cuda_fill,
    .transpose = ah_cuda_transpose,
    .synchronise = ah_cuda_synchronise,
    .state_bytes = sizeof(struct ah_philox_state),
    .seed = ah_cuda_philox_seed,
    .get_state = ah_cuda_philox_get_state,
    .set_state = ah_cuda_philox_set_state,
    .memory_stats = cuda_memory_stats,
    .reset_peak = cuda_reset_peak,
    .trim = cuda_trim,
    .device_comm = &ah_nccl_comm_type,
    .graphs = &ah_cuda_graphs,
    .memory_info = cuda_memory_info,
    .prefetch = &ah_cuda_prefetch_functions,
    .events = &ah_cuda_event_functions,
    .times = &ah_cuda_time_functions,
    .report_ranges = ah_nvtx_report,
};
