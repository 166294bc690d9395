/* Modules are loaded once for each device, by file; a kernel's object remembers its function. The simulated GPU gets a
 * file's name instead of an image. */
#include "cuda/driver/stream/launch.h"

#include <stdio.h>
#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/api/images.h"
#include "cuda/driver/stream/capture.h"

enum { FILES = 64 };

/* Every kernel that was launched, by its object, to forget its functions. */
static struct ah_cuda_kernel *known_kernels;

static struct loaded {
    const char *file;
    int ordinal;
    CUmodule module;
} loaded_modules[FILES * AH_CUDA_DEVICES];
static int loaded_count;

/* Report a failed load: a remedy where the image is not one for this card or this driver. */
static int check_load(const struct ah_cuda_device *cuda, const char *file, CUresult code)
{
    const char *name = cuda->device->name;
    int driver = ah_cuda_driver_version();
    switch ((int)code) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return ah_cuda_check(code, "%s: the kernels (%s) do not fit this card of capability %d.%d: build them for it "
                             "(make CUDA_ARCHS=%d)", name, ah_cuda_images_for, cuda->capability / 10,
                             cuda->capability % 10, cuda->capability);
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return ah_cuda_check(code, "%s: the kernels (%s) cannot be loaded by this driver for CUDA %d.%d: update it, or "
                             "build them for this card (make CUDA_ARCHS=%d) by a toolkit no newer than the driver",
                             name, ah_cuda_images_for, driver / 1000, driver % 1000 / 10, cuda->capability);
    default:
        return ah_cuda_check(code, "%s: loading the kernels of %s", name, file);
    }
}

static int launch_load(struct ah_cuda_device *cuda, const char *file, CUmodule *out)
{
    for (int i = 0; i < loaded_count; i++) {
        if (loaded_modules[i].ordinal == cuda->ordinal && !strcmp(loaded_modules[i].file, file)) {
            *out = loaded_modules[i].module;
            return 0;
        }
    }
    const char *name = cuda->device->name;
    const void *image = ah_cuda_is_simulated() ? file : NULL;
    for (const struct ah_cuda_image *at = ah_cuda_images; !image && at->file; at++)
        if (!strcmp(at->file, file))
            image = at->data;
    if (!image)
        return ah_fail(AH_ENOTIMPL, "%s: this build has no CUDA kernels (make found no NVIDIA driver or no nvcc): "
                       "build it again with `make cuda`, or with nvcc and `make CUDA_ARCHS=90`", name);
    if (loaded_count == (int)(sizeof loaded_modules / sizeof loaded_modules[0]))
        return ah_fail(AH_ESTATE, "%s: more than %d files of kernels", name, FILES);
    AH_TRY(check_load(cuda, file, ah_cuda.module_load(out, image)));
    loaded_modules[loaded_count++] = (struct loaded){file, cuda->ordinal, *out};
    return 0;
}

static int launch_find(struct ah_cuda_device *cuda, struct ah_cuda_kernel *kernel, const char *op_name)
{
    CUmodule module;
    /* Lazy loading copies a function's code to the device at its first use, which a capture forbids as well. */
    CUstreamCaptureMode mode = ah_cuda_relax();
    int status = launch_load(cuda, kernel->file, &module);
    if (status == 0)
        status = ah_cuda_check(ah_cuda.module_function(&kernel->on[cuda->ordinal], module, kernel->name),
                               "%s: %s: kernel %s", cuda->device->name, op_name, kernel->name);
    ah_cuda_tighten(mode);
    if (status == 0 && !kernel->known) {
        kernel->known = true;
        kernel->next = known_kernels;
        known_kernels = kernel;
    }
    return status;
}

void ah_cuda_launch_forget(const struct ah_cuda_device *cuda)
{
    for (struct ah_cuda_kernel *kernel = known_kernels; kernel; kernel = kernel->next) {
        kernel->on[cuda->ordinal] = NULL;
        kernel->shared_bytes[cuda->ordinal] = 0;
    }
    int kept = 0;
    for (int i = 0; i < loaded_count; i++) {
        if (loaded_modules[i].ordinal == cuda->ordinal)
            ah_cuda.module_unload(loaded_modules[i].module);
        else
            loaded_modules[kept++] = loaded_modules[i];
    }
    loaded_count = kept;
}

/* More dynamic shared memory than 48 KiB has to be asked for. */
static int allow_shared(struct ah_cuda_device *cuda, struct ah_cuda_kernel *kernel, unsigned bytes)
{
    int *allowed = &kernel->shared_bytes[cuda->ordinal];
    if (bytes <= 48 * 1024 || (int)bytes <= *allowed)
        return 0;
    AH_TRY(ah_cuda_check(ah_cuda.function_set(kernel->on[cuda->ordinal],
                                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
                         "%s: kernel %s: %u bytes of shared memory", cuda->device->name, kernel->name, bytes));
    *allowed = (int)bytes;
    return 0;
}

int ah_cuda_launch_sized(struct ah_device *device, struct ah_cuda_kernel *kernel, const char *op_name,
                         struct ah_cuda_grid grid, const void *args, size_t size)
{
    return ah_cuda_launch_working(device, kernel, op_name, grid, args, size, (struct ah_cuda_work){0});
}

int ah_cuda_launch_working(struct ah_device *device, struct ah_cuda_kernel *kernel, const char *op_name,
                           struct ah_cuda_grid grid, const void *args, size_t size, struct ah_cuda_work work)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    AH_TRY(ah_cuda_enter(cuda));
    if (!kernel->on[cuda->ordinal])
        AH_TRY(launch_find(cuda, kernel, op_name));
    AH_TRY(allow_shared(cuda, kernel, grid.shared_bytes));
    if (size > 4096)
        return ah_fail(AH_ESTATE, "%s: kernel %s: %zu bytes of arguments", op_name, kernel->name, size);
    AH_TRY(ah_cuda_capture_see(cuda, args, size));
    if (cuda->revised)
        return ah_fail(AH_ESTATE, "%s: kernel %s is none of the captured step", op_name, kernel->name);
    /* The driver copies the arguments before it returns, and writes none of them. */
    void *values[] = {(void *)(uintptr_t)args};
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, op_name, kernel->name);
    CUresult code = ah_cuda.launch(kernel->on[cuda->ordinal], grid.blocks, 1, 1, grid.threads, 1, 1, grid.shared_bytes,
                                   cuda->compute, values, NULL);
    AH_TRY(ah_cuda_check(code, "%s: %s: kernel %s (%u blocks of %u threads)", device->name, op_name, kernel->name,
                         grid.blocks, grid.threads));
    ah_cuda_span_end(cuda, span, work);
    if (!cuda->waits || cuda->capturing)
        return 0;
    return ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: %s: kernel %s", device->name, op_name,
                         kernel->name);
}

unsigned ah_cuda_blocks(int64_t items, int64_t each)
{
    enum { MOST = 4096 };
    int64_t blocks = (items + each - 1) / each;
    return blocks < 1 ? 1 : blocks > MOST ? MOST : (unsigned)blocks;
}

unsigned ah_cuda_threads(int64_t items, unsigned most)
{
    enum { WARP = 32 };
    return items > most - WARP ? most : items < 1 ? WARP : ((unsigned)items + WARP - 1) / WARP * WARP;
}
