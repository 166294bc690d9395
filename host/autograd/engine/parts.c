/* Gradients of slices, from their arrival to the gradient of the whole tensor. Invariant: slices are kept only while
 * they may still cover the tensor once, so that they never use more memory than its gradient; and sums are formed in
 * the order of arrival. */
#include "autograd/engine/parts.h"

#include <stdlib.h>

#include "autograd/graph/node.h"
#include "base/memory/array.h"
#include "tensor/joined.h"

static int parts_by_start(const void *a, const void *b)
{
    int64_t first = ((const struct ah_part *)a)->place.start, second = ((const struct ah_part *)b)->place.start;
    return (first > second) - (first < second);
}

static int parts_by_arrival(const void *a, const void *b)
{
    return ((const struct ah_part *)a)->arrival - ((const struct ah_part *)b)->arrival;
}

/* Do the parts, in order, cover a dim of the tensor once? */
static bool parts_cover(const struct ah_parts *parts, const struct ah_input_meta *whole)
{
    int dim = parts->at[0].place.dim;
    int64_t end = 0;
    for (int i = 0; i < parts->count; i++) {
        if (parts->at[i].place.dim != dim || parts->at[i].place.start != end)
            return false;
        end += parts->at[i].grad->size[dim];
    }
    return end == whole->size[dim];
}

/* The tensor that the parts, in order, make up: a view of their memory, or a copy. */
static int parts_join(struct ah_tensor **out, const struct ah_parts *parts)
{
    int dim = parts->at[0].place.dim, status;
    if (parts->count == 1) {
        *out = ah_tensor_retain(parts->at[0].grad);
        return 0;
    }
    struct ah_tensor **slice = malloc((size_t)parts->count * sizeof *slice);
    AH_TRY_MEMORY(slice, "backward: out of memory");
    for (int i = 0; i < parts->count; i++)
        slice[i] = parts->at[i].grad;
    status = ah_tensor_joined(out, slice, parts->count, dim);
    if (status == 0 && !*out)
        status = ah_op1(AH_OP_cat, out, AH_L(slice, parts->count), AH_I(dim));
    free(slice);
    return status;
}

/* The gradient of a tensor that is zero but for the part. */
static int parts_embed(struct ah_tensor **out, const struct ah_part *part, const struct ah_input_meta *whole)
{
    return ah_op1(AH_OP_slice_backward, out, AH_T(part->grad), AH_INTS_OF(whole->size, whole->ndim),
                  AH_I(part->place.dim), AH_I(part->place.start), AH_I(1));
}

/* *sum += the part, in a copy where the sum has other references. */
static int parts_add_to(struct ah_tensor **sum, const struct ah_part *part)
{
    struct ah_tensor *slice, *result;
    int count;
    if (!ah_exclusive(*sum)) {
        struct ah_tensor *own;
        AH_TRY(ah_op1(AH_OP_clone, &own, AH_T(*sum)));
        ah_tensor_release(*sum);
        *sum = own;
    }
    AH_TRY(ah_op1(AH_OP_narrow, &slice, AH_T(*sum), AH_I(part->place.dim), AH_I(part->place.start),
                  AH_I(part->grad->size[part->place.dim])));
    int status = ah_op_call(AH_OP_add, (const struct ah_value[]){AH_T(slice), AH_T(part->grad)}, 2, true, &result,
                            &count);
    ah_tensor_release(slice);
    if (status == 0)
        ah_tensor_release(result);
    return status;
}

static void parts_clear(struct ah_parts *parts)
{
    for (int i = 0; i < parts->count; i++)
        ah_tensor_release(parts->at[i].grad);
    parts->count = 0;
    parts->numel = 0;
}

static int64_t parts_whole_numel(const struct ah_input_meta *whole)
{
    int64_t numel = 1;
    for (int d = 0; d < whole->ndim; d++)
        numel *= whole->size[d];
    return numel;
}

int ah_parts_settle(struct ah_visit *visit, int output)
{
    struct ah_parts *parts = visit->parts ? &visit->parts[output] : NULL;
    const struct ah_input_meta *whole = &visit->node->output[output];
    struct ah_tensor **sum = &visit->grad[output];
    int status = 0;
    if (!parts || parts->count == 0)
        return 0;
    if (parts->numel == parts_whole_numel(whole)) {
        qsort(parts->at, (size_t)parts->count, sizeof *parts->at, parts_by_start);
        if (parts_cover(parts, whole))
            status = parts_join(sum, parts);
        else
            qsort(parts->at, (size_t)parts->count, sizeof *parts->at, parts_by_arrival);
    }
    if (status == 0 && !*sum) {
        status = parts_embed(sum, &parts->at[0], whole);
        for (int i = 1; i < parts->count && status == 0; i++)
            status = parts_add_to(sum, &parts->at[i]);
    }
    parts_clear(parts);
    return status;
}

int ah_parts_settle_all(struct ah_visit *visit)
{
    for (int k = 0; visit->parts && k < visit->node->output_count; k++)
        AH_TRY(ah_parts_settle(visit, k));
    return 0;
}

int ah_parts_add(struct ah_visit *visit, int output, struct ah_tensor *grad, struct ah_slice place)
{
    struct ah_part part = {.grad = grad, .place = place};
    if (visit->grad[output])
        return parts_add_to(&visit->grad[output], &part);
    if (!visit->parts)
        visit->parts = calloc((size_t)visit->node->output_count, sizeof *visit->parts);
    AH_TRY_MEMORY(visit->parts, "backward: out of memory");
    struct ah_parts *parts = &visit->parts[output];
    AH_TRY(ah_grow(&parts->at, (size_t)parts->count + 1, &parts->room, sizeof *parts->at));
    part.arrival = parts->count;
    ah_tensor_retain(grad);
    parts->at[parts->count++] = part;
    parts->numel += grad->numel;
    return parts->numel > parts_whole_numel(&visit->node->output[output]) ? ah_parts_settle(visit, output) : 0;
}

void ah_parts_free(struct ah_visit *visit)
{
    for (int k = 0; visit->parts && k < visit->node->output_count; k++) {
        parts_clear(&visit->parts[k]);
        free(visit->parts[k].at);
    }
    free(visit->parts);
    visit->parts = NULL;
}
