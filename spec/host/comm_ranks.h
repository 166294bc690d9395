/* Several ranks inside one self-test: forked processes, or threads where a sanitizer is to see all of them. Each body
 * runs once with every backend that there is: shared memory, sockets (comm_socket.c), and spread over two and three
 * hosts, which are separate control blocks here, connected by loopback. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "comm/control/hosts.h"
#include "comm/group/backend.h"
#include "test.h"

struct rank {
    int rank, size, failures;
    const char *where; /* of the calls that the helpers below make */
    struct ah_control_block *control; /* its host's */
    const struct ah_hosts *hosts; /* NULL: one */
    struct ah_group *group;
    atomic_int *marks; /* MARKS of them, shared by the ranks of one run */
};

enum { MARKS = 8 };

extern const struct ah_backend socket_backend;

/* Run `body` as `size` ranks of a fresh control block, with each backend; true when no rank failed a check. timeout_ns
 * as in struct ah_seat. A rank that dies is marked as dead on the control block at once, as the launcher does. */
bool run_ranks(int size, int64_t timeout_ns, void (*body)(struct rank *me));
/* Always forked: for bodies in which ranks die. Ranks in the mask may die or fail without counting. */
bool run_ranks_mortal(int size, int64_t timeout_ns, unsigned mortal_mask, void (*body)(struct rank *me));

/* The same on `hosts` hosts only. */
bool run_hosts(int size, int hosts, int64_t timeout_ns, unsigned mortal_mask, void (*body)(struct rank *me));

/* Stay until another rank has ended. */
void until_ended(struct rank *me, int rank);
/* Stay until a rank has set a mark, half a minute at most: an order of the ranks' actions, on a machine of any load. */
void set_mark(struct rank *me, int which);
void until_marked(struct rank *me, int which);

/* Does the backend move messages, and does it use the ranks' segments as memory? All but "keep" do. */
bool has_messages(struct rank *me);
bool has_segments(struct rank *me);

#define RANK_CHECK(me, condition)                                                                          \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: rank %d of %d (%s) expected: %s (last error: %s)\n", __FILE__,         \
                    __LINE__, (me)->rank, (me)->size, ah_group_backend((me)->group), #condition,           \
                    ah_error_text());                                                                      \
            (me)->failures++;                                                                              \
        }                                                                                                  \
    } while (0)
#define RANK_FAILS(me, call, code, part) RANK_CHECK(me, (call) == (code) && strstr(ah_error_text(), (part)))

static inline int reduce(struct rank *me, void *buffer, int64_t count, enum ah_dtype dtype, enum ah_reduce_op op)
{
    struct ah_collective call = ah_collective_all_reduce(buffer, count, dtype, op);
    call.where = me->where;
    return ah_group_run(me->group, call);
}

static inline int start(struct rank *me, void *buffer, int64_t count, enum ah_dtype dtype, enum ah_reduce_op op,
                        struct ah_work **out)
{
    return ah_group_start(me->group, ah_collective_all_reduce(buffer, count, dtype, op), out);
}

static inline int barrier(struct rank *me)
{
    struct ah_collective call = ah_collective_barrier();
    call.where = me->where;
    return ah_group_run(me->group, call);
}
