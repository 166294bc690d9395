/* Arguments of the recurrent kernels: one step of one direction of a layer, whose rows begin at `row` in the arrays of
 * all steps. Gates and their gradients have `gates` parts of `width`; hidden gates and the arrays for the rule (active,
 * inner, the running cell) are in the type of the computation, all else in the tensors' type. */
#pragma once

#include <stdint.h>

enum { AH_RECURRENT_THREADS = 256 };

/* As in ops/nn/recurrent.h. */
enum ah_recurrent_cell { AH_CELL_LSTM, AH_CELL_GRU, AH_CELL_TANH, AH_CELL_RELU };

struct ah_recurrent_cell_args {
    uint64_t gates, bias;           /* of all steps; of the hidden state's gates, 0: none */
    uint64_t hidden_gates;          /* [count, gates x width]: W_hh h */
    uint64_t hidden, cell;          /* running states, [sequences, width] */
    uint64_t output, active, inner; /* of all steps */
    int64_t row, count, width;
    int32_t kind;
};

/* `arrived` rows have a gradient from the step that followed this one in `grad_later`; those of them beyond `count`
 * have begun there, and theirs is added to grad_hidden. */
struct ah_recurrent_adjoint_args {
    uint64_t active, inner;
    uint64_t output, first_hidden, first_cell; /* the states that rows began with: of `earlier`, or the first ones */
    uint64_t grad_output;                      /* 0: none */
    uint64_t grad_later;                       /* [arrived, width] */
    uint64_t grad_hidden, grad_cell;           /* running, [sequences, width], in the type of the computation */
    uint64_t grad_gates, grad_hidden_gates;    /* of all steps; the same but for GRU */
    uint64_t before;                           /* gets the hidden states that rows began with, of all steps */
    int64_t row, count, width, arrived;
    int64_t earlier, earlier_count; /* the first row of the step before, and its number of rows */
    int32_t kind;
};
