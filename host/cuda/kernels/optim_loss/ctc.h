/* Arguments of the CTC kernels: log_probs [steps, batch, classes], targets [batch, longest], of which a sequence has
 * its first target_length. Places are the labels with a blank before, between and after them, 2 longest + 1 at most.
 * alpha, terms and losses are in the type of the computation. */
#pragma once

#include <stdint.h>

enum { AH_CTC_THREADS = 256, AH_CTC_MOST = 512 /* of a sequence's block */ };

struct ah_ctc {
    uint64_t x, label, input_length, target_length;
    int64_t steps, batch, classes, longest, blank;
    int32_t zero_infinity;
};

/* A row-major copy of the targets, with 0 beyond a sequence's length. `chain` [batch, longest], 0 for none: the next
 * position of the same label, `longest` if there is none; its complement where the label occurred before. */
struct ah_ctc_labels_args {
    struct ah_ctc ctc;
    uint64_t to, chain;
};

/* A block has a sequence. Forward: alpha [batch, steps, places], losses, and the result `out` of the tensor's type.
 * Back: terms as alpha, how probable each place is at each step, given the target. */
struct ah_ctc_pass_args {
    struct ah_ctc ctc;
    uint64_t alpha, loss, out, terms;
    uint64_t rows; /* two rows of places for each block, where shared memory has no room for them; else 0 */
};

struct ah_ctc_gradient_args {
    struct ah_ctc ctc;
    uint64_t chain, terms, loss, g, gx;
    int32_t wide;
};
