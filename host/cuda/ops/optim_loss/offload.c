/* Invariant: a buffer is overwritten on the copy stream only after the fetch stream has copied its last block. */
#include "cuda/ops/optim_loss/offload.h"

#include <stdlib.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/capture.h"

/* `PARTS`: segments of a block, or parts of them; `ALIGNED`: states begin at multiples of these bytes in a buffer. */
enum { BUFFERS = 3, PARTS = 64, ALIGNED = 256 };
#define BLOCK ((size_t)16 << 20)

struct buffer {
    char *at;
    CUevent arrived, updated, left; /* its block: copied to the device, updated, copied back */
    bool used;
};

/* Parts of segments whose states fit a buffer, at the host and on the device. */
struct block {
    struct ah_optim_segment here[PARTS], there[PARTS];
    int count;
};

struct pass {
    const struct ah_offloaded_step *step;
    struct ah_cuda_device *cuda;
    const struct ah_optim_segment *segment;
    int count, next;  /* the next segment to be copied, */
    int64_t first;    /* and its first element */
    size_t room;      /* bytes of a buffer */
    struct buffer buffer[BUFFERS];
};

static int pass_check(const struct pass *pass, CUresult code)
{
    return ah_cuda_check(code, "%s: a step with offloaded state", pass->cuda->device->name);
}

