/* One step of an optimizer over a list of parameters.
 *
 * The kinds and their options are in optim/kernels.h; this file knows tensors: it checks that gradients and state fit
 * the parameters, opens them as contiguous runs (packed copies where they are strided) and hands them to the device,
 * dtype by dtype. Groups and state tables are Lua's. Lua thread only. */
#pragma once

#include "optim/kernels.h"
#include "tensor/tensor.h"

/* Name of a kind and PyTorch's names of its state tensors, in the order of the segments. */
struct ah_optim_kind_info {
    const char *name;
    const char *state[AH_OPTIM_STATES];   /* unused ones NULL */
    const char *scalar[AH_OPTIM_SCALARS]; /* tensors of one element on the CPU; unused ones NULL */
};
extern const struct ah_optim_kind_info ah_optim_kinds[AH_OPTIM_KINDS];

/* The state tensors (bits 0..) and the step counter (AH_OPTIM_STEP) that a step with these options uses. */
enum { AH_OPTIM_STEP = 1 << AH_OPTIM_STATES };
unsigned ah_optim_needs(enum ah_optim_kind kind, const struct ah_optim_options *options);

/* A parameter to be stepped. All borrowed. */
struct ah_optim_item {
    struct ah_tensor *param, *grad;
    struct ah_tensor *state[AH_OPTIM_STATES]; /* those that are needed, else NULL */
    struct ah_tensor *step; /* one element, counts on with the step; NULL: this kind counts nothing */
    struct ah_tensor *scalar[AH_OPTIM_SCALARS]; /* one element each, changed by the step; unused ones NULL */
    bool fresh;             /* the state holds nothing yet (kinds that count nothing) */
    int index;              /* of the parameter, from 1 as in Lua's list, for messages */
};

/* Can a step use this state of the parameter: in its dtype, and on its device, or offloaded, in pinned memory of the
 * host that the device copies from and to? */
bool ah_optim_state_fits(const struct ah_tensor *state, const struct ah_tensor *param);

/* Step all items, or, when one does not fit, none. AH_EINVAL names parameter, shapes and dtypes. */
int ah_optim_step(enum ah_optim_kind kind, const struct ah_optim_options *options, struct ah_optim_item *item,
                  int count);
