/* Arguments of the reductions: `outputs` results, each of `folded` inputs.
 *
 * A block has AH_REDUCE_THREADS threads, `columns` outputs next to each other by that many rows of threads, which
 * share the inputs of an output. With `across` neighbouring threads process neighbouring outputs, else neighbouring
 * inputs. Of a reduction in `parts`, each part of an output's inputs writes its state to `partial`, in order, and a
 * second launch joins them. */
#pragma once

#include <stdint.h>

enum { AH_REDUCE_THREADS = 256, AH_REDUCE_DIMS = 8, AH_REDUCE_STATE = 24 };

enum ah_reduce_fold {
    AH_REDUCE_SUM,
    AH_REDUCE_NANSUM,
    AH_REDUCE_PROD,
    AH_REDUCE_MAX, /* nan wins */
    AH_REDUCE_MIN,
    AH_REDUCE_COUNT, /* of values other than 0 */
    AH_REDUCE_ABS,
    AH_REDUCE_SQUARES,
    AH_REDUCE_POWERS, /* of |x|, to the power `number` */
    AH_REDUCE_ABS_MAX,
    AH_REDUCE_ABS_MIN,
};

/* The last operation on the result: divided by `number`, its root, its power of 1 / `number`; is it above 0, or
 * `number`? */
enum ah_reduce_finish {
    AH_FINISH_NONE,
    AH_FINISH_DIVIDE,
    AH_FINISH_ROOT,
    AH_FINISH_POWER,
    AH_FINISH_ANY,
    AH_FINISH_ALL,
};

struct ah_reduce_args {
    uint64_t partial; /* 0, or the states of all parts, of at most AH_REDUCE_STATE bytes each */
    uint64_t from, to, index; /* of extremes `to` may be 0, and `index` gets their places, 64-bit integers */
    int64_t outputs, folded, parts, each; /* each: inputs in a part */
    int64_t inputs;                       /* of each output, also when parts are joined */
    int64_t kept_size[AH_REDUCE_DIMS], kept_stride[AH_REDUCE_DIMS];
    int64_t size[AH_REDUCE_DIMS], stride[AH_REDUCE_DIMS]; /* of the reduced dims */
    double number;
    int32_t kept_dims, dims;
    int32_t from_dtype, to_dtype; /* enum ah_dtype */
    int32_t fold, finish;
    int32_t columns, across;
    int32_t wide;    /* an output's inputs are contiguous, 16 bytes at multiples of 16 */
    int32_t single;  /* exponentials of floats are float's, not double's */
    int32_t joining; /* the second launch: `folded` parts of each output */
};
