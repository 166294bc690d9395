/* The CUDA plugin's allocator on the simulated GPU: memory that a second stream uses. In a separate
 * process, since the simulator's threads stay. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/plugin.h"
#include "cpu/device.h"
#include "cuda/driver/memory/memory.h"
#include "test.h"

enum { BYTES = 4 << 20, FILLS = 40, TURNS = 10 };

/* Of the plugin, which nothing else is linked with. */
struct plugin {
    struct ah_cuda_driver *calls;
    int (*used_on)(struct ah_cuda_memory *memory, const void *block, CUstream stream);
    struct ah_device *device;
};

static bool open_plugin(struct plugin *plugin)
{
    char path[4096];
    setenv("ACCELHOST_CUDA", "sim", 1);
    ah_cpu_open();
    if (ah_device_find("cuda:0", &plugin->device) < 0 || !ah_plugin_find("cuda", path, sizeof path))
        return false;
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    plugin->calls = library ? dlsym(library, "ah_cuda") : NULL;
    void *used_on = library ? dlsym(library, "ah_cuda_memory_used_on") : NULL;
    memcpy(&plugin->used_on, &used_on, sizeof used_on);
    return plugin->calls && used_on;
}

/* Is a block that was released while `stream` writes to it handed out again at once? Below 0: an error. */
static int comes_back(const struct plugin *plugin, CUstream stream, bool reports, bool waits)
{
    struct ah_device *device = plugin->device;
    void *block, *next;
    AH_TRY(ah_device_allocate(device, BYTES, &block));
    for (int i = 0; i < FILLS; i++)
        plugin->calls->fill_bytes((CUdeviceptr)(uintptr_t)block, (unsigned char)i, BYTES, stream);
    if (reports)
        AH_TRY(plugin->used_on(ah_cuda_state(device)->memory, block, stream));
    device->type->release(device, block, BYTES);
    if (waits)
        plugin->calls->stream_synchronise(stream);
    AH_TRY(ah_device_allocate(device, BYTES, &next));
    plugin->calls->stream_synchronise(stream);
    device->type->release(device, next, BYTES);
    return next == block;
}

/* 0, or the number of the failed expectation. */
static int memory_run(void)
{
    struct plugin plugin;
    CUstream stream;
    if (!open_plugin(&plugin))
        return 0; /* the simulator was not built */
    if (plugin.calls->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
        return 1;
    if (comes_back(&plugin, stream, false, false) != 1) /* not reported */
        return 2;
    /* On a busy machine the stream may be through with it before we ask. */
    int same = 1;
    for (int turn = 0; turn < TURNS && same == 1; turn++)
        same = comes_back(&plugin, stream, true, false);
    if (same != 0)
        return 3;
    return comes_back(&plugin, stream, true, true) == 1 ? 0 : 4;
}

AH_TEST(memory_used_on_another_stream_waits_for_it)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(memory_run());
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_NEAR(WEXITSTATUS(status), 0, 0);
}
