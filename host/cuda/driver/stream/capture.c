/* Numbers have places in one block of the device's memory, in the order in which a capture asked for them; a revision
 * asks in the same order. */
#include "cuda/driver/stream/capture.h"

#include <string.h>

#include "base/memory/array.h"
#include "base/trace/counters.h"
#include "cuda/driver/memory/memory.h"
#include "ops/dispatch/op.h"

enum { ALIGN = 16 };

static uint64_t hash_of(const void *bytes, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

int ah_cuda_capture_refuse(const struct ah_cuda_device *cuda, const char *what, const char *remedy)
{
    if (!cuda->capturing)
        return 0;
    int op = atomic_load_explicit(&ah_counters->op, memory_order_relaxed);
    const char *name = op ? ah_op_get((enum ah_opid)(op - 1))->name : "";
    return ah_fail(AH_ESTATE, "%s%s%s cannot be captured in a graph; %s", name, op ? ": " : "", what, remedy);
}

int ah_cuda_capture_see(struct ah_cuda_device *cuda, const void *words, size_t bytes)
{
    return cuda->capturing ? ah_cuda_pool_see(cuda->memory, words, bytes) : 0;
}

static int add_numbers(struct ah_cuda_capture *capture, uint64_t same, const void *numbers, size_t bytes, uint64_t *at)
{
    size_t offset = (capture->value_bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (offset + bytes > AH_CAPTURE_NUMBERS)
        return ah_fail(AH_ESTATE, "a captured step has more than %d bytes of numbers that change: its optimizers have "
                       "too many parameters", AH_CAPTURE_NUMBERS);
    AH_TRY(ah_grow(&capture->place, capture->count + 1, &capture->room, sizeof capture->place[0]));
    capture->place[capture->count++] = (struct ah_cuda_place){offset, bytes, same};
    memcpy(capture->value + offset, numbers, bytes);
    capture->value_bytes = offset + bytes;
    *at = (uint64_t)(uintptr_t)capture->block + offset;
    return 0;
}

int ah_cuda_capture_numbers(struct ah_cuda_device *cuda, const void *same, size_t same_bytes, const void *numbers,
                            size_t bytes, uint64_t *at)
{
    struct ah_cuda_capture *capture = cuda->revised;
    *at = 0;
    if (cuda->capturing)
        return add_numbers(cuda->capturing, hash_of(same, same_bytes), numbers, bytes, at);
    if (!capture)
        return 0;
    if (capture->next == capture->count || capture->place[capture->next].bytes != bytes ||
        capture->place[capture->next].same != hash_of(same, same_bytes))
        return ah_fail(AH_ESTATE, "parameters, gradients or state are not those of the captured step, or "
                      "were moved: capture it again");
    struct ah_cuda_place *place = &capture->place[capture->next++];
    memcpy(capture->value + place->offset, numbers, bytes);
    *at = (uint64_t)(uintptr_t)capture->block + place->offset;
    return 0;
}
