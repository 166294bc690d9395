/* Convolutions by oneDNN: forward and both gradients of dense N, H, W, C arrays.
 *
 * The primitive chooses the weight's layout; a row-major weight is rearranged before it, or after it where the weight
 * is the result. The gradient of a bfloat16 weight is summed in float32 and rounded once, when it is rearranged. */
#include "cpu/loop/onednn.h"

#include <string.h>

#include "base/memory/alloc.h"
#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "base/status/failure.h"
#include "base/status/status.h"
#include "cpu/loop/onednn_cache.h"

/* `gradient`: of the weight, always float32. */
struct conv_descs {
    dnnl_memory_desc_t src, dst, weight_any, gradient_any, weight_plain, bias;
};

static int conv_descs_make(struct conv_descs *d, const struct ah_conv *s, bool half, bool bias)
{
    const dnnl_data_type_t type = half ? dnnl_bf16 : dnnl_f32;
    memset(d, 0, sizeof *d);
    dnnl_dims_t src = {s->n, s->c, s->h, s->w}, src_stride = {s->h * s->w * s->c, 1, s->w * s->c, s->c};
    dnnl_dims_t dst = {s->n, s->oc, s->oh, s->ow}, dst_stride = {s->oh * s->ow * s->oc, 1, s->ow * s->oc, s->oc};
    /* Without groups the weight is 4-d. Arrays have the library's full length, which it declares to read. */
    int64_t per = s->c / s->groups, kernel = s->kh * s->kw;
    dnnl_dims_t weight = {0}, weight_stride = {0}, bias_size = {s->oc}, bias_stride = {1};
    int at = 0;
    if (s->groups > 1) {
        weight[at] = s->groups;
        weight_stride[at++] = s->oc / s->groups * per * kernel;
    }
    const int64_t size[4] = {s->oc / s->groups, per, s->kh, s->kw}, step[4] = {per * kernel, kernel, s->kw, 1};
    for (int i = 0; i < 4; i++) {
        weight[at] = size[i];
        weight_stride[at++] = step[i];
    }
    int code = md_strided(&d->src, type, 4, src, src_stride);
    if (code == dnnl_success)
        code = md_strided(&d->dst, type, 4, dst, dst_stride);
    if (code == dnnl_success)
        code = md_any(&d->weight_any, type, at, weight);
    if (code == dnnl_success)
        code = md_any(&d->gradient_any, dnnl_f32, at, weight);
    if (code == dnnl_success)
        code = md_strided(&d->weight_plain, type, at, weight, weight_stride);
    if (code == dnnl_success && bias)
        code = md_strided(&d->bias, type, 1, bias_size, bias_stride);
    return code;
}

static void conv_descs_free(struct conv_descs *d)
{
    md_free(&d->src);
    md_free(&d->dst);
    md_free(&d->weight_any);
    md_free(&d->gradient_any);
    md_free(&d->weight_plain);
    md_free(&d->bias);
}

