/* Kinds of recurrent layers, by the op's `kind`. */
#pragma once

#include "ops/dispatch/op.h"

struct ah_recurrent_kind {
    const char *name;
    int gates; /* number of H wide parts of a row of gates */
    bool cell; /* has a cell state in addition to the hidden state */
};

enum { AH_LSTM, AH_GRU, AH_RNN_TANH, AH_RNN_RELU, AH_RECURRENT_KINDS };
extern const struct ah_recurrent_kind ah_recurrent_kinds[AH_RECURRENT_KINDS];

/* The number of a kind by its name, which must be one. */
int ah_recurrent_kind(const char *name);

/* The rows of each step. */
struct ah_recurrent_plan {
    int kind;
    int64_t gates, width, sequences, steps, rows;
    bool reverse;
    int64_t *row, *count; /* [steps]: the first row of the step, and their number */
};

/* Plan for gates [rows, ...], or a tensor of as many rows, and hidden [sequences, width]; sizes (on the CPU, valid) may
 * be NULL. Close the plan also after an error. */
int ah_recurrent_plan_open(struct ah_recurrent_plan *plan, const struct ah_tensor *gates,
                           const struct ah_tensor *hidden, const struct ah_tensor *sizes, const char *kind,
                           bool reverse);
void ah_recurrent_plan_close(struct ah_recurrent_plan *plan);

/* The n-th step in the order in which the layer goes. */
static inline int64_t ah_recurrent_step(const struct ah_recurrent_plan *plan, int64_t n)
{
    return plan->reverse ? plan->steps - 1 - n : n;
}
