#include "cpu/onednn.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include <dnnl.h>
#include <dnnl_version.h>

#include "base/alloc.h"
#include "base/status.h"

/* Memory descriptors are structs in version 2 and opaque handles in version 3, and version 3 makes primitive
 * descriptors directly; the differences end with this block. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t md_ref;
#define REF(md) (md)

static int md_strided(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims,
                      const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(md, ndims, dims, type, strides);
}

static int md_any(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims)
{
    return dnnl_memory_desc_create_with_tag(md, ndims, dims, type, dnnl_format_tag_any);
}

static void md_free(dnnl_memory_desc_t *md)
{
    if (*md)
        dnnl_memory_desc_destroy(*md);
    *md = NULL;
}
#else
typedef const dnnl_memory_desc_t *md_ref;
#define REF(md) (&(md))

static int md_strided(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims,
                      const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(md, ndims, dims, type, strides);
}

static int md_any(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims)
{
    return dnnl_memory_desc_init_by_tag(md, ndims, dims, type, dnnl_format_tag_any);
}

static void md_free(dnnl_memory_desc_t *md)
{
}
#endif

enum kind { FORWARD, GRAD_INPUT, GRAD_WEIGHT, MATMUL };

/* Everything a primitive was made for; zeroed before filling, compared as bytes. */
struct key {
    int64_t kind, threads, with_bias, half;
    int64_t size[16];
};

enum { MEM_A, MEM_B, MEM_BIAS, MEM_C, MEM_PLAIN, MEM_SCRATCH, MEM_COUNT };

/* One cached primitive with the memory handles it is run on. MEM_A, MEM_B and MEM_C are its operands in the order of
 * the public call; MEM_PLAIN is the row-major weight where the primitive wants (or makes) it rearranged. */
struct entry {
    struct key key;
    uint64_t used;
    bool absent; /* oneDNN has no fast kernel for this: decline at once */
    dnnl_primitive_t primitive, reorder;
    dnnl_memory_t memory[MEM_COUNT];
    size_t scratch_bytes, weight_bytes;
};

enum { ENTRIES = 256, PROBES = 8 };
static struct entry cache[ENTRIES];
static uint64_t clock_ticks;
static dnnl_engine_t engine;
static dnnl_stream_t stream;

static int failed(const char *what, int code)
{
    int status = code == dnnl_out_of_memory ? AH_ENOMEM : AH_EIO;
    return ah_fail(status, "oneDNN: %s failed with status %d", what, code);
}

static int open_engine(void)
{
    if (engine)
        return 0;
    int code = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (code == dnnl_success)
        code = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    if (code == dnnl_success)
        return 0;
    if (engine)
        dnnl_engine_destroy(engine);
    engine = NULL;
    return failed("opening the engine", code);
}

static void entry_clear(struct entry *entry)
{
    if (entry->primitive)
        dnnl_primitive_destroy(entry->primitive);
    if (entry->reorder)
        dnnl_primitive_destroy(entry->reorder);
    for (int i = 0; i < MEM_COUNT; i++)
        if (entry->memory[i])
            dnnl_memory_destroy(entry->memory[i]);
    memset(entry, 0, sizeof *entry);
}

/* The entry for a key; *fresh tells that it has yet to be filled. A full neighbourhood gives up its oldest. */
static struct entry *entry_find(const struct key *key, bool *fresh)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    const uint64_t *word = (const uint64_t *)(const void *)key;
    for (size_t i = 0; i < sizeof *key / sizeof *word; i++)
        hash = (hash ^ word[i]) * 0xff51afd7ed558ccdu, hash ^= hash >> 32;
    struct entry *oldest = NULL;
    for (int probe = 0; probe < PROBES; probe++) {
        struct entry *entry = &cache[(hash + (uint64_t)probe) % ENTRIES];
        if (entry->used && !memcmp(&entry->key, key, sizeof *key)) {
            entry->used = ++clock_ticks;
            *fresh = false;
            return entry;
        }
        if (!oldest || entry->used < oldest->used)
            oldest = entry;
    }
    entry_clear(oldest);
    oldest->key = *key;
    oldest->used = ++clock_ticks;
    *fresh = true;
    return oldest;
}

