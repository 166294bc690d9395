/* Matrix products by oneDNN: sgemm for any shape, and primitives made for a shape, which add the bias on the way. */
#include "cpu/loop/onednn.h"

#include <stdio.h>
#include <string.h>

#include "base/process/threads.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/loop/onednn_cache.h"

const char *ah_onednn_version(void)
{
    static char text[48];
    if (ah_onednn_load() < 0)
        return NULL;
    const dnnl_version_t *version = ah_dnnl.version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return text;
}

int ah_onednn_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    AH_TRY(ah_onednn_load());
    ah_trace_kernel("oneDNN sgemm");
    int code = ah_dnnl.sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return code == dnnl_success ? 1 : ah_onednn_failed("a matrix product", code);
}

/* Does oneDNN compute a product of these sizes (those of matmul_fill)? Version 3.6 reads a row of A, and writes a
 * column of C, as if their items were adjacent (bfloat16, AVX-512); 2.6 does not. */
static bool matmul_is_right(const int64_t *size)
{
    const bool strided_row = size[2] == 1 && size[4] > 1 && size[0] && size[5] != 1;
    const bool strided_column = size[3] == 1 && size[2] > 1 && size[7] != 1;
    return DNNL_VERSION_MAJOR < 3 || (!strided_row && !strided_column);
}

static int matmul_fill(struct ah_onednn_entry *entry)
{
    const int64_t *s = entry->key.size; /* ta tb m n k lda ldb ldc */
    entry->absent = !matmul_is_right(s);
    if (entry->absent)
        return dnnl_success;
    const dnnl_data_type_t type = entry->key.half ? dnnl_bf16 : dnnl_f32;
    const dnnl_data_type_t result = entry->key.wide ? dnnl_f32 : type;
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
        code = md_strided(&cm, result, 2, c, c_stride);
    if (code == dnnl_success && entry->key.with_bias)
        code = md_strided(&bias_md, type, 2, bias, bias_stride);
    if (code == dnnl_success)
        code = ah_onednn_attr(&attr);
    if (code == dnnl_success) {
#if DNNL_VERSION_MAJOR >= 3
        code = ah_dnnl.matmul_primitive_desc_create(&pd, ah_onednn_engine, am, bm, bias_md, cm, attr);
#else
        dnnl_matmul_desc_t desc;
        code = ah_dnnl.matmul_desc_init(&desc, &am, &bm, entry->key.with_bias ? &bias_md : NULL, &cm);
        if (code == dnnl_success)
            code = ah_dnnl.primitive_desc_create(&pd, &desc, attr, ah_onednn_engine, NULL);
#endif
    }
    code = ah_onednn_primitive(entry, pd, code);
    if (entry->absent)
        goto out;
    if (code == dnnl_success)
        code = ah_onednn_memory(entry, MEM_A, REF(am));
    if (code == dnnl_success)
        code = ah_onednn_memory(entry, MEM_B, REF(bm));
    if (code == dnnl_success)
        code = ah_onednn_memory(entry, MEM_C, REF(cm));
    if (code == dnnl_success && entry->key.with_bias)
        code = ah_onednn_memory(entry, MEM_BIAS, REF(bias_md));
out:
    if (pd)
        ah_dnnl.primitive_desc_destroy(pd);
    if (attr)
        ah_dnnl.primitive_attr_destroy(attr);
    md_free(&am);
    md_free(&bm);
    md_free(&cm);
    md_free(&bias_md);
    return code;
}

int ah_onednn_matmul_find(bool half, bool wide, bool ta, bool tb, int64_t m, int64_t n, int64_t k, int64_t lda,
                          int64_t ldb, int64_t ldc, bool bias, struct ah_onednn_entry **out)
{
    AH_TRY(ah_onednn_open());
    struct ah_onednn_key key;
    memset(&key, 0, sizeof key);
    key.kind = MATMUL;
    key.threads = 1;
    key.runners = ah_num_threads();
    key.with_bias = bias;
    key.half = half;
    key.wide = wide;
    const int64_t size[] = {ta, tb, m, n, k, lda, ldb, ldc};
    memcpy(key.size, size, sizeof size);
    bool fresh;
    struct ah_onednn_entry *entry = ah_onednn_entry(&key, &fresh);
    if (fresh) {
        int code = matmul_fill(entry);
        if (code != dnnl_success) {
            ah_onednn_entry_clear(entry);
            return ah_onednn_failed("making a matrix product", code);
        }
    }
    *out = entry;
    return !entry->absent;
}

int ah_onednn_matmul_run(struct ah_onednn_entry *entry, const void *a, const void *b, const void *bias, void *c,
                         void *scratch)
{
    ah_onednn_point(entry, MEM_A, a);
    ah_onednn_point(entry, MEM_B, b);
    ah_onednn_point(entry, MEM_C, c);
    ah_onednn_point(entry, MEM_SCRATCH, scratch);
    ah_onednn_point(entry, MEM_BIAS, bias);
    const dnnl_memory_t *memory = ah_onednn_handles(entry);
    const dnnl_exec_arg_t operand[3] = {{DNNL_ARG_SRC, memory[MEM_A]},
                                        {DNNL_ARG_WEIGHTS, memory[MEM_B]},
                                        {DNNL_ARG_DST, memory[MEM_C]}};
    int code = ah_onednn_run(entry, operand);
    return code == dnnl_success ? 0 : ah_onednn_failed("a matrix product", code);
}