static int states_of(const struct ah_optim_segment *segment)
{
    return __builtin_popcount(segment->offloaded);
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* The bytes of a buffer: of a block, or less where the states fit into smaller ones. 0: there are no elements. */
static size_t room_for(const struct pass *pass)
{
    const char *text = getenv("ACCELHOST_CUDA_OFFLOAD_BLOCK");
    size_t most = text ? (size_t)strtoull(text, NULL, 10) : BLOCK, all = 0;
    for (int i = 0; i < pass->count; i++)
        all += (size_t)states_of(&pass->segment[i]) *
               aligned((size_t)pass->segment[i].n * ah_dtype_size(pass->step->dtype));
    size_t least = (size_t)AH_OPTIM_STATES * ALIGNED, third = aligned(all / BUFFERS) + least;
    most = most < least ? least : aligned(most);
    return all == 0 ? 0 : third < most ? third : most;
}

static void *part_at(void *run, int64_t first, size_t item)
{
    return run ? (char *)run + (size_t)first * item : NULL;
}

/* Add a part of the next segment, as large as the rest of the buffer allows; returns the bytes it needs, 0: no room. */
static size_t block_add(struct pass *pass, struct block *block, char *buffer, size_t used)
{
    const struct ah_optim_segment *from = &pass->segment[pass->next];
    size_t item = ah_dtype_size(pass->step->dtype), states = (size_t)states_of(from);
    size_t room = (pass->room - used) / states / ALIGNED * ALIGNED;
    int64_t n = from->n - pass->first;
    if ((size_t)n * item > room)
        n = (int64_t)(room / item);
    if (n == 0)
        return 0;
    struct ah_optim_segment *here = &block->here[block->count], *there = &block->there[block->count++];
    *here = *from;
    here->n = n;
    here->param = part_at(from->param, pass->first, item);
    here->grad = (const char *)from->grad + (size_t)pass->first * item;
    for (int k = 0; k < AH_OPTIM_STATES; k++)
        here->state[k] = part_at(from->state[k], pass->first, item);
    *there = *here;
    size_t bytes = 0;
    for (int k = 0; k < AH_OPTIM_STATES; k++)
        if (from->offloaded >> k & 1) {
            there->state[k] = buffer + used + bytes;
            bytes += aligned((size_t)n * item);
        }
    pass->first += n;
    return bytes;
}

/* Choose the next block; its count is 0 at the end. */
static void block_fill(struct pass *pass, struct block *block, char *buffer)
{
    size_t used = 0;
    block->count = 0;
    while (pass->next < pass->count && block->count < PARTS) {
        if (pass->first == pass->segment[pass->next].n) {
            pass->next++;
            pass->first = 0;
            continue;
        }
        size_t bytes = block_add(pass, block, buffer, used);
        if (bytes == 0)
            return;
        used += bytes;
    }
}

static int copy_states(const struct pass *pass, const struct block *block, bool to_device)
{
    for (int i = 0; i < block->count; i++) {
        const struct ah_optim_segment *here = &block->here[i], *there = &block->there[i];
        size_t bytes = (size_t)here->n * ah_dtype_size(pass->step->dtype);
        for (int k = 0; k < AH_OPTIM_STATES; k++) {
            if (!(here->offloaded >> k & 1))
                continue;
            CUdeviceptr at = (CUdeviceptr)(uintptr_t)there->state[k];
            AH_TRY(pass_check(pass, to_device
                                        ? ah_cuda.copy_to_device(at, here->state[k], bytes, pass->cuda->copy)
                                        : ah_cuda.copy_to_host(here->state[k], at, bytes, pass->cuda->fetch)));
        }
    }
    return 0;
}

/* Have `after` wait for the work that is queued on `before`. */
static int pass_order(const struct pass *pass, CUevent event, CUstream before, CUstream after)
{
    AH_TRY(pass_check(pass, ah_cuda.event_record(event, before)));
    return pass_check(pass, ah_cuda.stream_wait(after, event, 0));
}

static int block_step(const struct pass *pass, const struct block *block, struct buffer *buffer)
{
    const struct ah_offloaded_step *step = pass->step;
    struct ah_cuda_device *cuda = pass->cuda;
    if (buffer->used)
        AH_TRY(pass_check(pass, ah_cuda.stream_wait(cuda->copy, buffer->left, 0)));
    buffer->used = true;
    AH_TRY(copy_states(pass, block, true));
    AH_TRY(pass_order(pass, buffer->arrived, cuda->copy, cuda->compute));
    AH_TRY(step->resident(step->device, step->kind, step->options, block->there, block->count, step->dtype));
    AH_TRY(pass_order(pass, buffer->updated, cuda->compute, cuda->fetch));
    AH_TRY(copy_states(pass, block, false));
    return pass_check(pass, ah_cuda.event_record(buffer->left, cuda->fetch));
}

static int pass_run(struct pass *pass)
{
    struct ah_cuda_device *cuda = pass->cuda;
    struct block block;
    for (int i = 0; i < BUFFERS; i++) {
        CUevent *event[] = {&pass->buffer[i].arrived, &pass->buffer[i].updated, &pass->buffer[i].left};
        for (int k = 0; k < 3; k++)
            AH_TRY(pass_check(pass, ah_cuda.event_create(event[k], CU_EVENT_DISABLE_TIMING)));
    }
    /* Work that is queued may still use the buffers' memory. */
    AH_TRY(pass_order(pass, pass->buffer[0].updated, cuda->compute, cuda->copy));
    for (int turn = 0;; turn = (turn + 1) % BUFFERS) {
        block_fill(pass, &block, pass->buffer[turn].at);
        if (block.count == 0)
            return pass_check(pass, ah_cuda.stream_synchronise(cuda->fetch));
        AH_TRY(block_step(pass, &block, &pass->buffer[turn]));
    }
}

int ah_cuda_step_offloaded(const struct ah_offloaded_step *step, const struct ah_optim_segment *segment, int count)
{
    struct ah_cuda_device *cuda = ah_cuda_state(step->device);
    struct pass pass = {.step = step, .cuda = cuda, .segment = segment, .count = count};
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_refuse(cuda, "a step with offloaded state", "leave offload_optimizer_device out"));
    pass.room = room_for(&pass);
    if (pass.room == 0)
        return 0;
    if (!cuda->fetch)
        AH_TRY(pass_check(&pass, ah_cuda.stream_create(&cuda->fetch, CU_STREAM_NON_BLOCKING, 0)));
    AH_CUDA_SCRATCH(buffers, step->device);
    AH_TRY(ah_cuda_scratch_take(&buffers, BUFFERS * pass.room));
    for (int i = 0; i < BUFFERS; i++)
        pass.buffer[i].at = (char *)buffers.at + (size_t)i * pass.room;
    int status = pass_run(&pass);
    if (status < 0) { /* nothing may use the buffers any more */
        ah_cuda.stream_synchronise(cuda->copy);
        ah_cuda.stream_synchronise(cuda->compute);
        ah_cuda.stream_synchronise(cuda->fetch);
    }
    for (int i = 0; i < BUFFERS; i++) {
        CUevent event[] = {pass.buffer[i].arrived, pass.buffer[i].updated, pass.buffer[i].left};
        for (int k = 0; k < 3; k++)
            if (event[k])
                ah_cuda.event_destroy(event[k]);
    }
    return status;
}
