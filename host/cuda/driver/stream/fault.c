/* A fault is stored in one block of the device; the ticket in it leads to the note of the check that found it. */
#include "cuda/driver/stream/fault.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/kernels/index/fault.h"

/* Number of checks whose notes are kept. */
enum { NOTES = 1024, TEXT = 96 };

struct note {
    uint64_t ticket;
    const char *op_name, *what, *expected;
    int64_t low, high;
    enum { INDEX, SHARE, COUNT } kind;
    char place[TEXT]; /* " (dim 0 of (5, 2))"; of a count the shape of the candidates: "(5, 2)" */
};

struct ah_cuda_faults {
    void *block; /* struct ah_fault */
    uint64_t ticket;
    bool now, pending;
    struct note note[NOTES];
    struct note *kept; /* of checks in graphs */
    size_t kept_count, kept_room;
    uint64_t captured_from; /* the ticket before the first check of the capture under way */
};

static struct ah_cuda_kernel index_kernel = AH_CUDA_KERNEL("fault", "fault_index");
static struct ah_cuda_kernel share_kernel[] = AH_CUDA_REALS("fault", "fault_share");

static bool reports_now(const struct ah_cuda_device *cuda)
{
    const char *when = getenv("ACCELHOST_CUDA_CHECKS");
    return cuda->waits || (when ? !strcmp(when, "now") : ah_cuda_is_simulated());
}

static int open_faults(struct ah_cuda_device *cuda)
{
    struct ah_cuda_faults *faults = calloc(1, sizeof *faults);
    AH_TRY_MEMORY(faults, "out of memory");
    faults->now = reports_now(cuda);
    int status = ah_cuda_memory_take(cuda->memory, sizeof(struct ah_fault), &faults->block);
    if (status == 0)
        status = cuda->device->type->fill(cuda->device, faults->block, 0, sizeof(struct ah_fault));
    if (status < 0)
        free(faults);
    else
        cuda->faults = faults;
    return status;
}

void ah_cuda_faults_close(struct ah_cuda_device *cuda)
{
    if (!cuda->faults)
        return;
    ah_cuda_memory_give(cuda->memory, cuda->faults->block);
    free(cuda->faults->kept);
    free(cuda->faults);
    cuda->faults = NULL;
}

static int fault_fail(const struct note *note, const struct ah_fault *fault)
{
    char value[40];
    long long at = (long long)~fault->rest;
    if (note->kind == COUNT)
        return ah_fail(AH_EINVAL, "%s: the mask wants %lld values, source %s has %lld", note->op_name,
                       (long long)fault->integer, note->place, (long long)note->high);
    if (note->kind == SHARE)
        snprintf(value, sizeof value, "%g", fabs(fault->number) >= 0 ? fault->number : NAN);
    else
        snprintf(value, sizeof value, "%lld", (long long)fault->integer);
    if (note->expected)
        return ah_fail(AH_EINVAL, "%s: expected %s, got %s at position %lld", note->op_name, note->expected, value,
                       at);
    return ah_fail(AH_EINVAL, "%s: %s %s at position %lld is outside %lld..%lld%s", note->op_name, note->what, value,
                   at, (long long)note->low, (long long)note->high, note->place);
}

int ah_cuda_raise_fault(struct ah_cuda_device *cuda)
{
    struct ah_cuda_faults *faults = cuda->faults;
    struct ah_fault fault;
    if (!faults || !faults->pending || cuda->capturing)
        return 0;
    faults->pending = false;
    AH_TRY(ah_device_copy(&fault, &ah_cpu, faults->block, cuda->device, sizeof fault));
    if (fault.ticket == 0)
        return 0;
    AH_TRY(cuda->device->type->fill(cuda->device, faults->block, 0, sizeof fault));
    const struct note *note = &faults->note[fault.ticket % NOTES];
    for (size_t i = 0; note->ticket != fault.ticket && i < faults->kept_count; i++)
        note = &faults->kept[i];
    if (note->ticket == fault.ticket)
        return fault_fail(note, &fault);
    return ah_fail(AH_EINVAL, "%s: an index or label at position %lld of an earlier op is out of range "
                  "(CUDA_LAUNCH_BLOCKING=1 reports which)", cuda->device->name, (long long)~fault.rest);
}