static int make_memory(struct entry *entry, int which, md_ref md)
{
    return dnnl_memory_create(&entry->memory[which], md, engine, DNNL_MEMORY_NONE);
}

/* The reference implementations are slower than im2col and a product. */
static bool is_fast(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name &&
           strncmp(name, "ref", 3) != 0 && strncmp(name, "gemm:ref", 8) != 0;
}

static int attr_with_scratchpad(dnnl_primitive_attr_t *attr)
{
    int code = dnnl_primitive_attr_create(attr);
    if (code == dnnl_success)
        code = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    return code;
}

static int make_scratch(struct entry *entry, const_dnnl_primitive_desc_t pd)
{
    md_ref md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    entry->scratch_bytes = md ? dnnl_memory_desc_get_size(md) : 0;
    return entry->scratch_bytes ? make_memory(entry, MEM_SCRATCH, md) : dnnl_success;
}

/* Convolution. */

struct conv_descs {
    dnnl_memory_desc_t src, dst, weight_any, weight_plain, bias;
};

static int conv_descs_make(struct conv_descs *d, const struct ah_conv *s, bool bias)
{
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
    int code = md_strided(&d->src, dnnl_f32, 4, src, src_stride);
    if (code == dnnl_success)
        code = md_strided(&d->dst, dnnl_f32, 4, dst, dst_stride);
    if (code == dnnl_success)
        code = md_any(&d->weight_any, dnnl_f32, at, weight);
    if (code == dnnl_success)
        code = md_strided(&d->weight_plain, dnnl_f32, at, weight, weight_stride);
    if (code == dnnl_success && bias)
        code = md_strided(&d->bias, dnnl_f32, 1, bias_size, bias_stride);
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
static int conv_pd(dnnl_primitive_desc_t *pd, enum kind kind, const struct ah_conv *s, struct conv_descs *d, bool bias,
                   dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint)
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
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, alg, d->src,
                                                              d->weight_any, bias ? d->bias : NULL, d->dst, stride,
                                                              dilate, before, after, attr);
    if (kind == GRAD_INPUT)
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, alg, d->src, d->weight_any, d->dst,
                                                                    stride, dilate, before, after, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, alg, d->src, d->weight_any,
                                                                   bias ? d->bias : NULL, d->dst, stride, dilate,
                                                                   before, after, hint, attr);
#else
    dnnl_convolution_desc_t desc;
    const dnnl_memory_desc_t *b = bias ? &d->bias : NULL;
    const dnnl_alg_kind_t alg = dnnl_convolution_direct;
    int code;
    if (kind == FORWARD)
        code = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, alg, &d->src, &d->weight_any,
                                                          b, &d->dst, stride, dilate, before, after);
    else if (kind == GRAD_INPUT)
        code = dnnl_dilated_convolution_backward_data_desc_init(&desc, alg, &d->src, &d->weight_any, &d->dst, stride,
                                                                dilate, before, after);
    else
        code = dnnl_dilated_convolution_backward_weights_desc_init(&desc, alg, &d->src, &d->weight_any, b, &d->dst,
                                                                   stride, dilate, before, after);
    return code == dnnl_success ? (int)dnnl_primitive_desc_create(pd, &desc, attr, engine, hint) : code;
#endif
}

static md_ref weight_md(enum kind kind, const_dnnl_primitive_desc_t pd)
{
    return dnnl_primitive_desc_query_md(pd, kind == GRAD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md,
                                        0);
}

static int make_reorder(struct entry *entry, md_ref from, md_ref to)
{
    dnnl_primitive_desc_t pd = NULL;
    int code = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL);
    if (code == dnnl_success)
        code = dnnl_primitive_create(&entry->reorder, pd);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return code;
}

