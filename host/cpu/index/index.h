/* Functions that the indexing kernels share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/numeric/dtype.h"
#include "cpu/loop/f16_item.h"

struct ah_call;
struct ah_tensor;

/* `index` (int32 or int64, any shape) as contiguous int64 in 0..n-1, to be released by the caller;
 * with `from_end` -n..-1 count from the end. AH_EINVAL names the first bad index, its position, and
 * dim `dim` of `shape_of`. */
int ah_checked_index(const char *op, struct ah_tensor *index, int64_t n, bool from_end, int dim,
                     const struct ah_tensor *shape_of, struct ah_tensor **out);

/* Return AH_EINVAL with the first index of a contiguous int64 `list` outside of low..n-1, of which there is one. */
int ah_index_fail(const char *op, const struct ah_tensor *list, int64_t low, int64_t n, int dim,
                  const struct ah_tensor *shape_of);

/* A contiguous tensor for a result: out[0] itself, or a temporary when out[0] is a strided view that is written in
 * place. ah_target_open fills it with arg[0] (broadcast) when `copy`; ah_target_close writes a temporary back when
 * status is 0, releases it, and returns status. */
struct ah_target {
    struct ah_tensor *out, *work;
};
int ah_target_open(struct ah_call *call, bool copy, struct ah_target *target);
int ah_target_close(struct ah_target *target, int status);

/* A contiguous tensor in which sums for `out` are added up, to be released by the caller, who then copies it to `out`
 * (which costs nothing where it is `out`): with the numbers of `start`, or 0 where that is NULL. Halves are summed in
 * float32 and rounded once where at least a quarter as many numbers are added as there are sums. */
int ah_sum_open(struct ah_tensor **sum, struct ah_tensor *out, struct ah_tensor *start, int64_t addends);

/* Copy rows of x along dim, by an index of any shape, into the contiguous `out`. Errors as of ah_checked_index, after
 * which `out` is undefined. */
int ah_pick_rows(const char *op, struct ah_tensor *out, struct ah_tensor *x, struct ah_tensor *index, int dim);

/* Rows of a (outer, n, inner) block, by an index of `count` rows: dst row at[k] of every outer = or
 * += src row k. */
struct ah_rows {
    int64_t outer, n, inner, count;
    const int64_t *at;
};
void ah_rows_copy(void *dst, const void *src, const struct ah_rows *rows, size_t item);
void ah_rows_add(void *dst, const void *src, const struct ah_rows *rows, double alpha,
                 enum ah_dtype dtype);

/* gather, or the kinds of scatter. */
enum ah_line_action { AH_GATHER, AH_SCATTER, AH_SCATTER_ADD, AH_SCATTER_PROD, AH_SCATTER_MAX, AH_SCATTER_MIN };

/* Lines along dim: k < n walks along it, j < width across the lines, or, of one line with n = 1, along it. Steps count
 * elements. */
struct ah_line_move {
    enum ah_line_action action;
    enum ah_dtype dtype;
    void *dst;
    const void *src;
    const int64_t *at; /* places along dim, those of a step k in a row */
    int64_t n, width, at_step, dst_step, src_step, dst_across, src_across;
    bool plain; /* one line, dense in dst and src */
};
void ah_line_move(const struct ah_line_move *m);

/* Scatter a plain line. False, with a part of it written: an index is not below `places`. */
bool ah_line_scatter(const struct ah_line_move *m, int64_t places);

/* Run BODY(storage type, load, store) for the dtype, where load and store convert to and from the type of sums. */
#define AH_LOAD_SELF(x) (x)
#define AH_STORE_BOOL(x) ((x) != 0)
#define AH_SUM_DTYPES(dtype, BODY)                                       \
    switch (dtype) {                                                     \
    case AH_BOOL: BODY(uint8_t, AH_LOAD_SELF, AH_STORE_BOOL); break;     \
    case AH_U8: BODY(uint8_t, AH_LOAD_SELF, (uint8_t)); break;           \
    case AH_I32: BODY(int32_t, AH_LOAD_SELF, (int32_t)); break;          \
    case AH_I64: BODY(int64_t, AH_LOAD_SELF, (int64_t)); break;          \
    case AH_F16: BODY(uint16_t, ah_f16_item_to_f32, ah_f32_to_f16_item); break; \
    case AH_BF16: BODY(uint16_t, ah_bf16_to_f32, ah_f32_to_bf16); break; \
    case AH_F32: BODY(float, AH_LOAD_SELF, (float)); break;              \
    case AH_F64: BODY(double, AH_LOAD_SELF, (double)); break;            \
    case AH_I8: BODY(int8_t, AH_LOAD_SELF, (int8_t)); break;             \
    case AH_I16: BODY(int16_t, AH_LOAD_SELF, (int16_t)); break;          \
    case AH_U16: BODY(uint16_t, (uint32_t), (uint16_t)); break;          \
    case AH_U32: BODY(uint32_t, AH_LOAD_SELF, (uint32_t)); break;        \
    case AH_U64: BODY(uint64_t, AH_LOAD_SELF, (uint64_t)); break;        \
    case AH_DTYPE_COUNT: break;                                          \
    }

/* A number to add or multiply: whole ones wrap around. */
#define AH_WRAPPING(x) _Generic((x), int32_t: (uint32_t)(x), int64_t: (uint64_t)(x), default: (x))

/* BODY(unsigned type) for an element size. */
#define AH_ITEM_TYPES(item, BODY)   \
    switch (item) {                 \
    case 1: BODY(uint8_t); break;   \
    case 2: BODY(uint16_t); break;  \
    case 4: BODY(uint32_t); break;  \
    default: BODY(uint64_t); break; \
    }
