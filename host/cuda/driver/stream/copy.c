/* Bytes to the device, from it, within it and between two. The host's memory is pageable, so its bytes are copied
 * through pinned blocks: to the device they are copied there and the call returns, the device reads them in the order
 * of its stream; from the device two blocks alternate, the host empties one while the device fills the other. */
#include "cuda/driver/stream/copy.h"

#include <string.h>

#include "cuda/driver/api/collectives.h"
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/memory/pinned.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/launch.h"
#include "cuda/driver/stream/times.h"
#include "cuda/kernels/index/transpose.h"

#define PIECE ((size_t)4 << 20)

static CUdeviceptr copy_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

int ah_cuda_copy_staged(struct ah_cuda_device *cuda, void *to, const void *from, size_t bytes, CUstream stream)
{
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < PIECE ? bytes - done : PIECE;
        struct ah_cuda_pinned_block *block;
        AH_TRY(ah_cuda_pinned_take(cuda->pinned, piece, &block));
        memcpy(block->at, (const char *)from + done, piece);
        int status = ah_cuda_check(ah_cuda.copy_to_device(copy_address(to) + done, block->at, piece, stream),
                                   "%s: copy of %zu bytes to the device", cuda->device->name, piece);
        int given = ah_cuda_pinned_give(cuda->pinned, block, stream);
        AH_TRY(status);
        AH_TRY(given);
        done += piece;
    }
    return 0;
}

static int to_device(struct ah_cuda_device *cuda, void *to, const void *from, size_t bytes, CUstream stream)
{
    AH_TRY(ah_cuda_capture_refuse(cuda, "a copy of the host's values",
                                  "make the tensor on the device before the step, or pass it as an argument"));
    return ah_cuda_copy_staged(cuda, to, from, bytes, stream);
}

/* Queue one piece; its block is released at once, so that its event shows when the piece has arrived. */
static int copy_fetch(struct ah_cuda_device *cuda, const void *from, size_t bytes, CUstream stream,
                      struct ah_cuda_pinned_block **out)
{
    AH_TRY(ah_cuda_pinned_take(cuda->pinned, bytes, out));
    int status = ah_cuda_check(ah_cuda.copy_to_host((*out)->at, copy_address(from), bytes, stream),
                               "%s: copy of %zu bytes to the host", cuda->device->name, bytes);
    int given = ah_cuda_pinned_give(cuda->pinned, *out, stream);
    (*out)->busy = status == 0 && given == 0; /* ours until it has been emptied */
    AH_TRY(status);
    return given;
}

static int copy_empty(struct ah_cuda_device *cuda, void *to, size_t bytes, struct ah_cuda_pinned_block *block)
{
    int status = ah_cuda_check(ah_cuda.event_synchronise(block->event), "%s: copy of %zu bytes to the host",
                               cuda->device->name, bytes);
    if (status == 0)
        memcpy(to, block->at, bytes);
    block->busy = false;
    return status;
}

static int to_host(struct ah_cuda_device *cuda, void *to, const void *from, size_t bytes, CUstream stream)
{
    struct ah_cuda_pinned_block *block[2] = {NULL, NULL};
    size_t size[2] = {0, 0}, asked = 0, done = 0;
    int status = ah_cuda_capture_refuse(cuda, "reading values of the device",
                                        "return the tensor from the step and read it after the call");
    for (int turn = 0; status == 0 && done < bytes; turn ^= 1) {
        for (int i = 0; status == 0 && i < 2 && asked < bytes; i++) {
            int slot = turn ^ i;
            if (block[slot])
                continue;
            size[slot] = bytes - asked < PIECE ? bytes - asked : PIECE;
            status = copy_fetch(cuda, (const char *)from + asked, size[slot], stream, &block[slot]);
            asked += size[slot];
        }
        if (status == 0) {
            status = copy_empty(cuda, (char *)to + done, size[turn], block[turn]);
            done += size[turn];
            block[turn] = NULL;
        }
    }
    for (int i = 0; i < 2; i++)
        if (block[i])
            block[i]->busy = false;
    return status;
}

/* Make later work of `after` wait for the work that is queued on `first`. */
static int copy_order(struct ah_cuda_device *first, struct ah_cuda_device *after)
{
    CUevent event;
    AH_TRY(ah_cuda_enter(first));
    AH_TRY(ah_cuda_check(ah_cuda.event_create(&event, CU_EVENT_DISABLE_TIMING), "%s: an event", first->device->name));
    CUresult code = ah_cuda.event_record(event, first->compute);
    int status = ah_cuda_enter(after);
    if (code == CUDA_SUCCESS && status == 0)
        code = ah_cuda.stream_wait(after->compute, event, 0);
    ah_cuda.event_destroy(event);
    AH_TRY(status);
    return ah_cuda_check(code, "%s: waiting for %s", after->device->name, first->device->name);
}

