/* All pieces of a dtype are opened before the kernel runs, so that an error leaves every parameter as it was.
 * Invariant: no tensor is passed to a kernel whose shape, dtype and device were not compared in this very step, since
 * Lua may change any of them between two steps. */
#include "optim/step.h"

#include <math.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "optim/piece.h"
#include "tensor/device.h"
#include "tensor/prefetch.h"

enum { ARRAYS = 2 + AH_OPTIM_STATES };

const struct ah_optim_kind_info ah_optim_kinds[AH_OPTIM_KINDS] = {
#define KIND(kind, needed, ...) [AH_OPTIM_##kind] = {__VA_ARGS__},
#include "optim/kinds.def"
#undef KIND
};

unsigned ah_optim_needs(enum ah_optim_kind kind, const struct ah_optim_options *o)
{
    switch (kind) {
#define KIND(kind, needed, ...) case AH_OPTIM_##kind: return needed;
#include "optim/kinds.def"
#undef KIND
    case AH_OPTIM_KINDS:
        break;
    }
    return 0;
}

static bool is_offloaded(const struct ah_tensor *state, const struct ah_tensor *param)
{
    const struct ah_device *device = param->storage->device;
    return device->optim && device->optim->offloads && ah_tensor_is_pinned(state) &&
           state->storage->owner == device && ah_tensor_is_contiguous(state);
}

bool ah_optim_state_fits(const struct ah_tensor *state, const struct ah_tensor *param)
{
    return state->dtype == param->dtype &&
           (state->storage->device == param->storage->device || is_offloaded(state, param));
}

static int check_fit(enum ah_optim_kind kind, const struct ah_optim_item *item, const char *what,
                     const struct ah_tensor *tensor)
{
    const struct ah_tensor *param = item->param;
    const char *name = ah_optim_kinds[kind].name;
    if (!ah_same_shape(tensor, param))
        return ah_fail(AH_EINVAL, "%s: parameter %d has shape %s, its %s %s", name, item->index, ah_shape(param), what,
                       ah_shape(tensor));
    if (tensor->dtype != param->dtype)
        return ah_fail(AH_EINVAL, "%s: parameter %d is %s, its %s %s", name, item->index, ah_dtype_name(param->dtype),
                       what, ah_dtype_name(tensor->dtype));
    if (tensor->storage->device != param->storage->device && (tensor == item->grad || !is_offloaded(tensor, param)))
        return ah_fail(AH_EINVAL, "%s: parameter %d is on %s, its %s on %s", name, item->index,
                       param->storage->device->name, what, tensor->storage->device->name);
    return 0;
}

/* A counter or a scalar of the state lives on the CPU, whatever the parameter's device. */
static int check_single(enum ah_optim_kind kind, const struct ah_optim_item *item, const char *what,
                        const struct ah_tensor *tensor)
{
    const char *name = ah_optim_kinds[kind].name;
    if (tensor && !ah_on_cpu(tensor))
        return ah_fail(AH_EINVAL, "%s: %s of parameter %d is on %s, expected cpu", name, what, item->index,
                       tensor->storage->device->name);
    if (tensor && tensor->numel != 1)
        return ah_fail(AH_EINVAL, "%s: %s of parameter %d has shape %s, expected one element", name, what, item->index,
                       ah_shape(tensor));
    return 0;
}

static int check_item(enum ah_optim_kind kind, const struct ah_optim_item *item)
{
    if (!ah_dtype_is_float(item->param->dtype))
        return ah_fail(AH_EINVAL, "%s: parameter %d is %s; only floating tensors can be optimized",
                       ah_optim_kinds[kind].name, item->index, ah_dtype_name(item->param->dtype));
    AH_TRY(check_fit(kind, item, "gradient", item->grad));
    for (int i = 0; i < AH_OPTIM_STATES; i++)
        if (item->state[i])
            AH_TRY(check_fit(kind, item, ah_optim_kinds[kind].state[i], item->state[i]));
    AH_TRY(check_single(kind, item, "the step counter", item->step));
    for (int i = 0; i < AH_OPTIM_SCALARS; i++)
        AH_TRY(check_single(kind, item, ah_optim_kinds[kind].scalar[i], item->scalar[i]));
    return 0;
}

/* A value as the tensor would hold it. */
static double step_rounded(const struct ah_tensor *tensor, double value)
{
    return tensor->dtype == AH_F64 ? value : (float)value;
}

/* The scalars that a step uses: NAdam's product of momenta holds this step's, ASGD's are those of the step before. */
static void get_scalars(enum ah_optim_kind kind, const struct ah_optim_options *o, const struct ah_optim_item *item,
                        struct ah_optim_segment *segment)
{
    for (int i = 0; i < AH_OPTIM_SCALARS; i++)
        segment->scalar[i] = item->scalar[i] ? ah_tensor_get(item->scalar[i], 0) : 0;
    if (kind == AH_OPTIM_NADAM)
        segment->scalar[0] = step_rounded(item->scalar[0], segment->scalar[0] *
                                          step_rounded(item->scalar[0], ah_nadam_momentum(o, segment->step)));
}

