/* Live recovery in a self-test: forked ranks, and a parent that replaces those that were killed, as the launcher
 * does. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "comm/group/backend.h"
#include "test.h"

enum { MOST = 4, STEPS = 12 };

/* The common data of the ranks of one run. */
struct scene {
    struct ah_control_block *control;
    int (*body)(struct ah_group *group, int rank);
    int size, steps;
    bool forgets, orphans;     /* a replacement does not restore its state; makes another call */
    int wanted;                /* no rank makes its last step before there were that many deaths */
    int64_t timeout_ns;        /* after which a rank stops waiting for a replacement */
    atomic_int victim, step, place; /* the rank that kills itself, and where; -1: none */
    atomic_int deaths;
    _Atomic uint64_t sum[MOST];
    atomic_int failures, slow;
    char text[512];            /* of the first failure */
};
extern struct scene *scene;

/* Kill this process here, if it is its turn. */
void place(int rank, int step, int number);
/* Every rank runs the body; a killed rank is replaced. False when a rank failed. */
bool play(void);
bool open_scene(int (*body)(struct ah_group *group, int rank), int size, int steps);
void close_scene(void);
/* The sums of an undisturbed run. */
bool learn(int (*body)(struct ah_group *group, int rank), int size, int steps, uint64_t sum[MOST]);
bool same_sums(const uint64_t sum[MOST]);
/* Has a run the same sums in which a rank is killed once, in this step at this place? */
bool survives(int (*body)(struct ah_group *group, int rank), int size, int victim, int step, int number,
              const uint64_t sum[MOST]);
