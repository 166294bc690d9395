/* Kernels by name.
 *
 * A kernel is a static object that names its file in host/cuda/kernels and its function there; its module is loaded on
 * the first launch on a device, and the function is kept in the object. Lua thread only. */
#pragma once

#include "cuda/driver/api/device.h"
#include "cuda/driver/stream/times.h"

struct ah_cuda_kernel {
    const char *file, *name;
    CUfunction on[AH_CUDA_DEVICES];
    int shared_bytes[AH_CUDA_DEVICES]; /* the dynamic shared memory that it was allowed so far */
    struct ah_cuda_kernel *next; /* among all that were ever launched */
    bool known;
};

/* Its initialiser. */
#define AH_CUDA_KERNEL(in, called) {.file = (in), .name = (called)}

struct ah_cuda_grid {
    unsigned blocks, threads, shared_bytes;
};

/* Launch a kernel on the compute stream with one struct of arguments. `op_name` is for messages. On AH_EIO and other
 * failures the text names kernel and op; an error in a kernel is reported by a later call, unless launches are waited
 * for. */
int ah_cuda_launch_sized(struct ah_device *device, struct ah_cuda_kernel *kernel, const char *op_name,
                         struct ah_cuda_grid grid, const void *args, size_t size);
/* The same for a kernel whose bytes and operations are known, for the times of kernels. */
int ah_cuda_launch_working(struct ah_device *device, struct ah_cuda_kernel *kernel, const char *op_name,
                           struct ah_cuda_grid grid, const void *args, size_t size, struct ah_cuda_work work);
#define ah_cuda_launch(device, kernel, op_name, grid, args) \
    ah_cuda_launch_sized(device, kernel, op_name, grid, args, sizeof *(args))

/* Forget the modules and functions of a device that is closed. */
void ah_cuda_launch_forget(const struct ah_cuda_device *cuda);

/* Blocks for `items` pieces of work, of which a block processes `each` at a time and then continues with the next: at
 * least 1, and no more than keep any card busy. */
unsigned ah_cuda_blocks(int64_t items, int64_t each);

static inline struct ah_cuda_grid ah_cuda_grid_of(unsigned blocks, unsigned threads, unsigned shared_bytes)
{
    return (struct ah_cuda_grid){blocks, threads, shared_bytes};
}

/* A grid of blocks of `threads` for `items`, one for each thread at a time. */
static inline struct ah_cuda_grid ah_cuda_grid_for(int64_t items, unsigned threads)
{
    return ah_cuda_grid_of(ah_cuda_blocks(items, threads), threads, 0);
}

/* A grid with a block of `threads` for each item. */
static inline struct ah_cuda_grid ah_cuda_grid_each(int64_t items, unsigned threads)
{
    return ah_cuda_grid_of(ah_cuda_blocks(items, 1), threads, 0);
}

/* Threads for a block that does `items` pieces of work alone: whole warps, `most` at most. */
unsigned ah_cuda_threads(int64_t items, unsigned most);
