/* The numbers of a step that are the same for all elements of a segment, in double. A device rounds each to the type
 * that it computes in, where PyTorch rounds them. */
#pragma once

#include "optim/kernels.h"

/* FIELD(name):
 *     sign                     -1 to maximize
 *     keep                     decoupled decay: 1 - lr * weight_decay; ASGD: 1 - lambd * eta
 *     negative_step_size       Adam, Adamax: -lr / (1 - beta1^t); Adagrad: -lr / (1 + (t - 1) lr_decay); else -lr
 *     correction2              1 - beta2^t
 *     correction2_sqrt         its root
 *     alpha, one_minus_alpha   Adadelta: of rho
 *     lerp                     of the running mean: 1 - beta1 (RMSprop: 1 - alpha); where it is not near_old a device
 * subtracts 1 from the rounded number and counts from the new gradient
 *     first_weight             NAdam: -lr (1 - mu) / (1 - product); RAdam: 1 - beta1^t
 *     second_weight            NAdam: -lr mu_next / (1 - product mu_next); RAdam: the rectification
 *     eta                      ASGD's, negative */
#define AH_OPTIM_SCALARS_OF(FIELD)                                                                                  \
    FIELD(sign) FIELD(lr) FIELD(negative_lr) FIELD(weight_decay) FIELD(eps) FIELD(beta1) FIELD(one_minus_beta1)     \
    FIELD(beta2) FIELD(one_minus_beta2) FIELD(keep) FIELD(negative_step_size) FIELD(correction2)                    \
    FIELD(correction2_sqrt) FIELD(momentum) FIELD(one_minus_dampening) FIELD(alpha) FIELD(one_minus_alpha)          \
    FIELD(lerp) FIELD(first_weight) FIELD(second_weight) FIELD(eta) FIELD(mu) FIELD(eta_minus) FIELD(eta_plus)      \
    FIELD(step_min) FIELD(step_max)

struct ah_optim_scalars {
#define FIELD(name) double name;
    AH_OPTIM_SCALARS_OF(FIELD)
#undef FIELD
    bool near_old, rectified;
};

/* Those of a segment's `step` and `scalar`. */
void ah_optim_set_scalars(struct ah_optim_scalars *s, enum ah_optim_kind kind, const struct ah_optim_options *options,
                          double step, const double *scalar);
