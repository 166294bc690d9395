/* Arguments of the running folds: outer x n x inner elements, lines of n, which may be cut into parts of `each`.
 *
 * Of a line in parts, first each part is folded into a separate state; then each part begins with the fold of the
 * states before it. The number of parts depends on the sizes alone. */
#pragma once

#include <stdint.h>

enum { AH_RUNNING_THREADS = 256, AH_RUNNING_RUN = 4, AH_RUNNING_STATE = 16 /* bytes of a state, or less */ };

enum ah_running_fold {
    AH_RUNNING_SUM,
    AH_RUNNING_PRODUCT,
    AH_RUNNING_LOG_SUM,
    AH_RUNNING_LARGEST, /* the last of equals, and the last nan */
    AH_RUNNING_SMALLEST,
};

struct ah_running_args {
    uint64_t from, to, index; /* of extremes `index` gets their places, 64-bit integers */
    uint64_t states;          /* [outer, parts, inner] */
    int64_t outer, n, inner, parts, each;
    int32_t from_dtype, to_dtype; /* enum ah_dtype */
    int32_t fold;
    int32_t reverse, exclusive; /* from the end of each line; without the element itself */
    int32_t wide; /* runs of AH_RUNNING_RUN elements are aligned */
};
