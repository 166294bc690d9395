/* Anomaly mode: nodes made while it is on know the script line of their op, and a backward stops at the first gradient
 * that is nan, naming op and line. PyTorch's torch.autograd.set_detect_anomaly. Lua thread only. */
#pragma once

#include "autograd/graph/graph.h"

struct ah_anomaly {
    bool on, check_nan;
    const char *(*site)(void); /* "train.lua:12", valid until the next call */
};
extern struct ah_anomaly ah_anomaly;

/* For a node that is being made: a copy of the line, NULL when the mode is off. AH_ENOMEM. */
int ah_anomaly_mark(struct ah_node *node);

/* The gradients that a node's rule has made (NULL where none is): AH_EINVAL, if the mode checks, for the first that
 * holds nan. */
int ah_anomaly_check(const struct ah_node *node, struct ah_tensor **grad_in);
