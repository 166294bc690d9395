/* Invariant: blocks from `first` on are neighbours without a gap, up to the end of the last mapped piece, so the last
 * one is no hole; holes begin and end with a piece. */
#include "cuda/driver/memory/range.h"

#include <stdlib.h>

/* A piece is large enough that mapping one, some 10 calls of the driver in a step that needs more, costs little, and
 * small compared with a card's memory. The addresses are more than the memory: holes may be anywhere. */
#define PIECE ((size_t)16 << 20)
enum { ADDRESSES = 4 };

struct ah_cuda_range {
    struct ah_cuda_device *cuda;
    CUdeviceptr base;
    size_t bytes;
    struct ah_cuda_block *first;
    CUmemAccessDesc access[AH_CUDA_DEVICES]; /* the device's own, and those of its peers */
    size_t access_count;
    bool direct;  /* network cards may read the memory by themselves */
    bool refused; /* the driver maps nothing, for another reason than that it has no more memory */
};

static CUmemAccessDesc access_of(const struct ah_cuda_device *cuda)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = cuda->handle;
    return access;
}

int ah_cuda_range_open(struct ah_cuda_range **out, struct ah_cuda_device *cuda)
{
    int mappable = 0, direct = 0;
    size_t total = 0;
    *out = NULL;
    ah_cuda.device_attribute(&mappable, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, cuda->handle);
    ah_cuda.device_attribute(&direct, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, cuda->handle);
    AH_TRY(ah_cuda_check(ah_cuda.device_total_memory(&total, cuda->handle), "%s: its memory", cuda->device->name));
    struct ah_cuda_range *range = calloc(1, sizeof *range);
    AH_TRY_MEMORY(range, "out of memory");
    range->cuda = cuda;
    range->bytes = ADDRESSES * ((total + PIECE - 1) / PIECE * PIECE);
    range->direct = direct > 0;
    range->access[range->access_count++] = access_of(cuda);
    if (mappable > 0 && ah_cuda.addresses_reserve(&range->base, range->bytes, 0, 0, 0) == CUDA_SUCCESS)
        *out = range;
    else
        free(range);
    return 0;
}

bool ah_cuda_range_has(const struct ah_cuda_range *range, const struct ah_cuda_block *block)
{
    return range && block->at - range->base < range->bytes;
}

bool ah_cuda_range_grows(const struct ah_cuda_range *range)
{
    return range && !range->refused;
}

static void range_unmap(struct ah_cuda_range *range, CUdeviceptr at, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += PIECE)
        ah_cuda.piece_unmap(at + done, PIECE);
}

/* A handle is not needed once its memory is mapped, which keeps it. */
static CUresult map_piece(struct ah_cuda_range *range, CUdeviceptr at)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = range->cuda->handle;
    prop.allocFlags.gpuDirectRDMACapable = range->direct;
    CUmemGenericAllocationHandle handle;
    CUresult code = ah_cuda.piece_create(&handle, PIECE, &prop, 0);
    if (code != CUDA_SUCCESS)
        return code;
    code = ah_cuda.piece_map(at, PIECE, 0, handle, 0);
    ah_cuda.piece_release(handle);
    return code;
}

/* All pieces or none. */
static CUresult map_pieces(struct ah_cuda_range *range, CUdeviceptr at, size_t bytes)
{
    CUresult code = CUDA_SUCCESS;
    size_t done = 0;
    for (; code == CUDA_SUCCESS && done < bytes; done += code == CUDA_SUCCESS ? PIECE : 0)
        code = map_piece(range, at + done);
    if (code == CUDA_SUCCESS)
        code = ah_cuda.piece_access(at, bytes, range->access, range->access_count);
    if (code != CUDA_SUCCESS)
        range_unmap(range, at, done);
    return code;
}

/* A driver, or a sandbox before it, that has the calls may still refuse them: then blocks are in segments. */
static int range_map(struct ah_cuda_memory *memory, CUdeviceptr at, size_t bytes)
{
    struct ah_cuda_range *range = memory->range;
    CUstreamCaptureMode mode = ah_cuda_relax();
    CUresult code = map_pieces(range, at, bytes);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_OUT_OF_MEMORY && range->direct) {
        range->direct = false;
        code = map_pieces(range, at, bytes);
    }
    ah_cuda_tighten(mode);
    range->refused = code != CUDA_SUCCESS && code != CUDA_ERROR_OUT_OF_MEMORY;
    memory->stats.system_calls += bytes / PIECE;
    if (code == CUDA_SUCCESS)
        memory->reserved += bytes;
    return ah_cuda_check(code, "%s: %zu bytes", range->cuda->device->name, bytes);
}

void ah_cuda_range_share(struct ah_cuda_range *range, const struct ah_cuda_device *peer)
{
    CUmemAccessDesc access = access_of(peer);
    if (range->access_count == AH_CUDA_DEVICES)
        return;
    CUresult code = CUDA_SUCCESS;
    for (struct ah_cuda_block *block = range->first; code == CUDA_SUCCESS && block;) {
        CUdeviceptr at = block->at;
        size_t bytes = 0;
        bool hole = block->hole;
        for (; block && block->hole == hole; block = block->after)
            bytes += block->bytes;
        code = hole ? CUDA_SUCCESS : ah_cuda.piece_access(at, bytes, &access, 1);
    }
    if (code == CUDA_SUCCESS)
        range->access[range->access_count++] = access;
}