static int conv_fill(struct entry *entry, enum kind kind, const struct ah_conv *s, bool bias)
{
    struct conv_descs d;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    int code = conv_descs_make(&d, s, bias);
    if (code == dnnl_success)
        code = attr_with_scratchpad(&attr);
    if (code == dnnl_success && kind != FORWARD)
        code = conv_pd(&hint, FORWARD, s, &d, false, attr, NULL);
    if (code == dnnl_success)
        code = conv_pd(&pd, kind, s, &d, bias, attr, hint);
    if (code == dnnl_unimplemented || (code == dnnl_success && !is_fast(pd))) {
        entry->absent = true;
        code = dnnl_success;
        goto out;
    }
    if (code == dnnl_success)
        code = dnnl_primitive_create(&entry->primitive, pd);
    if (code == dnnl_success)
        code = make_memory(entry, MEM_A, REF(d.src));
    if (code == dnnl_success)
        code = make_memory(entry, MEM_C, REF(d.dst));
    if (code == dnnl_success && bias)
        code = make_memory(entry, MEM_BIAS, REF(d.bias));
    if (code == dnnl_success)
        code = make_memory(entry, MEM_B, weight_md(kind, pd));
    if (code == dnnl_success && !dnnl_memory_desc_equal(weight_md(kind, pd), REF(d.weight_plain))) {
        entry->weight_bytes = dnnl_memory_desc_get_size(weight_md(kind, pd));
        code = make_memory(entry, MEM_PLAIN, REF(d.weight_plain));
        if (code == dnnl_success && kind == GRAD_WEIGHT)
            code = make_reorder(entry, weight_md(kind, pd), REF(d.weight_plain));
        else if (code == dnnl_success)
            code = make_reorder(entry, REF(d.weight_plain), weight_md(kind, pd));
    }
    if (code == dnnl_success)
        code = make_scratch(entry, pd);
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

static int conv_entry(struct entry **out, enum kind kind, const struct ah_conv *s, bool bias)
{
    AH_TRY(open_engine());
    struct key key;
    memset(&key, 0, sizeof key);
    key.kind = kind;
    key.threads = omp_get_max_threads();
    key.with_bias = bias;
    const int64_t size[16] = {s->n,      s->c,         s->h,         s->w,          s->oc,         s->oh,
                              s->ow,     s->kh,        s->kw,        s->groups,     s->stride[0],  s->stride[1],
                              s->padding[0], s->padding[1], s->dilation[0], s->dilation[1]};
    memcpy(key.size, size, sizeof size);
    bool fresh;
    struct entry *entry = entry_find(&key, &fresh);
    if (fresh) {
        int code = conv_fill(entry, kind, s, bias);
        if (code != dnnl_success) {
            entry_clear(entry);
            return failed("making a convolution", code);
        }
    }
    *out = entry;
    return !entry->absent;
}

static void point(struct entry *entry, int which, const void *data)
{
    if (entry->memory[which])
        dnnl_memory_set_data_handle(entry->memory[which], (void *)(uintptr_t)data);
}

/* Run the convolution (and the weight's rearrangement before it, or after it where the weight is the result). */
static int conv_run(struct entry *entry, const float *src, const float *weight, const float *bias, const float *dst)
{
    enum kind kind = (enum kind)entry->key.kind;
    void *scratch = NULL, *rearranged = NULL;
    int status = 0, code = dnnl_success;
    AH_TRYGO(ah_block_alloc(entry->scratch_bytes, &scratch), out);
    AH_TRYGO(ah_block_alloc(entry->weight_bytes, &rearranged), out);
    point(entry, MEM_SCRATCH, scratch);
    point(entry, MEM_A, src);
    point(entry, MEM_C, dst);
    point(entry, MEM_BIAS, bias);
    point(entry, MEM_PLAIN, weight);
    point(entry, MEM_B, entry->reorder ? rearranged : (const void *)weight);

    if (entry->reorder && kind != GRAD_WEIGHT) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, entry->memory[MEM_PLAIN]}, {DNNL_ARG_TO, entry->memory[MEM_B]}};
        code = dnnl_primitive_execute(entry->reorder, stream, 2, args);
    }
    dnnl_exec_arg_t args[5] = {
        {kind == GRAD_INPUT ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, entry->memory[MEM_A]},
        {kind == GRAD_WEIGHT ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, entry->memory[MEM_B]},
        {kind == FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, entry->memory[MEM_C]},
    };
    int count = 3;
    if (entry->memory[MEM_SCRATCH])
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, entry->memory[MEM_SCRATCH]};
    if (entry->memory[MEM_BIAS])
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, entry->memory[MEM_BIAS]};
    if (code == dnnl_success)
        code = dnnl_primitive_execute(entry->primitive, stream, count, args);
    if (code == dnnl_success && entry->reorder && kind == GRAD_WEIGHT) {
        const dnnl_exec_arg_t back[] = {{DNNL_ARG_FROM, entry->memory[MEM_B]}, {DNNL_ARG_TO, entry->memory[MEM_PLAIN]}};
        code = dnnl_primitive_execute(entry->reorder, stream, 2, back);
    }
    if (code == dnnl_success)
        code = dnnl_stream_wait(stream);
    status = code == dnnl_success ? 1 : failed("a convolution", code);
