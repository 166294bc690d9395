/* Declarations shared by the files of accelhost._C.optim. */
#pragma once

#include "bind/lua/bind.h"
#include "optim/step.h"

/* Set the options that the kind reads: the keys of the table at `index`. */
void ah_optim_set_options(lua_State *L, int index, enum ah_optim_kind kind);

/* Read the options of a kind from the table of a group; raises when one is missing or of another type. */
void ah_optim_read_options(lua_State *L, int index, enum ah_optim_kind kind, struct ah_optim_options *options);

/* Push two functions. The first repeats a step with these items and the current options of the table at `group`; it is
 * called while a graph is revised and raises unless the items are still those of `group` and `state`. The second undoes
 * the step count of the last step or repetition, when its capture failed or the device skipped it. Raises where an item
 * cannot be captured. */
void ah_optim_push_again(lua_State *L, enum ah_optim_kind kind, unsigned needs, int group, int state,
                         const struct ah_optim_item *item, int count);
