/* Blocks are addresses in a mapping without access, so that code that reads one by mistake ends with SIGSEGV. They are
 * allocated consecutively, from the beginning again at the mapping's end: only the count of their bytes matters, which
 * are those of the CPU's blocks. */
#include "meta/device.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/status/status.h"
#include "ops/dispatch/op.h"
#include "optim/kernels.h"

struct meta {
    char *begin;
    size_t bytes, next;
    struct ah_memory_stats stats;
    pthread_mutex_t lock; /* helper threads release */
};

static struct meta meta = {.lock = PTHREAD_MUTEX_INITIALIZER};
static ah_kernel meta_kernels[AH_OP_COUNT + 1];

static int meta_count(void)
{
    return 1;
}

static int no_values(const char *what)
{
    return ah_fail(AH_EINVAL, "%s: a tensor on meta has a shape and no values", what);
}

/* Memory. */

static void *meta_reserve(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int meta_allocate(struct ah_device *device, size_t bytes, void **out)
{
    int status = 0;
    bool fits = bytes <= meta.bytes;
    size_t room = fits ? ah_block_room(bytes) : 0;
    AH_LOCK_SCOPE(&meta.lock);
    if (!fits || room > meta.bytes) {
        status = ah_fail(AH_ENOMEM, "meta: %zu bytes asked for, of addresses for %zu", bytes, meta.bytes);
    } else {
        if (room > meta.bytes - meta.next)
            meta.next = 0;
        *out = meta.begin + meta.next;
        meta.next += room;
        meta.stats.allocations++;
        meta.stats.live += room;
        meta.stats.peak = meta.stats.live > meta.stats.peak ? meta.stats.live : meta.stats.peak;
    }
    return status;
}

static void meta_release(struct ah_device *device, void *block, size_t bytes)
{
    AH_LOCK_SCOPE(&meta.lock);
    meta.stats.live -= ah_block_room(bytes);
}

static int meta_copy(struct ah_device *device, void *to, struct ah_device *to_device, const void *from,
                     struct ah_device *from_device, size_t bytes, void *stream)
{
    return to_device == &ah_cpu ? no_values("copy") : 0;
}

static int meta_fill(struct ah_device *device, void *to, int byte, size_t bytes)
{
    return 0;
}

static int meta_transpose(struct ah_device *device, void *to, const void *from, int64_t batch, int64_t rows,
                          int64_t columns, size_t item)
{
    return 0;
}

static int meta_synchronise(struct ah_device *device, void *stream)
{
    return 0;
}

/* Reset the peak; there is no cache to free. */
static void meta_trim(struct ah_device *device)
{
    meta.stats.peak = meta.stats.live;
}

static void memory_stats(struct ah_device *device, struct ah_memory_stats *stats)
{
    *stats = meta.stats;
}

/* Nothing is drawn, so the generator has one state. */

static void meta_seed(struct ah_device *device, uint64_t number)
{
}

static int get_state(struct ah_device *device, uint8_t *state)
{
    state[0] = 0;
    return 0;
}

static int set_state(struct ah_device *device, const uint8_t *state)
{
    return 0;
}

/* Kernels and optimizers. */

static int meta_nothing(struct ah_call *call)
{
    if (!call->out[0])
        return ah_fail(AH_EINVAL, "%s: the shape of the result depends on values, and a tensor on meta has none",
                       call->op->name);
    return 0;
}

/* The count of numbers as an index is the count of chosen elements; a mask would have to be read. */
static int index_positions(struct ah_call *call)
{
    const struct ah_tensor *index = ah_args(call, index_positions)->index.tensor;
    return index->dtype == AH_BOOL ? meta_nothing(call) : ah_call_output(call, 0, &index->numel, 1, AH_I64);
}

static int meta_step(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                     const struct ah_optim_segment *segment, int segments, enum ah_dtype dtype)
{
    return 0;
}

static int norm_sum(struct ah_device *device, const struct ah_optim_run *run, int runs, double p,
                    enum ah_dtype dtype, double *sum)
{
    return no_values("norm");
}

static int meta_change(struct ah_device *device, const struct ah_optim_run *run, int runs, double number,
                       enum ah_dtype dtype)
{
    return 0;
}

static int meta_scale(struct ah_device *device, const struct ah_optim_run *run, int runs, double number,
                      enum ah_dtype dtype, bool *overflow)
{
    return overflow ? no_values("unscale_") : 0;
}

static const struct ah_optim_kernels meta_optim = {
    .step = meta_step, .norm_sum = norm_sum, .scale = meta_scale, .clamp = meta_change};

static int meta_open(struct ah_device *device)
{
    for (int bits = 45; !meta.begin && bits >= 32; bits--) {
        meta.bytes = (size_t)1 << bits;
        meta.begin = meta_reserve(meta.bytes);
    }
    AH_TRY_MEMORY(meta.begin, "meta: no room for addresses");
    for (int i = 0; i < AH_OP_COUNT; i++)
        meta_kernels[i] = ah_cpu.kernels[i] ? meta_nothing : NULL;
    meta_kernels[AH_OP_index_positions] = index_positions;
    snprintf(device->name, sizeof device->name, "meta");
    device->kernels = meta_kernels;
    device->optim = &meta_optim;
    device->table = ah_cpu.table;
    return 0;
}

static void meta_close(struct ah_device *device)
{
    munmap(meta.begin, meta.bytes);
    meta.begin = NULL;
    meta.next = 0;
}

static const struct ah_device_type meta_type = {
    .abi = AH_DEVICE_ABI,
    .name = "meta",
    .count = meta_count,
    .open = meta_open,
    .close = meta_close,
    .allocate = meta_allocate,
    .release = meta_release,
    .copy = meta_copy,
    .fill = meta_fill,
    .transpose = meta_transpose,
    .synchronise = meta_synchronise,
    .state_bytes = 1,
    .seed = meta_seed,
    .get_state = get_state,
    .set_state = set_state,
    .memory_stats = memory_stats,
    .trim = meta_trim,
};

void ah_meta_open(void)
{
    ah_device_add_type(&meta_type);
}
