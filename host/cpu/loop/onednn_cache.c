/* A small hash table of primitives: a key is hashed to a neighbourhood of PROBES places, of which the one used longest
 * ago is given up when none is free. Nothing is freed before that: a training run repeats its shapes. */
#include "cpu/loop/onednn_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process/lazy_library.h"
#include "base/process/thread_pool.h"
#include "base/status/status.h"
#include "base/trace/trace.h"
#include "cpu/loop/onednn.h"
#include "libraries.h"

enum { ENTRIES = 256, PROBES = 8 };
static struct ah_onednn_entry onednn_cache[ENTRIES];
static uint64_t clock_ticks;
dnnl_engine_t ah_onednn_engine;
dnnl_stream_t ah_onednn_stream;

int ah_onednn_failed(const char *what, int code)
{
    int status = code == dnnl_out_of_memory ? AH_ENOMEM : AH_EIO;
    return ah_fail(status, "oneDNN: %s failed with status %d", what, code);
}

#define NAME(name) "dnnl_" #name,
static const char *const dnnl_symbols[] = {DNNL_CALLS(NAME)};

struct ah_dnnl ah_dnnl;
static struct ah_lazy_library dnnl_library = {"oneDNN", AH_ONEDNN_FILE, dnnl_symbols, (void **)(void *)&ah_dnnl,
                                         sizeof dnnl_symbols / sizeof *dnnl_symbols, false};

int ah_onednn_load(void)
{
    return ah_lazy_open(&dnnl_library);
}

bool ah_onednn_built_in(void)
{
    return true;
}

int ah_onednn_open(void)
{
    if (ah_onednn_engine)
        return 0;
    AH_TRY(ah_onednn_load());
    int code = ah_dnnl.engine_create(&ah_onednn_engine, dnnl_cpu, 0);
    if (code == dnnl_success)
        code = ah_dnnl.stream_create(&ah_onednn_stream, ah_onednn_engine, dnnl_stream_default_flags);
    if (code == dnnl_success)
        return 0;
    if (ah_onednn_engine)
        ah_dnnl.engine_destroy(ah_onednn_engine);
    ah_onednn_engine = NULL;
    return ah_onednn_failed("opening the engine", code);
}

void ah_onednn_entry_clear(struct ah_onednn_entry *entry)
{
    if (entry->primitive)
        ah_dnnl.primitive_destroy(entry->primitive);
    if (entry->reorder)
        ah_dnnl.primitive_destroy(entry->reorder);
    for (int64_t r = 0; entry->memory && r < entry->key.runners; r++)
        for (int i = 0; i < MEM_COUNT; i++)
            if (entry->memory[r][i])
                ah_dnnl.memory_destroy(entry->memory[r][i]);
    free(entry->memory);
    memset(entry, 0, sizeof *entry);
}

struct ah_onednn_entry *ah_onednn_entry(const struct ah_onednn_key *key, bool *fresh)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    const uint64_t *word = (const uint64_t *)(const void *)key;
    for (size_t i = 0; i < sizeof *key / sizeof *word; i++)
        hash = (hash ^ word[i]) * 0xff51afd7ed558ccdu, hash ^= hash >> 32;
    struct ah_onednn_entry *oldest = NULL;
    for (int probe = 0; probe < PROBES; probe++) {
        struct ah_onednn_entry *entry = &onednn_cache[(hash + (uint64_t)probe) % ENTRIES];
        if (entry->used && !memcmp(&entry->key, key, sizeof *key)) {
            entry->used = ++clock_ticks;
            *fresh = false;
            return entry;
        }
        if (!oldest || entry->used < oldest->used)
            oldest = entry;
    }
    ah_onednn_entry_clear(oldest);
    oldest->key = *key;
    oldest->used = ++clock_ticks;
    *fresh = true;
    return oldest;
}

