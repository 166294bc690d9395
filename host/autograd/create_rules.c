#include "autograd/rule.h"
#include "ops/rows.h"

int ah_backward_tril(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_tril, AH_T(r->grad_out[0]), AH_I(r->arg[1].integer));
    return r->status;
}

int ah_backward_triu(struct ah_rule *r)
{
    r->grad_in[0] = ah_r(r, AH_OP_triu, AH_T(r->grad_out[0]), AH_I(r->arg[1].integer));
    return r->status;
}

/* Random values replace what was there. */
static int forget(struct ah_rule *r)
{
    r->grad_in[0] = ah_r_zeros_input(r, 0);
    return r->status;
}

int ah_backward_uniform_(struct ah_rule *r)
{
    return forget(r);
}

int ah_backward_normal_(struct ah_rule *r)
{
    return forget(r);
}

int ah_backward_bernoulli_(struct ah_rule *r)
{
    return forget(r);
}

int ah_backward_random_(struct ah_rule *r)
{
    return forget(r);
}

int ah_backward_exponential_(struct ah_rule *r)
{
    return forget(r);
}
