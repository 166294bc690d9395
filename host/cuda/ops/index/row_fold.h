/* Adding rows to rows that an index names, and writing over them. */
#pragma once

#include "cuda/driver/stream/launch.h"
#include "cuda/kernels/index/index.h"
#include "ops/dispatch/op.h"

/* The kernel of each dtype, of a name with its suffix. */
#define AH_CUDA_INDEX_EVERY(name)                                                                          \
    {[AH_BOOL] = AH_CUDA_KERNEL("index", name "_b8"), [AH_U8] = AH_CUDA_KERNEL("index", name "_u8"),       \
     [AH_I32] = AH_CUDA_KERNEL("index", name "_i32"), [AH_I64] = AH_CUDA_KERNEL("index", name "_i64"),     \
     [AH_F16] = AH_CUDA_KERNEL("index", name "_f16"), [AH_BF16] = AH_CUDA_KERNEL("index", name "_bf16"),   \
     [AH_F32] = AH_CUDA_KERNEL("index", name "_f32"), [AH_F64] = AH_CUDA_KERNEL("index", name "_f64")}

/* Sizes of a dim, before and behind it. */
struct ah_cuda_rows {
    int64_t outer, n, inner;
};

struct ah_cuda_row_fold {
    int fold; /* AH_INDEX_LAST, AH_INDEX_ADD */
    double alpha;
    int64_t skip;       /* an index that counts nothing; -1: none */
    bool fresh, single; /* `to` holds nothing that counts; the source is one value */
    uint64_t map, scale; /* as in ah_rows_fold_args, of AH_INDEX_ADD; 0: none */
};

/* Fold the rows of `from` into those of `to` that `at` (row-major int64) names; both row-major. Numbers out of range
 * are skipped. */
int ah_cuda_fold_rows(struct ah_call *c, struct ah_tensor *to, const struct ah_tensor *from, const struct ah_tensor *at,
                      struct ah_cuda_rows rows, struct ah_cuda_row_fold fold);

/* Add by keys that are sorted, in pieces; the sums of destinations of several are joined behind that. */
int ah_cuda_add_rows(struct ah_call *c, enum ah_dtype dtype, struct ah_rows_fold_args *args);
