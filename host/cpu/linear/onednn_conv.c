/* Convolutions by oneDNN: forward and both gradients of dense N, H, W, C arrays.
 *
 * The primitive chooses the weight's layout; a row-major weight is rearranged before it, or after it where the weight
 * is the result. */
#include "cpu/loop/onednn.h"

#include <omp.h>
#include <string.h>

#include "base/memory/alloc.h"
#include "base/status/status.h"
#include "cpu/loop/onednn_cache.h"

struct conv_descs {
    dnnl_memory_desc_t src, dst, weight_any, weight_plain, bias;
};

static int conv_descs_make(struct conv_descs *d, const struct ah_conv *s, bool half, bool bias)
{
    const dnnl_data_type_t type = half ? dnnl_bf16 : dnnl_f32;
    memset(d, 0, sizeof *d);
    dnnl_dims_t src = {s->n, s->c, s->h, s->w}, src_stride = {s->h * s->w * s->c, 1, s->w * s->c, s->c};
    dnnl_dims_t dst = {s->n, s->oc, s->oh, s->ow}, dst_stride = {s->oh * s->ow * s->oc, 1, s->ow * s->oc, s->oc};
    /* Without groups the weight is 4-d. Arrays have the library's full length, which is what it declares to read. */
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
        return dnnl_convolution_forward_primitive_desc_create(pd, ah_onednn_engine, dnnl_forward_training, alg, d->src,
                                                              d->weight_any, bias ? d->bias : NULL, d->dst, stride,
                                                              dilate, before, after, attr);
    if (kind == GRAD_INPUT)
        return dnnl_convolution_backward_data_primitive_desc_create(pd, ah_onednn_engine, alg, d->src, d->weight_any,
                                                                    d->dst, stride, dilate, before, after, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(pd, ah_onednn_engine, alg, d->src, d->weight_any,
                                                                   bias ? d->bias : NULL, d->dst, stride, dilate,
                                                                   before, after, hint, attr);
#else
    dnnl_convolution_desc_t desc;
    const dnnl_memory_desc_t *b = bias ? &d->bias : NULL;
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    int code;
    if (kind == FORWARD)
        code = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, alg, &d->src, &d->weight_any, b,
                                                          &d->dst, stride, dilate, before, after);
    else if (kind == GRAD_INPUT)
        code = dnnl_dilated_convolution_backward_data_desc_init(&desc, alg, &d->src, &d->weight_any, &d->dst, stride,
                                                                dilate, before, after);
    else
        code = dnnl_dilated_convolution_backward_weights_desc_init(&desc, alg, &d->src, &d->weight_any, b, &d->dst,
                                                                   stride, dilate, before, after);
    return code == dnnl_success ? (int)dnnl_primitive_desc_create(pd, &desc, attr, ah_onednn_engine, hint) : code;
#endif
}

static md_ref weight_md(enum ah_onednn_kind kind, const_dnnl_primitive_desc_t pd)
{
    return dnnl_primitive_desc_query_md(pd, kind == GRAD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md,
                                        0);
}

static int make_reorder(struct ah_onednn_entry *entry, md_ref from, md_ref to)
{
    dnnl_primitive_desc_t pd = NULL;
    int code = dnnl_reorder_primitive_desc_create(&pd, from, ah_onednn_engine, to, ah_onednn_engine, NULL);
    if (code == dnnl_success)
        code = dnnl_primitive_create(&entry->reorder, pd);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
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
    if (code == dnnl_success && !dnnl_memory_desc_equal(weight_md(kind, pd), REF(d.weight_plain))) {
        entry->weight_bytes = dnnl_memory_desc_get_size(weight_md(kind, pd));
        code = ah_onednn_memory(entry, MEM_PLAIN, REF(d.weight_plain));
        if (code == dnnl_success && kind == GRAD_WEIGHT)
            code = make_reorder(entry, weight_md(kind, pd), REF(d.weight_plain));
        else if (code == dnnl_success)
            code = make_reorder(entry, REF(d.weight_plain), weight_md(kind, pd));
    }
out:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    conv_descs_free(&d);
    return code;
}

