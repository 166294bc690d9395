/* Several ranks inside one self-test: forked processes, or threads where a sanitizer is to see all of them. */
#ifndef AH_SPEC_HOST_COMM_RANKS_H
#define AH_SPEC_HOST_COMM_RANKS_H

#include <stdint.h>

#include "comm/backend.h"
#include "test.h"

struct rank {
    int rank, size, failures;
    struct ah_board *board;
    struct ah_group *group;
};

/* Run `body` as `size` ranks of a fresh board; true when no rank failed a check. timeout_ns as for ah_shm_open. A
 * rank that dies is marked as dead on the board at once, as the launcher does. */
bool run_ranks(int size, int64_t timeout_ns, void (*body)(struct rank *me));
/* Always forked: for bodies in which ranks die. Ranks in the mask may die or fail without counting. */
bool run_ranks_mortal(int size, int64_t timeout_ns, unsigned mortal_mask, void (*body)(struct rank *me));

#define RANK_CHECK(me, condition)                                                                          \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: rank %d of %d expected: %s (last error: %s)\n", __FILE__, __LINE__,    \
                    (me)->rank, (me)->size, #condition, ah_error_text());                                  \
            (me)->failures++;                                                                              \
        }                                                                                                  \
    } while (0)
#define RANK_FAILS(me, call, code, part) RANK_CHECK(me, (call) == (code) && strstr(ah_error_text(), (part)))

#endif
