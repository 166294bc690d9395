/* The structs that overlay a call's arguments, made by scripts/op-args.sh, against the signatures as ops/dispatch/op.c
 * reads them. */
#include <stddef.h>
#include <string.h>

#include "ops/dispatch/op.h"
#include "test.h"

#define PLACE(row, field) (int)(offsetof(struct ah_args_##row, field) / sizeof(struct ah_value))
#define STANDS(op, row, field) CHECK(!strcmp(ah_op_get(AH_OP_##op)->param[PLACE(row, field)].name, #field))

AH_TEST(op_args_have_the_places_of_the_signature)
{
    STANDS(conv2d, conv2d, input);
    STANDS(conv2d, conv2d, bias);
    STANDS(conv2d, conv2d, groups);
    STANDS(layer_norm, layer_norm, eps);
    STANDS(arange, arange, step);
    CHECK(sizeof(struct ah_args_conv2d) == (size_t)ah_op_get(AH_OP_conv2d)->param_count * sizeof(struct ah_value));
}

AH_TEST(op_args_of_a_shared_function_fit_all_its_rows)
{
    STANDS(maximum, extreme, other);
    STANDS(minimum, extreme, other);
    STANDS(cumsum, running_sum, dim);
    STANDS(cumsum_reverse, running_sum, dim);
    STANDS(remainder, whole_division, other);
    STANDS(floor_divide, whole_division, other);
}