/* Have the device reach a peer's memory directly, once for each pair; where it cannot, copies go through the host. */
static void copy_reach(struct ah_cuda_device *device, struct ah_cuda_device *peer)
{
    int can = 0;
    if (device->peers >> peer->ordinal & 1 || ah_cuda_enter(device) < 0)
        return;
    device->peers |= (uint32_t)1 << peer->ordinal;
    if (ah_cuda.peer_possible(&can, device->handle, peer->handle) != CUDA_SUCCESS || !can)
        return;
    CUresult code = ah_cuda.peer_enable(peer->context, 0);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        ah_cuda_memory_share(peer->memory, device);
}

static int to_peer(struct ah_cuda_device *target, void *to, struct ah_cuda_device *source, const void *from,
                   size_t bytes)
{
    for (int i = 0; i < 2; i++)
        AH_TRY(ah_cuda_capture_refuse(i ? target : source, "a copy between devices", "do it outside of the step"));
    copy_reach(source, target);
    copy_reach(target, source);
    AH_TRY(copy_order(target, source));
    AH_TRY(ah_cuda_enter(source));
    AH_TRY(ah_cuda_check(ah_cuda.copy_to_peer(copy_address(to), target->context, copy_address(from), source->context,
                                              bytes, source->compute),
                         "%s: copy of %zu bytes to %s", source->device->name, bytes, target->device->name));
    return copy_order(source, target);
}

/* Check for failures, after the host has waited for the device. */
static int after_wait(struct ah_cuda_device *cuda)
{
    AH_TRY(ah_cuda_collectives->check(cuda));
    return ah_cuda_raise_fault(cuda);
}

int ah_cuda_copy(struct ah_device *device, void *to, struct ah_device *to_device_, const void *from,
                 struct ah_device *from_device, size_t bytes, void *stream)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    CUstream queue = stream ? stream : cuda->compute;
    if (bytes == 0)
        return 0;
    AH_TRY(ah_cuda_enter(cuda));
    if (from_device == &ah_cpu)
        return to_device(cuda, to, from, bytes, queue);
    if (to_device_ == &ah_cpu) {
        AH_TRY(to_host(cuda, to, from, bytes, queue));
        return stream ? 0 : after_wait(cuda);
    }
    if (to_device_ != from_device)
        return to_peer(ah_cuda_state(to_device_), to, ah_cuda_state(from_device), from, bytes);
    AH_TRY(ah_cuda_capture_see(cuda, (CUdeviceptr[]){copy_address(to), copy_address(from)}, 2 * sizeof(CUdeviceptr)));
    struct ah_cuda_span span = {-1};
    if (queue == cuda->compute)
        span = ah_cuda_span_begin(cuda, "copy", "copy_within");
    AH_TRY(ah_cuda_check(ah_cuda.copy_within(copy_address(to), copy_address(from), bytes, queue),
                         "%s: copy of %zu bytes", device->name, bytes));
    ah_cuda_span_end(cuda, span, (struct ah_cuda_work){.bytes = 2.0 * (double)bytes});
    return 0;
}

int ah_cuda_fill(struct ah_device *device, void *to, int byte, size_t bytes)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    if (bytes == 0)
        return 0;
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_see(cuda, (CUdeviceptr[]){copy_address(to)}, sizeof(CUdeviceptr)));
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, "fill", "fill_bytes");
    AH_TRY(ah_cuda_check(ah_cuda.fill_bytes(copy_address(to), (unsigned char)byte, bytes, cuda->compute),
                         "%s: filling %zu bytes", device->name, bytes));
    ah_cuda_span_end(cuda, span, (struct ah_cuda_work){.bytes = (double)bytes});
    return 0;
}

int ah_cuda_transpose(struct ah_device *device, void *to, const void *from, int64_t batch, int64_t rows,
                      int64_t columns, size_t item)
{
    static struct ah_cuda_kernel kernels[] = {
        AH_CUDA_KERNEL("transpose", "transpose_1"), AH_CUDA_KERNEL("transpose", "transpose_2"),
        AH_CUDA_KERNEL("transpose", "transpose_4"), AH_CUDA_KERNEL("transpose", "transpose_8")};
    if (batch * rows * columns == 0)
        return 0;
    int kind = item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3;
    struct ah_transpose_args args = {
        .to = (uintptr_t)to, .from = (uintptr_t)from, .batch = batch, .rows = rows, .columns = columns};
    args.row_tiles = (rows + AH_TRANSPOSE_TILE - 1) / AH_TRANSPOSE_TILE;
    args.column_tiles = (columns + AH_TRANSPOSE_TILE - 1) / AH_TRANSPOSE_TILE;
    int64_t tiles = batch * args.row_tiles * args.column_tiles;
    return ah_cuda_launch(device, &kernels[kind], "transpose",
                          ah_cuda_grid_each(tiles, AH_TRANSPOSE_TILE * AH_TRANSPOSE_ROWS), &args);
}

int ah_cuda_synchronise(struct ah_device *device, void *stream)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    AH_TRY(ah_cuda_capture_refuse(cuda, "waiting for the device", "do it outside of the step"));
    AH_TRY(ah_cuda_enter(cuda));
    if (!stream)
        AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(cuda->copy), "%s: waiting for copies", device->name));
    AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(stream ? stream : cuda->compute), "%s", device->name));
    return stream ? 0 : after_wait(cuda);
}