int ah_onednn_memory(struct ah_onednn_entry *entry, int which, md_ref md)
{
    int code = dnnl_success;
    if (!entry->memory)
        entry->memory = calloc((size_t)entry->key.runners, sizeof *entry->memory);
    if (!entry->memory)
        return dnnl_out_of_memory;
    for (int64_t r = 0; r < entry->key.runners && code == dnnl_success; r++)
        code = ah_dnnl.memory_create(&entry->memory[r][which], md, ah_onednn_engine, DNNL_MEMORY_NONE);
    return code;
}

dnnl_memory_t *ah_onednn_handles(struct ah_onednn_entry *entry)
{
    return entry->memory[entry->key.runners > 1 ? ah_thread_index() : 0];
}

bool ah_onednn_same_layout(struct ah_onednn_entry *a, struct ah_onednn_entry *b, int which)
{
    md_ref one, other;
    return ah_dnnl.memory_get_memory_desc(a->memory[0][which], &one) == dnnl_success &&
           ah_dnnl.memory_get_memory_desc(b->memory[0][which], &other) == dnnl_success &&
           ah_dnnl.memory_desc_equal(one, other);
}

int ah_onednn_attr(dnnl_primitive_attr_t *attr)
{
    int code = ah_dnnl.primitive_attr_create(attr);
    if (code == dnnl_success)
        code = ah_dnnl.primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    return code;
}

/* Return the library's name of its implementation; NULL: it has none. */
static const char *name_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return ah_dnnl.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success ? name : NULL;
}

static bool is_fast(const_dnnl_primitive_desc_t pd)
{
    const char *name = name_of(pd);
    return name && strncmp(name, "ref", 3) != 0 && strncmp(name, "gemm:ref", 8) != 0;
}

static void name_entry(struct ah_onednn_entry *entry, const_dnnl_primitive_desc_t pd)
{
    static const char *const kinds[] = {"conv", "conv_grad_input", "conv_grad_weight", "matmul"};
    snprintf(entry->name, sizeof entry->name, "oneDNN %s %s %s", entry->key.half ? "bfloat16" : "float32",
             kinds[entry->key.kind], name_of(pd));
}

int ah_onednn_primitive(struct ah_onednn_entry *entry, const_dnnl_primitive_desc_t pd, int code)
{
    entry->absent = code == dnnl_unimplemented || (code == dnnl_success && !is_fast(pd));
    if (entry->absent)
        return dnnl_success;
    if (code == dnnl_success)
        name_entry(entry, pd);
    if (code == dnnl_success)
        code = ah_dnnl.primitive_create(&entry->primitive, pd);
    if (code != dnnl_success)
        return code;
    md_ref md = ah_dnnl.primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    entry->scratch_bytes = md ? ah_dnnl.memory_desc_get_size(md) : 0;
    return entry->scratch_bytes ? ah_onednn_memory(entry, MEM_SCRATCH, md) : dnnl_success;
}

size_t ah_onednn_scratch_bytes(const struct ah_onednn_entry *entry)
{
    return (entry->scratch_bytes + 63) / 64 * 64;
}

int ah_onednn_run(struct ah_onednn_entry *entry, const dnnl_exec_arg_t operand[3])
{
    dnnl_memory_t *memory = ah_onednn_handles(entry);
    dnnl_exec_arg_t args[5] = {operand[0], operand[1], operand[2]};
    int count = 3;
    if (memory[MEM_SCRATCH])
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, memory[MEM_SCRATCH]};
    if (memory[MEM_BIAS])
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, memory[MEM_BIAS]};
    ah_trace_kernel(entry->name);
    return ah_dnnl.primitive_execute(entry->primitive, ah_onednn_stream, count, args);
}

void ah_onednn_point(struct ah_onednn_entry *entry, int which, const void *data)
{
    dnnl_memory_t *memory = ah_onednn_handles(entry);
    if (memory[which])
        ah_dnnl.memory_set_data_handle(memory[which], (void *)(uintptr_t)data);
}
