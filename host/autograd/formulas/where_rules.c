/* Rules of ops that choose between their inputs, element by element: maximum, minimum and the clamps. A gradient is cut
 * by masks, never computed as a remainder, so that an infinite one stays infinite. Invariant: a bound that is a Lua
 * number (wrapped) has no gradient and shares nothing. */
#include "autograd/graph/graph.h"
#include "autograd/graph/rules.h"

static struct ah_tensor *where_two(struct ah_rule *r, enum ah_opid op, struct ah_tensor *a, struct ah_tensor *b)
{
    return ah_r(r, op, AH_T(a), AH_T(b));
}

static struct ah_tensor *where_only(struct ah_rule *r, struct ah_tensor *x, struct ah_tensor *mask)
{
    return ah_r(r, AH_OP_where, AH_T(mask), AH_T(x), AH_N(0));
}

static struct ah_tensor *where_halved(struct ah_rule *r, struct ah_tensor *g, struct ah_tensor *mask)
{
    return ah_r(r, AH_OP_where, AH_T(mask), AH_T(ah_r_scale(r, g, 0.5)), AH_T(g));
}

/* maximum and minimum: the selected input receives the gradient; a tie splits it, and at NaN both receive it. */
void ah_backward_extreme(struct ah_rule *r)
{
    const struct ah_args_extreme *arg = ah_args(r, extreme);
    struct ah_tensor *a = ah_given(&arg->input), *b = ah_given(&arg->other);
    bool maximum = r->node->op->id == AH_OP_maximum;
    struct ah_tensor *shared = where_halved(r, r->grad_out[0], where_two(r, AH_OP_eq, a, b));
    ah_r_give(r, 0, ah_r_masked(r, shared, where_two(r, maximum ? AH_OP_lt : AH_OP_gt, a, b)));
    ah_r_give(r, 1, ah_r_masked(r, shared, where_two(r, maximum ? AH_OP_gt : AH_OP_lt, a, b)));
}

/* Clamping. At a bound that is a number the gradient is 0; a bound that is a tensor gets the gradient that it stopped,
 * and at the bound the two share. */

/* `stopped` and `passes`: lt and gt for a minimum. Where nothing can be compared both get the gradient. */
static void one_bound_rule(struct ah_rule *r, struct ah_tensor *bound, enum ah_opid stopped, enum ah_opid passes)
{
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&ah_args(r, clamp)->input);
    if (!bound || bound->wrapped) {
        ah_r_give(r, 0, where_only(r, g, where_two(r, passes, x, bound)));
        return;
    }
    g = where_halved(r, g, where_two(r, AH_OP_eq, x, bound));
    ah_r_give(r, 0, ah_r_masked(r, g, where_two(r, stopped, x, bound)));
    ah_r_give(r, 1, ah_r_masked(r, g, where_two(r, passes, x, bound)));
}

AH_BACKWARD(clamp_min, one_bound_rule(r, ah_given(&ah_args(r, clamp_min)->min), AH_OP_lt, AH_OP_gt))
AH_BACKWARD(clamp_max, one_bound_rule(r, ah_given(&ah_args(r, clamp_max)->max), AH_OP_gt, AH_OP_lt))

/* Bounds that are equal do not share; of bounds in the wrong order the upper one counts. */
static void two_bounds_rule(struct ah_rule *r, struct ah_tensor *low, struct ah_tensor *high)
{
    struct ah_tensor *g = r->grad_out[0], *x = ah_given(&ah_args(r, clamp)->input);
    struct ah_tensor *apart = where_two(r, AH_OP_lt, low, high), *crossed = where_two(r, AH_OP_gt, low, high);
    struct ah_tensor *at_low = where_two(r, AH_OP_logical_and, where_two(r, AH_OP_eq, x, low), apart);
    struct ah_tensor *at_high = where_two(r, AH_OP_logical_and, where_two(r, AH_OP_eq, x, high), apart);
    struct ah_tensor *under =
        where_two(r, AH_OP_logical_and, where_two(r, AH_OP_lt, x, low), ah_r(r, AH_OP_logical_not, AH_T(crossed)));
    struct ah_tensor *over = where_two(r, AH_OP_logical_or, where_two(r, AH_OP_gt, x, high), crossed);
    struct ah_tensor *shared = where_halved(r, g, where_two(r, AH_OP_logical_or, at_low, at_high));
    ah_r_give(r, 0, ah_r_masked(r, shared, where_two(r, AH_OP_logical_or, under, over)));
    ah_r_give(r, 1, where_only(r, shared, where_two(r, AH_OP_logical_or, under, at_low)));
    ah_r_give(r, 2, where_only(r, shared, where_two(r, AH_OP_logical_or, over, at_high)));
}

void ah_backward_clamp(struct ah_rule *r)
{
    const struct ah_args_clamp *arg = ah_args(r, clamp);
    struct ah_tensor *low = ah_given(&arg->min), *high = ah_given(&arg->max);
    if (!low || !high) {
        one_bound_rule(r, low ? low : high, low ? AH_OP_lt : AH_OP_gt, low ? AH_OP_gt : AH_OP_lt);
        return;
    }
    if (!low->wrapped || !high->wrapped) {
        two_bounds_rule(r, low, high);
        return;
    }
    struct ah_tensor *x = ah_given(&ah_args(r, clamp)->input);
    struct ah_tensor *inside =
        where_two(r, AH_OP_logical_and, where_two(r, AH_OP_gt, x, low), where_two(r, AH_OP_lt, x, high));
    ah_r_give(r, 0, where_only(r, r->grad_out[0], inside));
}