/* The primitive descriptor for a kind; the backward ones want the forward one as a hint. */
static int conv_pd(dnnl_primitive_desc_t *pd, enum ah_onednn_kind kind, const struct ah_conv *s, struct conv_descs *d,
                   bool bias, dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint)
{
    dnnl_dims_t stride = {0}, dilate = {0}, before = {0}, after = {0};
    const int64_t in[2] = {s->h, s->w}, out[2] = {s->oh, s->ow}, kernel[2] = {s->kh, s->kw};
    for (int i = 0; i < 2; i++) {
        stride[i] = s->stride[i];
        dilate[i] = s->dilation[i] - 1;
        before[i] = s->padding[i];
        after[i] = (out[i] - 1) * s->stride[i] + (kernel[i] - 1) * s->dilation[i] + 1 - in[i] - s->padding[i];
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    if (kind == FORWARD)
        return ah_dnnl.convolution_forward_primitive_desc_create(pd, ah_onednn_engine, dnnl_forward_training, alg,
                                                                 d->src, d->weight_any, bias ? d->bias : NULL, d->dst,
                                                                 stride, dilate, before, after, attr);
    if (kind == GRAD_INPUT)
        return ah_dnnl.convolution_backward_data_primitive_desc_create(pd, ah_onednn_engine, alg, d->src,
                                                                       d->weight_any, d->dst, stride, dilate, before,
                                                                       after, hint, attr);
    return ah_dnnl.convolution_backward_weights_primitive_desc_create(pd, ah_onednn_engine, alg, d->src,
                                                                      d->gradient_any, bias ? d->bias : NULL, d->dst,
                                                                      stride, dilate, before, after, hint, attr);
#else
    dnnl_convolution_desc_t desc;
    const dnnl_memory_desc_t *b = bias ? &d->bias : NULL;
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    int code;
    if (kind == FORWARD)
        code = ah_dnnl.dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, alg, &d->src,
                                                             &d->weight_any, b, &d->dst, stride, dilate, before, after);
    else if (kind == GRAD_INPUT)
        code = ah_dnnl.dilated_convolution_backward_data_desc_init(&desc, alg, &d->src, &d->weight_any, &d->dst, stride,
                                                                   dilate, before, after);
    else
        code = ah_dnnl.dilated_convolution_backward_weights_desc_init(&desc, alg, &d->src, &d->gradient_any, b, &d->dst,
                                                                      stride, dilate, before, after);
    return code == dnnl_success ? (int)ah_dnnl.primitive_desc_create(pd, &desc, attr, ah_onednn_engine, hint) : code;
#endif
}

static md_ref weight_md(enum ah_onednn_kind kind, const_dnnl_primitive_desc_t pd)
{
    return ah_dnnl.primitive_desc_query_md(pd, kind == GRAD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md,
                                        0);
}

static int make_reorder(struct ah_onednn_entry *entry, md_ref from, md_ref to)
{
    dnnl_primitive_desc_t pd = NULL;
    int code = ah_dnnl.reorder_primitive_desc_create(&pd, from, ah_onednn_engine, to, ah_onednn_engine, NULL);
    if (code == dnnl_success)
        code = ah_dnnl.primitive_create(&entry->reorder, pd);
    if (pd)
        ah_dnnl.primitive_desc_destroy(pd);
    return code;
}

static int conv_fill(struct ah_onednn_entry *entry, enum ah_onednn_kind kind, const struct ah_conv *s, bool bias)
{
    struct conv_descs d;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    int code = conv_descs_make(&d, s, entry->key.half, bias);
    if (code == dnnl_success)
        code = ah_onednn_attr(&attr);
    if (code == dnnl_success && kind != FORWARD)
        code = conv_pd(&hint, FORWARD, s, &d, false, attr, NULL);
    if (code == dnnl_success)
        code = conv_pd(&pd, kind, s, &d, bias, attr, hint);
    code = ah_onednn_primitive(entry, pd, code);
    if (entry->absent)
        goto out;
    if (code == dnnl_success)
        code = ah_onednn_memory(entry, MEM_A, REF(d.src));
    if (code == dnnl_success)
        code = ah_onednn_memory(entry, MEM_C, REF(d.dst));
    if (code == dnnl_success && bias)
        code = ah_onednn_memory(entry, MEM_BIAS, REF(d.bias));
    if (code == dnnl_success)
        code = ah_onednn_memory(entry, MEM_B, weight_md(kind, pd));
    entry->weight_bytes = ah_dnnl.memory_desc_get_size(weight_md(kind, pd));
    if (code == dnnl_success && !ah_dnnl.memory_desc_equal(weight_md(kind, pd), REF(d.weight_plain))) {
        code = ah_onednn_memory(entry, MEM_PLAIN, REF(d.weight_plain));
        if (code == dnnl_success && kind == GRAD_WEIGHT)
            code = make_reorder(entry, weight_md(kind, pd), REF(d.weight_plain));
        else if (code == dnnl_success)
            code = make_reorder(entry, REF(d.weight_plain), weight_md(kind, pd));
    }
out:
    if (pd)
        ah_dnnl.primitive_desc_destroy(pd);
    if (hint)
        ah_dnnl.primitive_desc_destroy(hint);
    if (attr)
        ah_dnnl.primitive_attr_destroy(attr);
    conv_descs_free(&d);
    return code;
}

