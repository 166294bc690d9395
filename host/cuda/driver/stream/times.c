/* Events are in a ring of PAIRS. When it is full the host waits for the last pair and adds all of them up, so
 * a recording of any length needs the same memory; that wait is after the launches it counts and changes no time. */
#include "cuda/driver/stream/times.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"

enum { PAIRS = 1024 };

struct pair {
    CUevent before, after;
    size_t row;
    struct ah_cuda_work work;
};

struct ah_cuda_times {
    bool on;
    struct pair pair[PAIRS];
    int made, used; /* pairs with events; pairs of launches that are not added up yet */
    struct ah_device_time *row;
    size_t rows, room;
    double peak[AH_RATES]; /* operations in a microsecond at the highest clock; 0: not known */
};

/* Dense operations of a multiprocessor in a clock, by compute capability: by NVIDIA's papers on each architecture, not
 * measured. Of 8.6, 8.9 and 12.0 those of professional cards; GeForce cards do halves and TF32 at half of that rate. */
static const struct {
    int capability;
    double operations[AH_RATES];
} times_rates[] = {
    {70, {[AH_RATE_HALF] = 1024, [AH_RATE_F32] = 128, [AH_RATE_F64] = 64}},
    {75, {[AH_RATE_HALF] = 1024, [AH_RATE_F32] = 128, [AH_RATE_F64] = 4}},
    {80, {[AH_RATE_HALF] = 2048, [AH_RATE_TF32] = 1024, [AH_RATE_F32] = 128, [AH_RATE_F64] = 128}},
    {86, {[AH_RATE_HALF] = 1024, [AH_RATE_TF32] = 512, [AH_RATE_F32] = 256, [AH_RATE_F64] = 4}},
    {89, {[AH_RATE_HALF] = 1024, [AH_RATE_TF32] = 512, [AH_RATE_F32] = 256, [AH_RATE_F64] = 4}},
    {90, {[AH_RATE_HALF] = 4096, [AH_RATE_TF32] = 2048, [AH_RATE_F32] = 256, [AH_RATE_F64] = 256}},
    {100, {[AH_RATE_HALF] = 8192, [AH_RATE_TF32] = 4096, [AH_RATE_F32] = 256, [AH_RATE_F64] = 128}},
    {120, {[AH_RATE_HALF] = 1024, [AH_RATE_TF32] = 512, [AH_RATE_F32] = 256, [AH_RATE_F64] = 4}},
};

static void times_find_peak(struct ah_cuda_times *times, const struct ah_cuda_device *cuda)
{
    int kilohertz = 0;
    if (ah_cuda.device_attribute(&kilohertz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, cuda->handle) != CUDA_SUCCESS)
        return;
    for (size_t i = 0; i < sizeof times_rates / sizeof times_rates[0]; i++)
        for (int rate = 0; rate < AH_RATES && times_rates[i].capability == cuda->capability; rate++)
            times->peak[rate] = times_rates[i].operations[rate] * cuda->multiprocessors * kilohertz / 1e3;
}

static size_t times_row(struct ah_cuda_times *times, const char *op, const char *kernel)
{
    for (size_t i = 0; i < times->rows; i++)
        if (!strcmp(times->row[i].op, op) && !strcmp(times->row[i].kernel, kernel))
            return i;
    if (ah_grow(&times->row, times->rows + 1, &times->room, sizeof times->row[0]) < 0)
        return SIZE_MAX;
    times->row[times->rows] = (struct ah_device_time){.op = op, .kernel = kernel};
    return times->rows++;
}

/* Wait for the last launch and add all pairs to their rows. A pair whose time cannot be had is left out. */
static void times_collect(struct ah_cuda_times *times)
{
    if (times->used)
        ah_cuda.event_synchronise(times->pair[times->used - 1].after);
    for (int i = 0; i < times->used; i++) {
        const struct pair *pair = &times->pair[i];
        float milliseconds = 0;
        if (ah_cuda.event_elapsed(&milliseconds, pair->before, pair->after) != CUDA_SUCCESS)
            continue;
        struct ah_device_time *row = &times->row[pair->row];
        row->count++;
        row->microseconds += 1e3 * milliseconds;
        row->bytes += pair->work.bytes;
        row->operations += pair->work.operations;
        double peak = times->peak[pair->work.rate];
        row->least_microseconds += peak > 0 ? pair->work.operations / peak : 0;
    }
    times->used = 0;
}

static bool times_make(struct ah_cuda_times *times)
{
    struct pair *pair = &times->pair[times->made];
    if (ah_cuda.event_create(&pair->before, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    if (ah_cuda.event_create(&pair->after, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        ah_cuda.event_destroy(pair->before);
        return false;
    }
    times->made++;
    return true;
}

struct ah_cuda_span ah_cuda_span_begin(struct ah_cuda_device *cuda, const char *op, const char *kernel)
{
    struct ah_cuda_times *times = cuda->times;
    struct ah_cuda_span none = {-1};
    if (!times || !times->on || cuda->capturing)
        return none;
    if (times->used == PAIRS)
        times_collect(times);
    size_t row = times_row(times, op, kernel);
    if (row == SIZE_MAX || (times->used == times->made && !times_make(times)))
        return none;
    struct pair *pair = &times->pair[times->used];
    pair->row = row;
    if (ah_cuda.event_record(pair->before, cuda->compute) != CUDA_SUCCESS)
        return none;
    return (struct ah_cuda_span){times->used};
}

void ah_cuda_span_end(struct ah_cuda_device *cuda, struct ah_cuda_span span, struct ah_cuda_work work)
{
    if (span.pair < 0)
        return;
    struct pair *pair = &cuda->times->pair[span.pair];
    pair->work = work;
    if (ah_cuda.event_record(pair->after, cuda->compute) == CUDA_SUCCESS)
        cuda->times->used = span.pair + 1;
}

static int times_start(struct ah_device *device)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    if (!cuda->times && !(cuda->times = calloc(1, sizeof *cuda->times)))
        return ah_fail(AH_ENOMEM, "out of memory");
    times_find_peak(cuda->times, cuda);
    cuda->times->on = true;
    cuda->times->rows = 0;
    cuda->times->used = 0;
    return 0;
}

static int times_stop(struct ah_device *device)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    if (!cuda->times)
        return 0;
    AH_TRY(ah_cuda_enter(cuda));
    cuda->times->on = false;
    times_collect(cuda->times);
    return 0;
}

static bool times_read(struct ah_device *device, size_t i, struct ah_device_time *out)
{
    const struct ah_cuda_times *times = ah_cuda_state(device)->times;
    if (!times || i >= times->rows)
        return false;
    *out = times->row[i];
    return true;
}

int ah_cuda_times_open(struct ah_cuda_device *cuda)
{
    const char *asked = getenv("ACCELHOST_CUDA_TIMES");
    return asked && !strcmp(asked, "1") ? times_start(cuda->device) : 0;
}

void ah_cuda_times_close(struct ah_cuda_times *times)
{
    if (!times)
        return;
    for (int i = 0; i < times->made; i++) {
        ah_cuda.event_destroy(times->pair[i].before);
        ah_cuda.event_destroy(times->pair[i].after);
    }
    free(times->row);
    free(times);
}

const struct ah_time_functions ah_cuda_time_functions = {.start = times_start, .stop = times_stop, .read = times_read};
