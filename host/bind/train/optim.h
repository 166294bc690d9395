/* What the files of accelhost._C.optim share. */
#ifndef AH_BIND_OPTIM_H
#define AH_BIND_OPTIM_H

#include "bind/lua/bind.h"
#include "optim/step.h"

/* The options of a kind from the table of a group; raises when one is missing or something else. */
void ah_optim_read_options(lua_State *L, int index, enum ah_optim_kind kind, struct ah_optim_options *options);

/* Push two functions: one that does a step with these items again, with the options that the table at `group` then has,
 * to be called while a graph is revised, and raises unless the items are still those of `group` and `state`; and one
 * that takes back what the last step counted, the one that is now to be done or one done again, when its capture failed
 * or the device left it out. Raises where an item cannot be captured. */
void ah_optim_push_again(lua_State *L, enum ah_optim_kind kind, unsigned needs, int group, int state,
                         const struct ah_optim_item *item, int count);

#endif
