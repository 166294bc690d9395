/* Corrections and rates of a step, from its number and a group's options. */
#include "optim/scalars.h"

/* The scalars of the running means, of NAdam and of RAdam. */
static void set_adam(struct ah_optim_scalars *s, enum ah_optim_kind kind, const struct ah_optim_options *o, double step,
                     const double *scalar)
{
    s->lerp = 1 - (kind == AH_OPTIM_RMSPROP ? o->alpha : o->beta1);
    s->near_old = fabs(s->lerp) < 0.5;
    s->correction2 = 1 - pow(o->beta2, step);
    s->correction2_sqrt = sqrt(s->correction2);
    if (kind == AH_OPTIM_NADAM) {
        double next = ah_nadam_momentum(o, step + 1);
        s->first_weight = -o->lr * (1 - ah_nadam_momentum(o, step)) / (1 - scalar[0]);
        s->second_weight = -o->lr * next / (1 - scalar[0] * next);
    } else if (kind == AH_OPTIM_RADAM) {
        double full = 2 / (1 - o->beta2) - 1, length = full - 2 * step * pow(o->beta2, step) / s->correction2;
        s->first_weight = 1 - pow(o->beta1, step);
        s->rectified = length > 5;
        if (s->rectified)
            s->second_weight = sqrt((length - 4) * (length - 2) * full / ((full - 4) * (full - 2) * length));
    }
}

void ah_optim_set_scalars(struct ah_optim_scalars *s, enum ah_optim_kind kind, const struct ah_optim_options *o,
                          double step, const double *scalar)
{
    double step_size = o->lr;
    if (kind == AH_OPTIM_ADAM || kind == AH_OPTIM_ADAMW || kind == AH_OPTIM_ADAMAX)
        step_size = o->lr / (1 - pow(o->beta1, step));
    else if (kind == AH_OPTIM_ADAGRAD)
        step_size = o->lr / (1 + (step - 1) * o->lr_decay);
    double alpha = kind == AH_OPTIM_ADADELTA ? o->rho : o->alpha;
    *s = (struct ah_optim_scalars){
        .sign = o->maximize ? -1 : 1,
        .lr = o->lr,
        .negative_lr = -o->lr,
        .weight_decay = o->weight_decay,
        .eps = o->eps,
        .beta1 = o->beta1,
        .one_minus_beta1 = 1 - o->beta1,
        .beta2 = o->beta2,
        .one_minus_beta2 = 1 - o->beta2,
        .keep = kind == AH_OPTIM_ASGD ? 1 - o->lambd * scalar[0] : 1 - o->lr * o->weight_decay,
        .negative_step_size = -step_size,
        .momentum = o->momentum,
        .one_minus_dampening = 1 - o->dampening,
        .alpha = alpha,
        .one_minus_alpha = 1 - alpha,
        .eta = -scalar[0],
        .mu = scalar[1],
        .eta_minus = o->eta_minus,
        .eta_plus = o->eta_plus,
        .step_min = o->step_min,
        .step_max = o->step_max,
    };
    set_adam(s, kind, o, step, scalar);
}
