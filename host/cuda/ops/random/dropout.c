/* Dropout. The assignment of elements to threads is PyTorch's: a thread processes 16 bytes of the input at a time where
 * they divide it and it is dense and aligned, else 8, 4 or 2 of its elements, else one from each of four rounds. */
#include "base/status/status.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/kernels/random/random.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/random/random.h"

/* Is it a permutation of row-major memory? */
static bool is_dense(const struct ah_tensor *t)
{
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS], next = 1;
    int ndim = 0;
    for (int d = 0; d < t->ndim; d++) {
        int k = ndim;
        if (t->size[d] == 1)
            continue;
        for (; k > 0 && stride[k - 1] > t->stride[d]; k--) {
            size[k] = size[k - 1];
            stride[k] = stride[k - 1];
        }
        size[k] = t->size[d];
        stride[k] = t->stride[d];
        ndim++;
    }
    for (int d = 0; d < ndim; d++) {
        if (stride[d] != next)
            return false;
        next *= size[d];
    }
    return true;
}

static int run_of(const struct ah_tensor *input)
{
    int64_t item = (int64_t)ah_dtype_size(input->dtype), run = 16 / item;
    if (!is_dense(input))
        return 1;
    while (run > 1 && ((uintptr_t)ah_tensor_data(input) % (uint64_t)(run * item) || input->numel % run))
        run /= 2;
    return (int)run;
}

/* Every number that a thread draws is reserved in the generator. PyTorch reserves fewer where a thread draws more than
 * one for each element that it has, and then draws those again in the next op. */
static uint64_t numbers_of(int64_t n, int64_t threads, int run)
{
    uint64_t each = (uint64_t)threads * (unsigned)(run > 1 ? run : 4);
    return (((uint64_t)n - 1) / each + 1) * (run > 4 ? 8 : 4);
}

static int dropout_draw(struct ah_call *c, struct ah_tensor *input, double keep)
{
    static ah_cuda_loops kernels = {AH_CUDA_FLOATS("dropout", "dropout")};
    struct ah_cuda_device *cuda = ah_cuda_state(c->device);
    struct ah_tensor *mask = c->extra[0];
    enum ah_dtype dtype = ah_compute_dtype(input->dtype);
    const struct ah_cuda_operand operand[] = {{mask, AH_BOOL}, {input, dtype}, {c->out[0], dtype}};
    AH_CLEANUP(ah_cuda_iter_close) struct ah_cuda_iter iter = {0};
    AH_TRY(ah_cuda_iter_open(&iter, c->device, operand, 3, (double[4]){keep, c->state.dropout.scale}));
    struct ah_dropout_args args = {.iter = iter.args, .run = run_of(input)};
    unsigned blocks = ah_cuda_random_blocks(cuda, input->numel);
    args.place = ah_cuda_philox_take(cuda, numbers_of(input->numel, (int64_t)blocks * AH_RANDOM_THREADS, args.run));
    return ah_cuda_launch(c->device, &kernels[dtype], "dropout", ah_cuda_grid_of(blocks, AH_RANDOM_THREADS, 0), &args);
}

/* The scale is not rounded to halves here, as on the CPU: it is applied in float32. */
int ah_cuda_draw_dropout(struct ah_call *c)
{
    const struct ah_args_dropout *arg = ah_args(c, dropout);
    struct ah_tensor *input = arg->input.tensor, *mask = c->extra[0];
    double p = arg->p.number;
    if (p == 1) {
        static ah_cuda_loops kernels = {AH_CUDA_FLOATS("where", "keep")};
        enum ah_dtype dtype = ah_compute_dtype(input->dtype);
        const struct ah_cuda_operand operand[] = {{c->out[0], dtype}, {mask, AH_BOOL}, {input, dtype}};
        AH_TRY(ah_cuda_fill(c->device, ah_tensor_data(mask), 0, (size_t)mask->numel));
        return ah_cuda_iterate(c->device, "dropout", &kernels[dtype], operand, 3, (double[4]){0});
    }
    if (input->dtype != AH_F64)
        c->state.dropout.scale = (double)(float)(1 / (double)(float)(1 - p));
    return dropout_draw(c, input, 1 - p);
}
