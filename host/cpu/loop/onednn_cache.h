/* A cache of oneDNN's primitives, one per case; for the files that call the library (cpu/loop/onednn_*.c).
 *
 * Owner of the library's engine and stream and of a cache of primitives by everything they were made for. Functions
 * that return `int code` return the library's status. Lua thread only, except for ah_onednn_point and ah_onednn_run,
 * which the pieces of a region may call. The differences between the library's versions 2 and 3 are in this file and
 * next to the calls that make primitive descriptors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <dnnl.h>
#include <dnnl_version.h>

/* The library's functions, as members of ah_dnnl without their prefix. */
#if DNNL_VERSION_MAJOR >= 3
#define DNNL_VERSION_CALLS(F)                                                                                         \
    F(memory_desc_create_with_strides) F(memory_desc_create_with_tag) F(memory_desc_destroy)                          \
    F(convolution_forward_primitive_desc_create) F(convolution_backward_data_primitive_desc_create)                   \
    F(convolution_backward_weights_primitive_desc_create) F(matmul_primitive_desc_create)
#else
#define DNNL_VERSION_CALLS(F)                                                                                         \
    F(memory_desc_init_by_strides) F(memory_desc_init_by_tag) F(dilated_convolution_forward_desc_init)                \
    F(dilated_convolution_backward_data_desc_init) F(dilated_convolution_backward_weights_desc_init)                  \
    F(matmul_desc_init) F(primitive_desc_create)
#endif
#define DNNL_CALLS(F)                                                                                                 \
    F(version) F(engine_create) F(engine_destroy) F(stream_create) F(sgemm) F(memory_create) F(memory_destroy)        \
    F(memory_desc_equal) F(memory_desc_get_size) F(memory_get_memory_desc) F(memory_set_data_handle)                  \
    F(primitive_attr_create) F(primitive_attr_destroy) F(primitive_attr_set_scratchpad_mode) F(primitive_create)      \
    F(primitive_destroy) F(primitive_execute) F(primitive_desc_destroy) F(primitive_desc_query)                       \
    F(primitive_desc_query_md) F(reorder_primitive_desc_create) DNNL_VERSION_CALLS(F)

#define DNNL_MEMBER(name) __typeof__(&dnnl_##name) name;
extern struct ah_dnnl {
    DNNL_CALLS(DNNL_MEMBER)
} ah_dnnl; /* valid after ah_onednn_load */
#undef DNNL_MEMBER

/* Memory descriptors are structs in version 2 and opaque handles in version 3, and version 3 makes primitive
 * descriptors directly; the differences end with this block. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t md_ref;
#define REF(md) (md)

static inline int md_strided(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims,
                             const dnnl_dims_t strides)
{
    return ah_dnnl.memory_desc_create_with_strides(md, ndims, dims, type, strides);
}

static inline int md_any(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims)
{
    return ah_dnnl.memory_desc_create_with_tag(md, ndims, dims, type, dnnl_format_tag_any);
}

static inline void md_free(dnnl_memory_desc_t *md)
{
    if (*md)
        ah_dnnl.memory_desc_destroy(*md);
    *md = NULL;
}
#else
typedef const dnnl_memory_desc_t *md_ref;
#define REF(md) (&(md))

static inline int md_strided(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims,
                             const dnnl_dims_t strides)
{
    return ah_dnnl.memory_desc_init_by_strides(md, ndims, dims, type, strides);
}

static inline int md_any(dnnl_memory_desc_t *md, dnnl_data_type_t type, int ndims, const dnnl_dims_t dims)
{
    return ah_dnnl.memory_desc_init_by_tag(md, ndims, dims, type, dnnl_format_tag_any);
}

static inline void md_free(dnnl_memory_desc_t *md)
{
}
#endif

enum ah_onednn_kind { FORWARD, GRAD_INPUT, GRAD_WEIGHT, MATMUL };

/* Everything a primitive was made for; zeroed before filling, compared as bytes. `threads`: of the library in one
 * call; `runners`: threads of the pool that may run it at the same time. */
struct ah_onednn_key {
    int64_t kind, threads, runners, with_bias, half, wide;
    int64_t size[16];
};

enum { MEM_A, MEM_B, MEM_BIAS, MEM_C, MEM_PLAIN, MEM_SCRATCH, MEM_COUNT };

/* One cached primitive with the memory handles that each runner runs it on. MEM_A, MEM_B and MEM_C are its operands in
 * the order of the public call; MEM_PLAIN is the row-major weight, where the primitive's own layout is another. */
struct ah_onednn_entry {
    struct ah_onednn_key key;
    uint64_t used;
    bool absent; /* oneDNN has no fast kernel for this: decline at once */
    dnnl_primitive_t primitive, reorder;
    dnnl_memory_t (*memory)[MEM_COUNT]; /* of each runner */
    size_t scratch_bytes, weight_bytes;
    char name[64]; /* "oneDNN bfloat16 matmul brg:avx512_core_bf16": for a profile */
};

extern dnnl_engine_t ah_onednn_engine; /* valid after ah_onednn_open */
extern dnnl_stream_t ah_onednn_stream;

/* Load the library, the first time; any thread may call. AH_EIO: it is missing. */
int ah_onednn_load(void);

/* Load the library and open the engine and the stream; later calls do nothing. A negative AH_E* when the library
 * fails. */
int ah_onednn_open(void);

/* Return the library's failure as a status: "oneDNN: WHAT failed with status N". */
int ah_onednn_failed(const char *what, int code);

/* Return the entry for a key; *fresh is set if the caller must fill it. In a full hash neighbourhood the oldest is
 * evicted. */
struct ah_onednn_entry *ah_onednn_entry(const struct ah_onednn_key *key, bool *fresh);

/* Destroy the objects of an entry and forget its key. */
void ah_onednn_entry_clear(struct ah_onednn_entry *entry);

/* Make the handles `which` of all runners; ah_onednn_point sets their addresses. */
int ah_onednn_memory(struct ah_onednn_entry *entry, int which, md_ref md);

/* The calling thread's handles. */
dnnl_memory_t *ah_onednn_handles(struct ah_onednn_entry *entry);

/* Report whether the handles `which` of two entries describe the same layout. */
bool ah_onednn_same_layout(struct ah_onednn_entry *a, struct ah_onednn_entry *b, int which);

/* Set the calling thread's handle `which`, if the entry has it, to `data`. */
void ah_onednn_point(struct ah_onednn_entry *entry, int which, const void *data);

/* Create attributes for a scratchpad of the caller. */
int ah_onednn_attr(dnnl_primitive_attr_t *attr);

/* Make the entry's primitive and the handle of its scratchpad. `code` is the status of making `pd`: where the library
 * has no implementation, or only a reference one, slower than im2col and matmul, the entry is marked absent. */
int ah_onednn_primitive(struct ah_onednn_entry *entry, const_dnnl_primitive_desc_t pd, int code);

/* Run the primitive on its three operands, and on bias and scratchpad where the entry has handles for them. */
int ah_onednn_run(struct ah_onednn_entry *entry, const dnnl_exec_arg_t operand[3]);
