/* A device's functions for optimizers: one fused pass over a list of segments, and the passes of gradient clipping.
 *
 * A segment is one parameter: its values, its gradient and its state, each `n` contiguous elements of one dtype in the
 * device's memory. The formulas and their order of operations are those of PyTorch's single-tensor loops, so that
 * float64 runs agree to the last digits; float16 and bfloat16 are computed in float32. Results must not depend on the
 * number of threads. Lua thread only.
 *
 * This file knows no tensors, no autograd and no parameter groups: see optim/step.h. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/numeric/dtype.h"

enum ah_optim_kind {
#define KIND(kind, ...) AH_OPTIM_##kind,
#include "optim/kinds.def"
#undef KIND
    AH_OPTIM_KINDS
};

enum { AH_OPTIM_STATES = 3, AH_OPTIM_SCALARS = 2 };

/* Options of a parameter group; each kind reads its own. */
struct ah_optim_options {
    double lr, weight_decay, eps;
    double beta1, beta2;         /* Adam and its kin, Lion */
    double momentum, dampening;  /* SGD; momentum also RMSprop */
    double alpha;                /* RMSprop, ASGD */
    double rho;                  /* Adadelta */
    double lr_decay;             /* Adagrad */
    double momentum_decay;       /* NAdam */
    double lambd, t0;            /* ASGD */
    double eta_minus, eta_plus;  /* Rprop */
    double step_min, step_max;   /* Rprop */
    bool nesterov, amsgrad, centered, maximize;
    bool decoupled_weight_decay; /* Adam, NAdam, RAdam */
    const void *unless;          /* NULL, or an int32 in the device's memory: the step is left out where it is not 0 */
};

/* NAdam's momentum of a step. */
static inline double ah_nadam_momentum(const struct ah_optim_options *o, double step)
{
    return o->beta1 * (1 - 0.5 * pow(0.96, step * o->momentum_decay));
}

struct ah_optim_segment {
    void *param;
    const void *grad;
    void *state[AH_OPTIM_STATES]; /* in the order listed above; unused ones NULL */
    unsigned offloaded; /* bits of the states that are in pinned memory of the host; only where the device `offloads` */
    int64_t n;
    double step; /* this step's number, from 1 */
    double scalar[AH_OPTIM_SCALARS]; /* those of the kind, as this step uses them */
};

/* `n` contiguous elements of a gradient. */
struct ah_optim_run {
    void *x;
    int64_t n;
};

/* The norm's sum (of order p) with a part of it. */
static inline double ah_norm_with(double sum, double part, double p)
{
    return !isinf(p) ? sum + part : part > sum || isnan(part) ? part : sum;
}

/* The factor that scales gradients of this norm to max_norm; they are scaled where it is below 1. PyTorch computes
 * max_norm / (norm + 1e-6) as a reciprocal and a product, in the gradients' dtype. */
static inline double ah_clip_factor(double max_norm, double norm, bool all_double)
{
    return all_double ? 1 / (norm + 1e-6) * max_norm : (double)(1 / ((float)norm + 1e-6f) * (float)max_norm);
}

struct ah_device;

struct ah_optim_kernels {
    /* Update all segments, which share `dtype` (a floating one). Offloaded states have been written on return. */
    int (*step)(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                const struct ah_optim_segment *segment, int count, enum ah_dtype dtype);

    /* Add sum(|x|^p) of each run in turn to *sum; p infinite: *sum becomes max(|x|) where that is larger, NaN if any
     * is. Accumulated in double, in fixed chunks. */
    int (*norm_sum)(struct ah_device *device, const struct ah_optim_run *run, int count, double p, enum ah_dtype dtype,
                    double *sum);

    /* x *= factor, and x = min(max(x, -limit), limit). *overflow (unless NULL) becomes true when an element was
     * infinite or NaN before, and stays as it is otherwise. */
    int (*scale)(struct ah_device *device, const struct ah_optim_run *run, int count, double factor,
                 enum ah_dtype dtype, bool *overflow);
    int (*clamp)(struct ah_device *device, const struct ah_optim_run *run, int count, double limit,
                 enum ah_dtype dtype);

    /* norm_sum, then scale by its result, without waiting for the device: the common norm is written to *norm in its
     * memory, a float, or a double where dtype is float64. NULL where that is no gain. */
    int (*clip_norm)(struct ah_device *device, const struct ah_optim_run *run, int count, double max_norm, double p,
                     enum ah_dtype dtype, void *norm);

    /* x *= the double at `factor`; the int32 at `found` becomes 1 when an element was infinite or NaN before, and stays
     * as it is otherwise. Both in the device's memory, and nothing waits. NULL where that is no gain; a device that has
     * it heeds `unless` in its steps. */
    int (*unscale)(struct ah_device *device, const struct ah_optim_run *run, int count, enum ah_dtype dtype,
                   const void *factor, void *found);

    bool offloads; /* `step` accepts states in pinned memory of the host */
};