out:
    ah_block_free(scratch, entry->scratch_bytes);
    ah_block_free(rearranged, entry->weight_bytes);
    return status;
}

int ah_onednn_conv(const struct ah_conv *conv, const float *src, const float *weight, const float *bias, float *dst)
{
    struct entry *entry;
    int found = conv_entry(&entry, FORWARD, conv, bias != NULL);
    return found > 0 ? conv_run(entry, src, weight, bias, dst) : found;
}

int ah_onednn_conv_grad_input(const struct ah_conv *conv, const float *grad_dst, const float *weight,
                              float *grad_src)
{
    struct entry *entry;
    int found = conv_entry(&entry, GRAD_INPUT, conv, false);
    return found > 0 ? conv_run(entry, grad_src, weight, NULL, grad_dst) : found;
}

int ah_onednn_conv_grad_weight(const struct ah_conv *conv, const float *src, const float *grad_dst,
                               float *grad_weight)
{
    struct entry *entry;
    int found = conv_entry(&entry, GRAD_WEIGHT, conv, false);
    return found > 0 ? conv_run(entry, src, grad_weight, NULL, grad_dst) : found;
}

/* Products. */

const char *ah_onednn_version(void)
{
    static char text[48];
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return text;
}

int ah_onednn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    int code = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return code == dnnl_success ? 1 : failed("a matrix product", code);
}