static size_t spare_bytes(const struct ah_cuda_block *block)
{
    return ah_cuda_block_is_spare(block) ? block->bytes : 0;
}

static size_t in_pieces(size_t bytes)
{
    return (bytes + PIECE - 1) / PIECE * PIECE;
}

/* Memory for a hole, or for as much of it as makes `bytes` with a free block before it. */
static int fill_hole(struct ah_cuda_memory *memory, struct ah_cuda_block *hole, size_t bytes)
{
    size_t needed = in_pieces(bytes - spare_bytes(hole->before));
    struct ah_cuda_block *rest = NULL;
    if (needed < hole->bytes) {
        rest = ah_cuda_block_split(hole, needed);
        AH_TRY_MEMORY(rest, "out of memory");
        rest->hole = true;
    }
    int status = range_map(memory, hole->at, hole->bytes);
    if (status < 0) {
        if (rest)
            ah_cuda_block_join(hole);
        return status;
    }
    hole->hole = false;
    ah_cuda_memory_add_spare(memory, hole);
    return 0;
}

/* More memory behind the last block. */
static int range_extend(struct ah_cuda_memory *memory, struct ah_cuda_block *last, size_t bytes)
{
    struct ah_cuda_range *range = memory->range;
    size_t needed = in_pieces(bytes - spare_bytes(last));
    CUdeviceptr end = last ? last->at + last->bytes : range->base;
    if (needed > range->bytes - (end - range->base))
        return ah_fail(AH_ENOMEM, "%s: no more addresses", range->cuda->device->name);
    struct ah_cuda_block *block = calloc(1, sizeof *block);
    AH_TRY_MEMORY(block, "out of memory");
    int status = range_map(memory, end, needed);
    if (status < 0) {
        free(block);
        return status;
    }
    *block = (struct ah_cuda_block){.at = end, .bytes = needed, .before = last};
    *(last ? &last->after : &range->first) = block;
    ah_cuda_memory_add_spare(memory, block);
    return 0;
}

int ah_cuda_range_grow(struct ah_cuda_memory *memory, size_t bytes)
{
    struct ah_cuda_block *last = NULL, *hole = NULL;
    for (struct ah_cuda_block *block = memory->range->first; block; block = block->after) {
        last = block;
        if (block->hole && spare_bytes(block->before) + block->bytes + spare_bytes(block->after) >= bytes) {
            hole = block;
            break;
        }
    }
    return hole ? fill_hole(memory, hole, bytes) : range_extend(memory, last, bytes);
}

/* Join a hole with its neighbours; remove it at the end. Returns the block after it. */
static struct ah_cuda_block *settle_hole(struct ah_cuda_range *range, struct ah_cuda_block *hole)
{
    if (hole->after && hole->after->hole)
        ah_cuda_block_join(hole);
    if (hole->before && hole->before->hole) {
        hole = hole->before;
        ah_cuda_block_join(hole);
    }
    if (hole->after)
        return hole->after;
    *(hole->before ? &hole->before->after : &range->first) = NULL;
    free(hole);
    return NULL;
}

/* Remove the memory of a free block's whole pieces, `from` to `to` of its bytes. Returns the next block to visit. */
static struct ah_cuda_block *range_punch(struct ah_cuda_memory *memory, struct ah_cuda_block *block, size_t from,
                                         size_t to)
{
    struct ah_cuda_block *hole = block, *left = NULL, *right = NULL;
    ah_cuda_memory_remove_spare(memory, block);
    if (to < block->bytes) {
        right = ah_cuda_block_split(block, to);
        if (!right) {
            ah_cuda_memory_add_spare(memory, block);
            return block->after;
        }
    }
    if (from > 0) {
        hole = ah_cuda_block_split(block, from);
        if (!hole) {
            if (right)
                ah_cuda_block_join(block);
            ah_cuda_memory_add_spare(memory, block);
            return block->after;
        }
        left = block;
    }
    hole->hole = true;
    range_unmap(memory->range, hole->at, hole->bytes);
    memory->reserved -= hole->bytes;
    if (left)
        ah_cuda_memory_add_spare(memory, left);
    if (right)
        ah_cuda_memory_add_spare(memory, right);
    return settle_hole(memory->range, hole);
}

void ah_cuda_range_trim(struct ah_cuda_memory *memory)
{
    struct ah_cuda_range *range = memory->range;
    bool synchronised = false;
    for (struct ah_cuda_block *block = range ? range->first : NULL; block;) {
        size_t at = block->at - range->base;
        size_t from = in_pieces(at) - at, to = (at + block->bytes) / PIECE * PIECE - at;
        if (!ah_cuda_block_is_spare(block) || in_pieces(at) + PIECE > at + block->bytes) {
            block = block->after;
            continue;
        }
        if (!synchronised)
            ah_cuda.stream_synchronise(range->cuda->compute);
        synchronised = true;
        block = range_punch(memory, block, from, to);
    }
}

void ah_cuda_range_close(struct ah_cuda_range *range)
{
    if (!range)
        return;
    while (range->first) {
        struct ah_cuda_block *block = range->first;
        range->first = block->after;
        free(block);
    }
    ah_cuda.addresses_free(range->base, range->bytes);
    free(range);
}