/* A convolution, and how it is divided among threads: into pieces of `step` images, the last of them smaller or equal,
 * or (team) by the library itself. */
struct conv_run {
    enum ah_onednn_kind kind;
    const struct ah_conv *shape;
    bool half, team;
    int pieces;
    int64_t step;
    const char *src, *dst;               /* or their gradients */
    const void *weight, *bias;           /* row-major */
    struct ah_onednn_entry *first, *last; /* the primitives of all pieces but the last, and of the last */
    void *rearranged[2];                 /* the weight as each of them reads it */
    char *sums;                          /* the weight's gradient by piece */
    char *scratch;                       /* `scratch_bytes` for each thread */
    size_t scratch_bytes;
    struct ah_failure failure;
};

enum {
    LEAST_WORK = 1000000, /* multiplications of a piece: about 20 us */
    LARGE_WORK = 8000000, /* with pieces of this size there are two per thread, so that a late one costs less */
    SMALL_WEIGHT = 1 << 18, /* bytes that one thread rearranges */
    VECTOR = 8,             /* numbers of a vector of AVX2 */
};

static int64_t conv_src_items(const struct ah_conv *s)
{
    return s->c * s->h * s->w;
}

static int64_t conv_dst_items(const struct ah_conv *s)
{
    return s->oc * s->oh * s->ow;
}

static int64_t conv_weight_items(const struct ah_conv *s)
{
    return s->oc * (s->c / s->groups) * s->kh * s->kw;
}

/* Choose the pieces. Each reads the weight, or has its own sum of its gradient, in float32: the library divides where
 * these would be larger than their images, and where there are fewer images than threads. */
static void conv_divide(struct conv_run *run)
{
    const struct ah_conv *s = run->shape;
    int threads = ah_num_threads();
    double work = (double)s->n * (double)conv_weight_items(s) * (double)(s->oh * s->ow);
    run->pieces = 1;
    run->step = s->n;
    if (threads == 1 || work < 2 * LEAST_WORK || ah_region_is_divided())
        return;
    int64_t sums = (run->kind == GRAD_WEIGHT ? threads : 1) * conv_weight_items(s);
    run->team = s->n < threads || 4 * sums > s->n * (conv_src_items(s) + conv_dst_items(s));
    if (run->team)
        return;
    bool more = run->kind != GRAD_WEIGHT && work >= 2.0 * threads * LARGE_WORK && s->n >= 2 * threads;
    int64_t most = more ? 2 * threads : threads;
    run->step = (s->n + most - 1) / most;
    run->pieces = (int)((s->n + run->step - 1) / run->step);
}

/* Find or make the primitive for `images` of the convolution: 1, or 0 where there is no fast one. */
static int conv_entry(struct ah_onednn_entry **out, const struct conv_run *run, int64_t images)
{
    struct ah_conv s = *run->shape;
    s.n = images;
    AH_TRY(ah_onednn_open());
    struct ah_onednn_key key;
    memset(&key, 0, sizeof key);
    key.kind = run->kind;
    key.threads = run->team ? ah_num_threads() : 1;
    key.runners = run->team ? 1 : ah_num_threads();
    key.with_bias = run->bias != NULL;
    key.half = run->half;
    const int64_t size[16] = {s.n,          s.c,          s.h,           s.w,          s.oc,        s.oh,
                              s.ow,         s.kh,         s.kw,          s.groups,     s.stride[0], s.stride[1],
                              s.padding[0], s.padding[1], s.dilation[0], s.dilation[1]};
    memcpy(key.size, size, sizeof size);
    bool fresh;
    struct ah_onednn_entry *entry = ah_onednn_entry(&key, &fresh);
    if (fresh) {
        int code = conv_fill(entry, run->kind, &s, run->bias != NULL);
        if (code != dnnl_success) {
            ah_onednn_entry_clear(entry);
            return ah_onednn_failed("making a convolution", code);
        }
    }
    *out = entry;
    return !entry->absent;
}