static int matmul_fill(struct entry *entry)
{
    const int64_t *s = entry->key.size; /* ta tb m n k lda ldb ldc */
    const dnnl_data_type_t type = entry->key.half ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t a = {s[2], s[4]}, b = {s[4], s[3]}, c = {s[2], s[3]}, c_stride = {s[7], 1};
    dnnl_dims_t a_stride = {s[0] ? 1 : s[5], s[0] ? s[5] : 1}, b_stride = {s[1] ? 1 : s[6], s[1] ? s[6] : 1};
    dnnl_dims_t bias = {1, s[3]}, bias_stride = {s[3], 1};
    dnnl_memory_desc_t am, bm, cm, bias_md;
    memset(&am, 0, sizeof am);
    memset(&bm, 0, sizeof bm);
    memset(&cm, 0, sizeof cm);
    memset(&bias_md, 0, sizeof bias_md);
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int code = md_strided(&am, type, 2, a, a_stride);
    if (code == dnnl_success)
        code = md_strided(&bm, type, 2, b, b_stride);
    if (code == dnnl_success)
        code = md_strided(&cm, type, 2, c, c_stride);
    if (code == dnnl_success && entry->key.with_bias)
        code = md_strided(&bias_md, type, 2, bias, bias_stride);
    if (code == dnnl_success)
        code = attr_with_scratchpad(&attr);
    if (code == dnnl_success) {
#if DNNL_VERSION_MAJOR >= 3
        code = dnnl_matmul_primitive_desc_create(&pd, engine, am, bm, bias_md, cm, attr);
#else
        dnnl_matmul_desc_t desc;
        code = dnnl_matmul_desc_init(&desc, &am, &bm, entry->key.with_bias ? &bias_md : NULL, &cm);
        if (code == dnnl_success)
            code = dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL);
#endif
    }
    if (code == dnnl_unimplemented || (code == dnnl_success && !is_fast(pd))) {
        entry->absent = true;
        code = dnnl_success;
        goto out;
    }
    if (code == dnnl_success)
        code = dnnl_primitive_create(&entry->primitive, pd);
    if (code == dnnl_success)
        code = make_memory(entry, MEM_A, REF(am));
    if (code == dnnl_success)
        code = make_memory(entry, MEM_B, REF(bm));
    if (code == dnnl_success)
        code = make_memory(entry, MEM_C, REF(cm));
    if (code == dnnl_success && entry->key.with_bias)
        code = make_memory(entry, MEM_BIAS, REF(bias_md));
    if (code == dnnl_success)
        code = make_scratch(entry, pd);
out:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    md_free(&am);
    md_free(&bm);
    md_free(&cm);
    md_free(&bias_md);
    return code;
}

static int matmul(bool half, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
                  const void *b, int64_t ldb, const void *bias, void *c, int64_t ldc)
{
    AH_TRY(open_engine());
    struct key key;
    memset(&key, 0, sizeof key);
    key.kind = MATMUL;
    key.threads = omp_get_max_threads();
    key.with_bias = bias != NULL;
    key.half = half;
    const int64_t size[] = {ta, tb, m, n, k, lda, ldb, ldc};
    memcpy(key.size, size, sizeof size);
    bool fresh;
    struct entry *entry = entry_find(&key, &fresh);
    if (fresh) {
        int code = matmul_fill(entry);
        if (code != dnnl_success) {
            entry_clear(entry);
            return failed("making a matrix product", code);
        }
    }
    if (entry->absent)
        return 0;
    void *scratch;
    AH_TRY(ah_block_alloc(entry->scratch_bytes, &scratch));
    point(entry, MEM_A, a);
    point(entry, MEM_B, b);
    point(entry, MEM_C, c);
    point(entry, MEM_SCRATCH, scratch);
    point(entry, MEM_BIAS, bias);
    dnnl_exec_arg_t args[5] = {{DNNL_ARG_SRC, entry->memory[MEM_A]},
                               {DNNL_ARG_WEIGHTS, entry->memory[MEM_B]},
                               {DNNL_ARG_DST, entry->memory[MEM_C]}};
    int given = 3;
    if (bias)
        args[given++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, entry->memory[MEM_BIAS]};
    if (entry->memory[MEM_SCRATCH])
        args[given++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, entry->memory[MEM_SCRATCH]};
    int code = dnnl_primitive_execute(entry->primitive, stream, given, args);
    if (code == dnnl_success)
        code = dnnl_stream_wait(stream);
    ah_block_free(scratch, entry->scratch_bytes);
    return code == dnnl_success ? 1 : failed("a matrix product", code);
}

int ah_onednn_matmul(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                     int64_t ldb, const float *bias, float *c, int64_t ldc)
{
    return matmul(false, ta, tb, m, n, k, a, lda, b, ldb, bias, c, ldc);
}

int ah_onednn_matmul_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                          const uint16_t *b, int64_t ldb, const uint16_t *bias, uint16_t *c, int64_t ldc)
{
    return matmul(true, ta, tb, m, n, k, a, lda, b, ldb, bias, c, ldc);
}
