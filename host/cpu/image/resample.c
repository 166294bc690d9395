/* Resizing images and volumes. Every mode is, along each axis, a table of taps: which input positions an output
 * position reads, with which weights. An output row is the input rows that it reads, weighed into one, then read along
 * itself; the adjoint adds where these read. One and two dims of space are three with axes of size 1. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/threads.h"
#include "cpu/image/resample.h"
#include "cpu/kernels.h"
#include "cpu/loop/dense.h"
#include "ops/dispatch/op.h"

/* The same taps for items of any kind. */
static void resample_pick(const struct ah_resampling *r, const char *in, char *out, size_t item)
{
    const struct ah_resample_axis *az = &r->axis[0], *ay = &r->axis[1], *ax = &r->axis[2];
    int64_t lines = r->planes * az->out * ay->out;
#pragma omp parallel for schedule(static) if (ah_worth_threads(lines * ax->out, AH_SHARE_LIGHT))
    for (int64_t line = 0; line < lines; line++) {
        int64_t z = az->at[line / ay->out % az->out], y = ay->at[line % ay->out], plane = line / (az->out * ay->out);
        const char *row = in + (size_t)(((plane * az->in + z) * ay->in + y) * ax->in) * item;
        char *to = out + (size_t)(line * ax->out) * item;
#define PICK(type)                                                          \
    for (int64_t x = 0; x < ax->out; x++)                                   \
        ((type *)to)[x] = ((const type *)row)[ax->at[x]]
        switch (item) {
        case 1: PICK(uint8_t); break;
        case 2: PICK(uint16_t); break;
        case 4: PICK(uint32_t); break;
        default: PICK(uint64_t);
        }
#undef PICK
    }
}

static enum ah_filter filter_of(const char *mode)
{
    return !strcmp(mode, "nearest")         ? AH_FILTER_NEAREST
           : !strcmp(mode, "nearest-exact") ? AH_FILTER_NEAREST_EXACT
           : !strcmp(mode, "bicubic")       ? AH_FILTER_CUBIC
           : !strcmp(mode, "lanczos")       ? AH_FILTER_LANCZOS
                                            : AH_FILTER_LINEAR;
}

/* Compute the number of taps of the widest position of an axis. Axes of size 1 that only fill up to three are read as
 * they are. */
static void describe_axis(struct ah_resampling *r, int i, int64_t in, int64_t out)
{
    struct ah_resample_axis *a = &r->axis[i];
    double step = r->scale[i] > 0 ? 1 / r->scale[i] : (double)in / (double)out;
    if (r->align_corners)
        step = out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    *a = (struct ah_resample_axis){.in = in, .out = out, .ragged = r->antialias};
    a->taps = r->filter == AH_FILTER_CUBIC ? 4 : r->filter == AH_FILTER_LINEAR ? 2 : 1;
    if (r->antialias)
        a->taps = (int)ceil(ah_filter_reach(r->filter) * (step > 1 ? step : 1)) * 2 + 1;
    if (a->taps > in && r->antialias)
        a->taps = (int)in;
}

/* The description of a call whose input side is `in` and whose output side is `out` (for the adjoint: those of the
 * forward), with room for the tables of positions. */
static void open_resampling(struct ah_resampling *r, const struct ah_call *c, const struct ah_tensor *in,
                            const struct ah_tensor *out, struct ah_arrays *arrays)
{
    const struct ah_args_resample *arg = ah_args(c, resample);
    *r = (struct ah_resampling){.filter = filter_of(arg->mode.string), .align_corners = arg->align_corners.flag,
                             .antialias = arg->antialias.flag, .planes = in->size[0] * in->size[1]};
    double scale[3] = {arg->scale0.number, arg->scale1.number, arg->scale2.number};
    int space = in->ndim - 2, missing = 3 - space;
    int64_t positions = 0;
    for (int i = 0; i < 3; i++) {
        r->scale[i] = i < missing ? 0 : scale[i - missing];
        describe_axis(r, i, i < missing ? 1 : in->size[2 + i - missing], i < missing ? 1 : out->size[2 + i - missing]);
        if (i < missing)
            r->axis[i].taps = 1;
        r->axis[i].whole = r->filter == AH_FILTER_NEAREST && space == 2;
        positions += (r->axis[i].taps + 1) * r->axis[i].out;
    }
    int32_t *next = ah_array_scratch(arrays, (size_t)positions * sizeof(int32_t));
    for (int i = 0; next && i < 3; i++) {
        struct ah_resample_axis *a = &r->axis[i];
        a->count = next;
        a->at = next + a->out;
        next += (a->taps + 1) * a->out;
    }
}

static int64_t room_of(const struct ah_resampling *r)
{
    int64_t room = ah_num_threads() * r->axis[2].in;
    for (int i = 0; i < 3; i++)
        room += r->axis[i].taps * r->axis[i].out;
    return room;
}

/* `in`, `out`: of the resampling. The adjoint reads arg 0 in the shape of `out` and writes in that of `in`. */
static int resample_run(struct ah_call *c, const struct ah_tensor *in, const struct ah_tensor *out, bool adjoint)
{
    struct ah_resampling r;
    struct ah_tensor *from = c->arg[0].tensor, *to = c->out[0];
    struct ah_arrays a = {0};
    bool nearest = !strncmp(ah_args(c, resample)->mode.string, "nearest", 7) && !adjoint;
    enum ah_dtype real = nearest && from->dtype != AH_F64 ? AH_F32 : from->dtype;
    open_resampling(&r, c, in, out, &a);
    void *room = ah_array_scratch(&a, (size_t)room_of(&r) * ah_dtype_size(ah_compute_dtype(real)));
    const void *x = nearest ? ah_array_as_is(&a, from) : ah_array_in(&a, from);
    void *y = nearest ? ah_tensor_data(to) : ah_array_out(&a, to);
    if (a.status == 0 && nearest) {
        int64_t planes = r.planes;
        r.planes = 0;
        AH_BY_REAL(real, ah_resample, &r, NULL, NULL, room, false);
        r.planes = planes;
        resample_pick(&r, x, y, ah_dtype_size(from->dtype));
    } else if (a.status == 0) {
        AH_BY_REAL(real, ah_resample, &r, x, y, room, adjoint);
    }
    return ah_arrays_close(&a);
}

AH_CPU_OP(resample, resample_run(c, c->arg[0].tensor, c->out[0], false))
AH_CPU_OP(resample_adjoint, resample_run(c, c->out[0], c->arg[0].tensor, true))
