/* Kinds of recurrent layers, told by the word of the op's `kind`. */
#ifndef AH_OPS_RECURRENT_H
#define AH_OPS_RECURRENT_H

#include "ops/op.h"

struct ah_recurrent_kind {
    const char *name;
    int gates; /* how many H wide parts a row of gates has */
    bool cell; /* keeps a cell beside the hidden state */
};

enum { AH_LSTM, AH_GRU, AH_RNN_TANH, AH_RNN_RELU, AH_RECURRENT_KINDS };
extern const struct ah_recurrent_kind ah_recurrent_kinds[AH_RECURRENT_KINDS];

/* The number of a kind by its name, which must be one. */
int ah_recurrent_kind(const char *name);

#endif
