/* The sums and the slots of the gradient arena into which the gradients of a node's inputs go unchanged, so that the
 * node's rule can store them there itself: those of leaves that an input is, or is the cast or the transpose of.
 *
 * Circle: destination, engine: the engine asks for slots, which depend on the options of its call. */
#pragma once

#include "autograd/engine/run.h"

enum { AH_DESTINATIONS = 4 }; /* inputs of the nodes whose rules store gradients */

/* Find them; return NULL where the node's rule does not store gradients, or no input has a slot, else `room`, with
 * slots that ah_destinations_close releases. */
struct ah_destination *ah_destinations_open(const struct ah_run *run, const struct ah_node *node,
                                            struct ah_destination room[AH_DESTINATIONS]);

/* Mark the leaves whose gradients the rule has stored. NULL is ignored. */
void ah_destinations_close(const struct ah_run *run, const struct ah_node *node, struct ah_destination *into);
