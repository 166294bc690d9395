/* Results that backward computes again instead of the graph holding them: of ops that cost little next to the products
 * that save their results (gelu, layer norm), from an input that the graph holds anyway: a step of a GPT needs a third
 * less memory for 2 % more time. On the CPU, and on meta, which counts its bytes; of results of more than 4 MiB, as
 * small models have memory to spare, and of gates (activation_mul) of more than 1 MiB. */
#pragma once

#include "ops/dispatch/op.h"

enum { AH_RECOMPUTE_ARGS = 6, AH_RECOMPUTE_BYTES = 4 << 20 };

/* A call that has the bits of a result; counted. */
struct ah_recompute {
    int refs;
    uint32_t result_version; /* of the result when it was made: one that was written since is saved itself */
    enum ah_opid op;
    int count;
    struct ah_value arg[AH_RECOMPUTE_ARGS]; /* tensors are held */
    uint32_t version[AH_RECOMPUTE_ARGS];    /* of the tensors */
};

/* Return the call that repeats output 0 of a call that has run, with one reference; NULL if there is none, or when
 * out of memory. */
struct ah_recompute *ah_recompute_new(const struct ah_call *call);
void ah_recompute_release(struct ah_recompute *recompute);

/* Repeat the call without recording it. AH_ESTATE when an argument was written since. `reader`: the op that saved the
 * result, for the error. */
int ah_recompute_run(const struct ah_recompute *recompute, const char *reader, struct ah_tensor **out);
