/* Inputs, scratch memory, and the kernels around the libraries' routines. */
#include "cuda/ops/linear/linalg_steps.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/reals.h"

void ah_linalg_open(struct ah_linalg_work *w, struct ah_call *call)
{
    const struct ah_tensor *a = call->arg[0].tensor;
    memset(w, 0, sizeof *w);
    w->call = call;
    w->cuda = ah_cuda_state(call->device);
    w->in.device = call->device;
    w->dtype = a->dtype;
    w->m = a->size[a->ndim - 2];
    w->n = a->size[a->ndim - 1];
    w->batch = a->numel / (w->m * w->n);
    w->status = ah_cuda_capture_refuse(w->cuda, "linear algebra by cuSOLVER", "do it outside of the step");
    w->solver = ah_solver_open(w->cuda);
}

int ah_linalg_close(struct ah_linalg_work *w)
{
    while (w->blocks > 0)
        ah_cuda_memory_give(w->cuda->memory, w->block[--w->blocks]);
    ah_cuda_inputs_close(&w->in);
    return w->status;
}

uint64_t ah_linalg_input(struct ah_linalg_work *w, struct ah_tensor *tensor)
{
    if (w->status < 0)
        return 0;
    struct ah_tensor *dense = ah_cuda_input(&w->in, tensor, tensor->dtype);
    w->status = w->in.status;
    return dense ? ah_cuda_data(dense) : 0;
}

static uint64_t linalg_scratch(struct ah_linalg_work *w, int64_t count, size_t item)
{
    if (w->status == 0 && w->blocks == AH_LINALG_BLOCKS)
        w->status = ah_fail(AH_ESTATE, "%s: more than %d blocks of scratch memory", w->call->op->name,
                            AH_LINALG_BLOCKS);
    if (w->status == 0)
        w->status = ah_cuda_memory_take(w->cuda->memory, (size_t)(w->batch * count) * item, &w->block[w->blocks]);
    return w->status < 0 ? 0 : ah_cuda_address(w->block[w->blocks++]);
}

uint64_t ah_linalg_reals(struct ah_linalg_work *w, int64_t count)
{
    return linalg_scratch(w, count, ah_dtype_size(w->dtype));
}

uint64_t ah_linalg_longs(struct ah_linalg_work *w, int64_t count)
{
    return linalg_scratch(w, count, sizeof(int64_t));
}

uint64_t ah_linalg_ints(struct ah_linalg_work *w, int64_t count)
{
    return linalg_scratch(w, count, sizeof(int32_t));
}

/* Kernels. */

#define BOTH(name) {[AH_F32] = AH_CUDA_KERNEL("linalg", name "_f32"), [AH_F64] = AH_CUDA_KERNEL("linalg", name "_f64")}

void ah_linalg_launch(struct ah_linalg_work *w, struct ah_cuda_kernel *kernels, struct ah_cuda_grid grid,
                      const void *args, size_t size)
{
    if (w->status == 0)
        w->status = ah_cuda_launch_sized(w->call->device, &kernels[w->dtype], w->call->op->name, grid, args, size);
}

static struct ah_cuda_grid linalg_threads(int64_t items)
{
    return ah_cuda_grid_for(items, AH_LINALG_THREADS);
}

void ah_linalg_move(struct ah_linalg_work *w, uint64_t to, uint64_t from, int64_t count)
{
    if (w->status == 0)
        w->status = ah_device_copy((void *)(uintptr_t)to, w->call->device, (const void *)(uintptr_t)from,
                                   w->call->device, (size_t)(w->batch * count) * ah_dtype_size(w->dtype));
}

void ah_linalg_turn(struct ah_linalg_work *w, uint64_t to, uint64_t from, int64_t rows, int64_t columns)
{
    if (w->status == 0)
        w->status = w->call->device->type->transpose(w->call->device, (void *)(uintptr_t)to,
                                                     (const void *)(uintptr_t)from, w->batch, rows, columns,
                                                     ah_dtype_size(w->dtype));
}

void ah_linalg_copy(struct ah_linalg_work *w, struct ah_linalg_copy_args *args)
{
    static struct ah_cuda_kernel kernels[AH_DTYPE_COUNT] = BOTH("linalg_copy");
    args->batch = w->batch;
    ah_linalg_launch(w, kernels, linalg_threads(w->batch * args->rows * args->columns), args, sizeof *args);
}

void ah_linalg_screen(struct ah_linalg_work *w, uint64_t at, int64_t count, uint64_t flags, int code, bool keeps)
{
    static struct ah_cuda_kernel kernels[AH_DTYPE_COUNT] = BOTH("linalg_screen");
    struct ah_linalg_screen_args args = {at, flags, w->batch, count, code, keeps};
    ah_linalg_launch(w, kernels, ah_cuda_grid_each(w->batch, AH_LINALG_THREADS), &args, sizeof args);
}

void ah_linalg_spoil(struct ah_linalg_work *w, uint64_t at, int64_t count, uint64_t info, uint64_t flags)
{
    static struct ah_cuda_kernel kernels[AH_DTYPE_COUNT] = BOTH("linalg_spoil");
    struct ah_linalg_spoil_args args = {at, info, flags, w->batch, count};
    ah_linalg_launch(w, kernels, ah_cuda_grid_each(w->batch, AH_LINALG_THREADS), &args, sizeof args);
}

void ah_linalg_permutation(struct ah_linalg_work *w, uint64_t rows, uint64_t pivots, int64_t n, int64_t k)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("linalg", "linalg_permutation");
    struct ah_linalg_permutation_args args = {rows, pivots, w->batch, n, k};
    if (w->status == 0)
        w->status = ah_cuda_launch(w->call->device, &kernel, w->call->op->name, linalg_threads(w->batch), &args);
}

void ah_linalg_rows(struct ah_linalg_work *w, uint64_t to, uint64_t from, uint64_t rows, int64_t n, int64_t k,
                    bool scatters)
{
    static struct ah_cuda_kernel kernels[AH_DTYPE_COUNT] = BOTH("linalg_rows");
    struct ah_linalg_rows_args args = {to, from, rows, w->batch, n, k, scatters};
    ah_linalg_launch(w, kernels, linalg_threads(w->batch * n * k), &args, sizeof args);
}

/* Routines. */

struct ah_linalg_span ah_linalg_begin(struct ah_linalg_work *w, const char *routine, double operations)
{
    struct ah_linalg_span span = {{-1}, operations};
    if (w->status == 0)
        w->status = ah_cuda_enter(w->cuda);
    if (w->status == 0)
        span.span = ah_cuda_span_begin(w->cuda, w->call->op->name, routine);
    return span;
}

void ah_linalg_end(struct ah_linalg_work *w, struct ah_linalg_span span, int status, const char *library,
                   const char *routine)
{
    const char *name = w->call->op->name;
    w->status = ah_solver_check(status, library, name, routine);
    if (w->status == 0)
        ah_cuda_span_end(w->cuda, span.span,
                         (struct ah_cuda_work){0, span.operations, ah_cuda_rate_of(w->dtype, false)});
    if (w->status == 0 && w->cuda->waits)
        w->status = ah_cuda_check(ah_cuda.stream_synchronise(w->cuda->compute), "%s: %s: %s", w->call->device->name,
                                  name, routine);
}
