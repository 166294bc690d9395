/* CTC loss (kernels/optim_loss/ctc.cu): lengths and labels are checked, the labels without those beyond a sequence's
 * length. The gradient is computed in two passes: one over the steps, which stores the probability of each place, and
 * one over the classes of all steps at once. */
#include "cuda/kernels/optim_loss/ctc.h"

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/lib/ops.h"
#include "cuda/ops/lib/rows.h"

static struct ah_cuda_kernel labels_kernel = AH_CUDA_KERNEL("ctc", "ctc_labels");
static struct ah_cuda_kernel forward_kernel[] = AH_CUDA_REALS("ctc", "ctc_forward");
static struct ah_cuda_kernel terms_kernel[] = AH_CUDA_REALS("ctc", "ctc_terms");
static struct ah_cuda_row_kernels gradient_kernel = AH_CUDA_ROWS("ctc", "ctc_gradient");

/* The inputs of both directions. */
struct held {
    struct ah_tensor *x, *target, *label, *input_length, *target_length;
    void *chain;
};

static void ctc_release(struct ah_call *c, struct held *h)
{
    ah_tensor_release(h->x);
    ah_tensor_release(h->target);
    ah_tensor_release(h->label);
    ah_tensor_release(h->input_length);
    ah_tensor_release(h->target_length);
    ah_cuda_memory_give(ah_cuda_state(c->device)->memory, h->chain);
}

/* Arguments `at` .. at + 3: log_probs, targets, lengths. */
static int open_held(struct ah_call *c, int at, int64_t blank, bool zero_infinity, bool chained, struct held *h,
                     struct ah_ctc *p)
{
    struct ah_cuda_memory *memory = ah_cuda_state(c->device)->memory;
    struct ah_tensor *x = c->arg[at].tensor, *target = c->arg[at + 1].tensor;
    *p = (struct ah_ctc){.steps = x->size[0], .batch = x->size[1], .classes = x->size[2], .longest = target->size[1],
                         .blank = blank, .zero_infinity = zero_infinity};
    AH_TRY(ah_cuda_dense(c->device, &h->x, x, x->dtype));
    AH_TRY(ah_cuda_dense(c->device, &h->target, target, AH_I64));
    AH_TRY(ah_cuda_dense(c->device, &h->input_length, c->arg[at + 2].tensor, AH_I64));
    AH_TRY(ah_cuda_dense(c->device, &h->target_length, c->arg[at + 3].tensor, AH_I64));
    AH_TRY(ah_tensor_empty(&h->label, target->size, 2, AH_I64, c->device));
    if (chained)
        AH_TRY(ah_cuda_memory_take(memory, (size_t)target->numel * sizeof(int32_t), &h->chain));
    p->x = ah_cuda_data(h->x);
    p->label = ah_cuda_data(h->target);
    p->input_length = ah_cuda_data(h->input_length);
    p->target_length = ah_cuda_data(h->target_length);
    struct ah_ctc_labels_args args = {*p, ah_cuda_data(h->label), ah_cuda_address(h->chain)};
    if (target->numel > 0)
        AH_TRY(ah_cuda_launch(c->device, &labels_kernel, c->op->name, ah_cuda_grid_for(target->numel, AH_CTC_THREADS),
                              &args));
    p->label = ah_cuda_data(h->label);
    return 0;
}

static int ctc_expect(struct ah_call *c, const struct ah_ctc *p, const struct held *h)
{
    const struct {
        const char *what;
        int64_t high;
        const struct ah_tensor *numbers;
    } look[] = {{"input length", p->steps, h->input_length}, {"target length", p->longest, h->target_length},
                {"target", p->classes - 1, h->label}};
    for (size_t i = 0; i < sizeof look / sizeof *look; i++)
        AH_TRY(ah_cuda_expect_within(c->device, &(struct ah_cuda_bounds){"ctc_loss", look[i].what, 0, look[i].high, 0,
                                                                         NULL, 0}, look[i].numbers));
    return 0;
}