static int conv_entry(struct ah_onednn_entry **out, enum ah_onednn_kind kind, const struct ah_conv *s, bool half,
                      bool bias)
{
    AH_TRY(ah_onednn_open());
    struct ah_onednn_key key;
    memset(&key, 0, sizeof key);
    key.kind = kind;
    key.threads = omp_get_max_threads();
    key.with_bias = bias;
    key.half = half;
    const int64_t size[16] = {s->n,          s->c,          s->h,           s->w,          s->oc,        s->oh,
                              s->ow,         s->kh,         s->kw,          s->groups,     s->stride[0], s->stride[1],
                              s->padding[0], s->padding[1], s->dilation[0], s->dilation[1]};
    memcpy(key.size, size, sizeof size);
    bool fresh;
    struct ah_onednn_entry *entry = ah_onednn_entry(&key, &fresh);
    if (fresh) {
        int code = conv_fill(entry, kind, s, bias);
        if (code != dnnl_success) {
            ah_onednn_entry_clear(entry);
            return ah_onednn_failed("making a convolution", code);
        }
    }
    *out = entry;
    return !entry->absent;
}

/* Run the convolution (and the weight's rearrangement before it, or after it where the weight is the result). */
static int conv_run(struct ah_onednn_entry *entry, const void *src, const void *weight, const void *bias,
                    const void *dst)
{
    enum ah_onednn_kind kind = (enum ah_onednn_kind)entry->key.kind;
    void *scratch = NULL, *rearranged = NULL;
    int status = 0, code = dnnl_success;
    AH_TRYGO(ah_block_alloc(entry->scratch_bytes, &scratch), out);
    AH_TRYGO(ah_block_alloc(entry->weight_bytes, &rearranged), out);
    ah_onednn_point(entry, MEM_SCRATCH, scratch);
    ah_onednn_point(entry, MEM_A, src);
    ah_onednn_point(entry, MEM_C, dst);
    ah_onednn_point(entry, MEM_BIAS, bias);
    ah_onednn_point(entry, MEM_PLAIN, weight);
    ah_onednn_point(entry, MEM_B, entry->reorder ? rearranged : (const void *)weight);

    if (entry->reorder && kind != GRAD_WEIGHT) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, entry->memory[MEM_PLAIN]}, {DNNL_ARG_TO, entry->memory[MEM_B]}};
        code = dnnl_primitive_execute(entry->reorder, ah_onednn_stream, 2, args);
    }
    const dnnl_exec_arg_t operand[3] = {
        {kind == GRAD_INPUT ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, entry->memory[MEM_A]},
        {kind == GRAD_WEIGHT ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, entry->memory[MEM_B]},
        {kind == FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, entry->memory[MEM_C]},
    };
    if (code == dnnl_success)
        code = ah_onednn_run(entry, operand);
    if (code == dnnl_success && entry->reorder && kind == GRAD_WEIGHT) {
        const dnnl_exec_arg_t back[] = {{DNNL_ARG_FROM, entry->memory[MEM_B]}, {DNNL_ARG_TO, entry->memory[MEM_PLAIN]}};
        code = dnnl_primitive_execute(entry->reorder, ah_onednn_stream, 2, back);
    }
    if (code == dnnl_success)
        code = dnnl_stream_wait(ah_onednn_stream);
    status = code == dnnl_success ? 1 : ah_onednn_failed("a convolution", code);
out:
    ah_block_free(scratch, entry->scratch_bytes);
    ah_block_free(rearranged, entry->weight_bytes);
    return status;
}

int ah_onednn_conv(const struct ah_conv *conv, bool half, const void *src, const void *weight, const void *bias,
                   void *dst)
{
    struct ah_onednn_entry *entry;
    int found = conv_entry(&entry, FORWARD, conv, half, bias != NULL);
    return found > 0 ? conv_run(entry, src, weight, bias, dst) : found;
}

int ah_onednn_conv_grad_input(const struct ah_conv *conv, bool half, const void *grad_dst, const void *weight,
                              void *grad_src)
{
    struct ah_onednn_entry *entry;
    int found = conv_entry(&entry, GRAD_INPUT, conv, half, false);
    return found > 0 ? conv_run(entry, grad_src, weight, NULL, grad_dst) : found;
}

int ah_onednn_conv_grad_weight(const struct ah_conv *conv, bool half, const void *src, const void *grad_dst,
                               void *grad_weight)
{
    struct ah_onednn_entry *entry;
    int found = conv_entry(&entry, GRAD_WEIGHT, conv, half, false);
    return found > 0 ? conv_run(entry, src, grad_weight, NULL, grad_dst) : found;
}
