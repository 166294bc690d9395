/* The gradient column, filled from its rows. Invariant: a rule reads no argument that its row does not
 * save. */
#include "autograd/graph/rules.h"

#define NOTHING 0
#define ARG AH_SAVE_ARG
#define ARG_FOR AH_SAVE_ARG_FOR
#define IN AH_SAVE_IN
#define OUT AH_SAVE_OUT
#define IN_PLACE_ONLY AH_SAVE_IN_PLACE_ONLY
#define READS_HALVES AH_READS_HALVES
#define WRITES_SLOTS AH_WRITES_SLOTS
#define RULE(op, rule, saves) [AH_OP_##op] = {ah_backward_##rule, (saves)},

const struct ah_rule_row ah_rules[AH_OP_COUNT] = {
#include "autograd/graph/rules.def"
};