/* A block for each sequence, with a thread for each place as far as it goes. */
static int ctc_walk(struct ah_call *c, struct ah_cuda_kernel *kernel, enum ah_dtype real, struct ah_ctc_pass_args *args)
{
    struct ah_cuda_device *cuda = ah_cuda_state(c->device);
    int64_t places = 2 * args->ctc.longest + 1, threads = places < AH_CTC_MOST ? (places + 31) / 32 * 32 : AH_CTC_MOST;
    size_t bytes = 2 * (size_t)places * ah_dtype_size(real);
    struct ah_cuda_grid grid = {ah_cuda_blocks(args->ctc.batch, 1), (unsigned)threads, 0};
    void *rows = NULL;
    if (bytes <= (size_t)cuda->shared_limit)
        grid.shared_bytes = (unsigned)bytes;
    else
        AH_TRY(ah_cuda_memory_take(cuda->memory, grid.blocks * bytes, &rows));
    args->rows = ah_cuda_address(rows);
    int status = ah_cuda_launch(c->device, kernel, c->op->name, grid, args);
    ah_cuda_memory_give(cuda->memory, rows);
    return status;
}

int ah_cuda_ctc(struct ah_call *c)
{
    const struct ah_args_ctc *arg = ah_args(c, ctc);
    struct held h = {NULL};
    struct ah_ctc_pass_args args = {.alpha = ah_cuda_data(c->extra[0]), .loss = ah_cuda_data(c->extra[1]),
                                    .out = ah_cuda_data(c->out[0])};
    int status;
    if (c->out[0]->numel == 0)
        return 0;
    AH_TRYGO(open_held(c, 0, arg->blank.integer, arg->zero_infinity.flag, false, &h, &args.ctc), out);
    AH_TRYGO(ctc_expect(c, &args.ctc, &h), out);
    status = ctc_walk(c, &forward_kernel[h.x->dtype], c->extra[1]->dtype, &args);
out:
    ctc_release(c, &h);
    return status;
}

int ah_cuda_ctc_backward(struct ah_call *c)
{
    const struct ah_args_ctc_backward *arg = ah_args(c, ctc_backward);
    struct ah_cuda_memory *memory = ah_cuda_state(c->device)->memory;
    struct ah_tensor *out = c->out[0], *alpha = arg->log_alpha.tensor, *g = NULL;
    struct held h = {NULL};
    struct ah_ctc_pass_args args = {.alpha = ah_cuda_data(alpha), .loss = ah_cuda_data(arg->likelihood.tensor)};
    void *terms = NULL;
    int status;
    if (out->numel == 0)
        return 0;
    AH_TRYGO(open_held(c, 1, arg->blank.integer, arg->zero_infinity.flag, true, &h, &args.ctc), out);
    AH_TRYGO(ah_cuda_dense(c->device, &g, arg->grad.tensor, out->dtype), out);
    AH_TRYGO(ah_cuda_memory_take(memory, ah_tensor_bytes(alpha), &terms), out);
    args.terms = ah_cuda_address(terms);
    AH_TRYGO(ctc_walk(c, &terms_kernel[out->dtype], alpha->dtype, &args), out);
    struct ah_ctc_gradient_args gradient = {.ctc = args.ctc, .chain = ah_cuda_address(h.chain), .terms = args.terms,
                                            .loss = args.loss, .g = ah_cuda_data(g), .gx = ah_cuda_data(out)};
    gradient.wide = ah_cuda_rows_wide(args.ctc.classes, out->dtype, args.ctc.x, gradient.gx, 0);
    status = ah_cuda_launch_rows(c->device, &gradient_kernel, c->op->name, out->dtype, args.ctc.steps * args.ctc.batch,
                                 args.ctc.classes, &gradient, sizeof gradient);
out:
    ah_cuda_memory_give(memory, terms);
    ah_tensor_release(g);
    ctc_release(c, &h);
    return status;
}