/* Run the reorder between the row-major weight and `blocked`, in the direction of the primitive's kind. */
static int conv_rearrange(const struct conv_run *run, struct ah_onednn_entry *entry, void *blocked)
{
    ah_onednn_point(entry, MEM_PLAIN, run->weight);
    ah_onednn_point(entry, MEM_B, blocked);
    const dnnl_memory_t *memory = ah_onednn_handles(entry);
    dnnl_memory_t plain = memory[MEM_PLAIN], other = memory[MEM_B];
    bool back = run->kind == GRAD_WEIGHT;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, back ? other : plain}, {DNNL_ARG_TO, back ? plain : other}};
    if (entry->weight_bytes > SMALL_WEIGHT)
        ah_library_threads_begin();
    int code = ah_dnnl.primitive_execute(entry->reorder, ah_onednn_stream, 2, args);
    if (entry->weight_bytes > SMALL_WEIGHT)
        ah_library_threads_end();
    return code == dnnl_success ? 0 : ah_onednn_failed("rearranging a weight", code);
}

static int conv_run_piece_on(struct conv_run *run, struct ah_onednn_entry *entry, const void *weight, int64_t image)
{
    enum ah_onednn_kind kind = run->kind;
    int64_t item = run->half ? 2 : 4;
    ah_onednn_point(entry, MEM_SCRATCH, run->scratch + (size_t)ah_thread_index() * run->scratch_bytes);
    ah_onednn_point(entry, MEM_A, run->src + image * conv_src_items(run->shape) * item);
    ah_onednn_point(entry, MEM_C, run->dst + image * conv_dst_items(run->shape) * item);
    ah_onednn_point(entry, MEM_BIAS, run->bias);
    ah_onednn_point(entry, MEM_B, weight);
    const dnnl_memory_t *memory = ah_onednn_handles(entry);
    const dnnl_exec_arg_t operand[3] = {
        {kind == GRAD_INPUT ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, memory[MEM_A]},
        {kind == GRAD_WEIGHT ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, memory[MEM_B]},
        {kind == FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, memory[MEM_C]},
    };
    int code = ah_onednn_run(entry, operand);
    return code == dnnl_success ? 0 : ah_onednn_failed("a convolution", code);
}

static void conv_run_piece(void *context, int piece)
{
    struct conv_run *run = context;
    bool is_last = piece + 1 == run->pieces;
    struct ah_onednn_entry *entry = is_last ? run->last : run->first;
    const void *weight = entry->reorder ? run->rearranged[is_last] : run->weight;
    if (run->sums)
        weight = run->sums + (size_t)piece * run->first->weight_bytes;
    int status = conv_run_piece_on(run, entry, weight, piece * run->step);
    ah_failure_note(&run->failure, status);
}

/* Add the pieces' sums to those of the first, in the order of the pieces. */
static void conv_add_sums(void *context, int64_t begin, int64_t end)
{
    const struct conv_run *run = context;
    int64_t count = (int64_t)(run->first->weight_bytes / sizeof(float));
    float *sum = (float *)(void *)run->sums;
    for (int piece = 1; piece < run->pieces; piece++) {
        const float *other = sum + piece * count;
#pragma omp simd
        for (int64_t i = begin; i < end; i++)
            sum[i] += other[i];
    }
}

/* For the weight's gradient of a strided 1x1 convolution, oneDNN 2.6 on AVX2 writes a copy of the input with whole
 * vectors of channels, and states the bytes of the channels alone. */
static size_t conv_scratch_bytes(const struct conv_run *run, const struct ah_onednn_entry *entry)
{
    const struct ah_conv *s = run->shape;
    size_t bytes = ah_onednn_scratch_bytes(entry), channels = (size_t)(s->c / s->groups);
    if (run->kind != GRAD_WEIGHT || s->kh * s->kw > 1 || s->stride[0] * s->stride[1] == 1)
        return bytes;
    return (bytes * ((channels + VECTOR - 1) / VECTOR * VECTOR) / channels + 63) / 64 * 64;
}