static int fault_check(struct ah_device *device, struct ah_cuda_kernel *kernel, const struct note *what,
                       const struct ah_tensor *numbers, int64_t other)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    if (numbers->numel == 0)
        return 0;
    if (!cuda->faults)
        AH_TRY(open_faults(cuda));
    struct ah_cuda_faults *faults = cuda->faults;
    uint64_t ticket = ++faults->ticket;
    struct ah_fault_args args = {.x = ah_cuda_data(numbers),
                                 .fault = ah_cuda_address(faults->block), .ticket = ticket, .n = numbers->numel,
                                 .low = what->low, .high = what->high, .other = other};
    struct note *note = &faults->note[ticket % NOTES];
    *note = *what;
    note->ticket = ticket;
    if (cuda->capturing) {
        AH_TRY(ah_grow(&faults->kept, faults->kept_count + 1, &faults->kept_room, sizeof faults->kept[0]));
        faults->kept[faults->kept_count++] = *note;
    }
    unsigned blocks = ah_cuda_blocks(numbers->numel, AH_FAULT_THREADS * AH_FAULT_EACH);
    struct ah_cuda_grid grid = {blocks < AH_FAULT_BLOCKS ? blocks : AH_FAULT_BLOCKS,
                                ah_cuda_threads(numbers->numel, AH_FAULT_THREADS), 0};
    AH_TRY(ah_cuda_launch(device, kernel, what->op_name, grid, &args));
    if (cuda->capturing)
        return 0;
    faults->pending = true;
    return faults->now ? ah_cuda_raise_fault(cuda) : 0;
}

int ah_cuda_faults_capture(struct ah_cuda_device *cuda)
{
    if (!cuda->faults)
        AH_TRY(open_faults(cuda));
    cuda->faults->captured_from = cuda->faults->ticket;
    return 0;
}

bool ah_cuda_faults_captured(struct ah_cuda_device *cuda)
{
    return cuda->faults->ticket != cuda->faults->captured_from;
}

int ah_cuda_faults_replayed(struct ah_cuda_device *cuda)
{
    cuda->faults->pending = true;
    return cuda->faults->now ? ah_cuda_raise_fault(cuda) : 0;
}

int ah_cuda_expect_within(struct ah_device *device, const struct ah_cuda_bounds *bounds,
                          const struct ah_tensor *numbers)
{
    struct note note = {.op_name = bounds->op_name, .what = bounds->what, .low = bounds->low, .high = bounds->high};
    if (bounds->of)
        snprintf(note.place, sizeof note.place, " (dim %d of %s)", bounds->dim, ah_shape(bounds->of));
    return fault_check(device, &index_kernel, &note, numbers, bounds->other);
}

int ah_cuda_expect_shares(struct ah_device *device, const char *op_name, const char *what,
                          const struct ah_tensor *numbers)
{
    struct note note = {.op_name = op_name, .what = what, .high = 1, .kind = SHARE};
    return fault_check(device, &share_kernel[numbers->dtype], &note, numbers, 0);
}

int ah_cuda_expect_enough(struct ah_device *device, const char *op_name, const struct ah_tensor *counts,
                          const struct ah_tensor *source)
{
    struct note note = {.op_name = op_name, .kind = COUNT, .high = source->numel};
    struct ah_tensor last = *counts;
    last.offset += counts->numel - 1;
    last.numel = 1;
    snprintf(note.place, sizeof note.place, "%s", ah_shape(source));
    return fault_check(device, &index_kernel, &note, &last, 0);
}

int ah_cuda_expect_numbers(struct ah_device *device, const char *op_name, const char *expected, int64_t high,
                           const struct ah_tensor *numbers)
{
    struct note note = {.op_name = op_name, .expected = expected, .high = high, .kind = SHARE};
    return fault_check(device, &share_kernel[numbers->dtype], &note, numbers, 0);
}