/* Write back the results of get_scalars, or, for ASGD, the values of its next step. */
static void set_scalars(enum ah_optim_kind kind, const struct ah_optim_options *o, struct ah_optim_item *item)
{
    struct ah_optim_segment segment = {.step = item->step ? ah_tensor_get(item->step, 0) + 1 : 1};
    get_scalars(kind, o, item, &segment);
    if (kind == AH_OPTIM_ASGD) {
        segment.scalar[0] = o->lr / pow(1 + o->lambd * o->lr * segment.step, o->alpha);
        segment.scalar[1] = 1 / fmax(1, segment.step - o->t0);
    }
    for (int i = 0; i < AH_OPTIM_SCALARS; i++)
        if (item->scalar[i])
            ah_tensor_set(item->scalar[i], 0, segment.scalar[i]);
}

/* Memory for one step over `count` items. */
struct scratch {
    struct ah_optim_segment *segment; /* [count] */
    struct ah_piece *piece;           /* of strided tensors, [count * ARRAYS] */
    int segments, pieces;
};

/* The elements of a tensor as a contiguous run. */
static int open_run(struct scratch *scratch, struct ah_tensor *tensor, bool writes, void **data)
{
    *data = NULL;
    if (!tensor)
        return 0;
    if (!tensor->storage->channels_last && ah_tensor_is_contiguous(tensor)) {
        *data = ah_tensor_data(tensor);
        return 0;
    }
    struct ah_piece *piece = &scratch->piece[scratch->pieces];
    AH_TRY(ah_piece_open(piece, tensor, writes));
    scratch->pieces++;
    *data = piece->data;
    return 0;
}

static int open_item(enum ah_optim_kind kind, const struct ah_optim_options *options, struct scratch *scratch,
                     const struct ah_optim_item *item)
{
    struct ah_optim_segment *segment = &scratch->segment[scratch->segments++];
    void *grad;
    AH_TRY(open_run(scratch, item->param, true, &segment->param));
    AH_TRY(open_run(scratch, item->grad, false, &grad));
    segment->offloaded = 0;
    for (int a = 0; a < AH_OPTIM_STATES; a++) {
        AH_TRY(open_run(scratch, item->state[a], true, &segment->state[a]));
        if (item->state[a] && is_offloaded(item->state[a], item->param))
            segment->offloaded |= 1u << a;
    }
    segment->grad = grad;
    segment->n = item->param->numel;
    segment->step = item->step ? ah_tensor_get(item->step, 0) + 1 : item->fresh ? 1 : 2;
    get_scalars(kind, options, item, segment);
    return 0;
}

static int close_all(struct scratch *scratch, bool failed)
{
    int status = 0;
    for (int i = 0; i < scratch->pieces; i++) {
        int closed = ah_piece_close(&scratch->piece[i], failed);
        status = status < 0 ? status : closed;
    }
    scratch->pieces = scratch->segments = 0;
    return status;
}

static void count_write(enum ah_optim_kind kind, const struct ah_optim_options *options, struct ah_optim_item *item)
{
    ah_tensor_touch(item->param);
    for (int a = 0; a < AH_OPTIM_STATES; a++)
        if (item->state[a])
            ah_tensor_touch(item->state[a]);
    set_scalars(kind, options, item);
    if (item->step)
        ah_tensor_set(item->step, 0, ah_tensor_get(item->step, 0) + 1);
}

static bool step_together(const struct ah_optim_item *a, const struct ah_optim_item *b)
{
    return a->param->dtype == b->param->dtype && a->param->storage->device == b->param->storage->device;
}

/* Step the items that share dtype and device with `first`. */
static int step_alike(enum ah_optim_kind kind, const struct ah_optim_options *options, struct ah_optim_item *item,
                      int count, int first, struct scratch *scratch)
{
    struct ah_device *device = item[first].param->storage->device;
    int status = 0;
    for (int i = first; i < count; i++)
        if (step_together(&item[i], &item[first]))
            AH_TRYGO(open_item(kind, options, scratch, &item[i]), failed);
    AH_TRYGO(device->optim->step(device, kind, options, scratch->segment, scratch->segments, item[first].param->dtype),
             failed);
    for (int i = first; i < count; i++)
        if (step_together(&item[i], &item[first]))
            count_write(kind, options, &item[i]);
    return close_all(scratch, false);
failed:
    close_all(scratch, true);
    return status;
}

static bool is_first(const struct ah_optim_item *item, int index)
{
    for (int i = 0; i < index; i++)
        if (step_together(&item[i], &item[index]))
            return false;
    return true;
}

int ah_optim_step(enum ah_optim_kind kind, const struct ah_optim_options *options, struct ah_optim_item *item,
                  int count)
{
    for (int i = 0; i < count; i++)
        AH_TRY(check_item(kind, &item[i]));
    if (count == 0)
        return 0;
    struct scratch scratch = {.segment = malloc((size_t)count * sizeof *scratch.segment),
                              .piece = malloc((size_t)count * ARRAYS * sizeof *scratch.piece)};
    int status = 0;
    if (!scratch.segment || !scratch.piece) {
        status = ah_fail(AH_ENOMEM, "out of memory for a step over %d parameters", count);
        goto out;
    }
    for (int i = 0; i < count; i++)
        if (is_first(item, i))
            AH_TRYGO(step_alike(kind, options, item, count, i, &scratch), out);
out:
    free(scratch.segment);
    free(scratch.piece);
    return status;
}