static int conv_execute(struct conv_run *run)
{
    int status = 0;
    size_t bytes = run->first->weight_bytes, sums = (size_t)run->pieces * bytes;
    size_t one = conv_scratch_bytes(run, run->first), other = conv_scratch_bytes(run, run->last);
    run->scratch_bytes = one > other ? one : other;
    size_t scratch = run->scratch_bytes * (size_t)(run->pieces > 1 ? ah_num_threads() : 1);
    AH_TRYGO(ah_block_alloc(scratch, (void **)&run->scratch), out);
    if (run->kind == GRAD_WEIGHT && (run->pieces > 1 || run->first->reorder)) {
        AH_TRYGO(ah_block_alloc(sums, (void **)&run->sums), out);
    } else if (run->first->reorder) {
        for (int i = run->pieces > 1 ? 0 : 1; i < 2; i++) {
            struct ah_onednn_entry *entry = i ? run->last : run->first;
            AH_TRYGO(ah_block_alloc(entry->weight_bytes, &run->rearranged[i]), out);
            AH_TRYGO(conv_rearrange(run, entry, run->rearranged[i]), out);
        }
    }
    if (run->team) {
        ah_library_threads_begin();
        conv_run_piece(run, 0);
        ah_library_threads_end();
    } else {
        ah_pool_run(run->pieces, conv_run_piece, run);
    }
    status = ah_failure_result(&run->failure);
    if (status < 0 || !run->sums)
        goto out;
    if (run->pieces > 1)
        ah_parallel_for((int64_t)(bytes / sizeof(float)), AH_SHARE_LIGHT, conv_add_sums, run);
    if (run->first->reorder)
        AH_TRYGO(conv_rearrange(run, run->first, run->sums), out);
    else
        memcpy((void *)(uintptr_t)run->weight, run->sums, bytes);
out:
    ah_block_free(run->scratch, scratch);
    ah_block_free(run->sums, sums);
    ah_block_free(run->rearranged[0], run->first->weight_bytes);
    ah_block_free(run->rearranged[1], run->last->weight_bytes);
    return status < 0 ? status : 1;
}

/* Make the primitives, of the team with its threads. */
static int conv_find(struct conv_run *run)
{
    if (run->team)
        ah_library_threads_begin();
    int found = conv_entry(&run->first, run, run->step);
    if (found > 0)
        found = conv_entry(&run->last, run, run->shape->n - (run->pieces - 1) * run->step);
    if (run->team)
        ah_library_threads_end();
    return found;
}

/* Do both pieces' primitives write the weight's gradient in one layout? */
static bool conv_has_one_layout(struct conv_run *run)
{
    return run->first == run->last || (run->first->weight_bytes == run->last->weight_bytes &&
                                       ah_onednn_same_layout(run->first, run->last, MEM_B));
}

static int conv_call(struct conv_run *run)
{
    conv_divide(run);
    int found = conv_find(run);
    if (found > 0 && run->kind == GRAD_WEIGHT && !conv_has_one_layout(run)) {
        run->team = true;
        run->pieces = 1;
        run->step = run->shape->n;
        found = conv_find(run);
    }
    return found > 0 ? conv_execute(run) : found;
}

int ah_onednn_conv(const struct ah_conv *conv, bool half, const void *src, const void *weight, const void *bias,
                   void *dst)
{
    struct conv_run run = {.kind = FORWARD, .shape = conv, .half = half, .src = src, .dst = dst, .weight = weight,
                           .bias = bias};
    return conv_call(&run);
}

int ah_onednn_conv_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const void *weight,
                              void *grad_src)
{
    struct conv_run run = {.kind = GRAD_INPUT, .shape = conv, .half = half, .src = grad_src, .dst = grad_dst,
                           .weight = weight};
    return conv_call(&run);
}

int ah_onednn_conv_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                               void *grad_weight)
{
    struct conv_run run = {.kind = GRAD_WEIGHT, .shape = conv, .half = half, .src = src, .dst = grad_dst,
                           .weight = grad_weight};
    return conv_call(&run);
}
