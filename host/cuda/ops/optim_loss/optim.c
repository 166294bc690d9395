/* The optimizers' passes: many segments in one launch. Segments that follow each other in memory, as those of a flat
 * arena, become one part; segments with another step or other scalars are in the next launch. */
#include "cuda/kernels/optim_loss/optim.h"

#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/ops/optim_loss/offload.h"

/* Chunks of a launch that are counted in 32 bits. */
#define MOST_CHUNKS ((int64_t)1 << 30)

static struct ah_cuda_kernel step_kernel[] = AH_CUDA_REALS("optim", "optim_step");
static struct ah_cuda_kernel norm_kernel[] = AH_CUDA_REALS("optim", "optim_norm");
static struct ah_cuda_kernel scale_kernel[] = AH_CUDA_REALS("optim", "optim_scale");
static struct ah_cuda_kernel total_kernel = AH_CUDA_KERNEL("optim", "optim_norm_total");

static int64_t chunks_of(int64_t n)
{
    return (n + AH_OPTIM_CHUNK - 1) / AH_OPTIM_CHUNK;
}

/* Steps. */

static struct ah_step_part part_of(const struct ah_optim_segment *segment)
{
    struct ah_step_part part = {
        .param = ah_cuda_address(segment->param), .grad = ah_cuda_address(segment->grad), .n = segment->n};
    for (int k = 0; k < AH_OPTIM_STATES; k++)
        part.state[k] = ah_cuda_address(segment->state[k]);
    return part;
}

/* Does `next` begin where `part` ends, in all of its memory? */
static bool optim_follows(const struct ah_step_part *part, const struct ah_step_part *next, size_t item)
{
    uint64_t bytes = (uint64_t)part->n * item;
    bool so = part->param + bytes == next->param && part->grad + bytes == next->grad;
    for (int k = 0; so && k < AH_OPTIM_STATES; k++)
        so = part->state[k] ? part->state[k] + bytes == next->state[k] : !next->state[k];
    return so;
}

static bool same_scalars(const struct ah_optim_segment *a, const struct ah_optim_segment *b)
{
    return a->step == b->step && !memcmp(a->scalar, b->scalar, sizeof a->scalar);
}

/* Add a part; false where there is no room. */
static bool add_part(struct ah_step_parts *parts, const struct ah_step_part *part, size_t item)
{
    if (parts->count > 0 && optim_follows(&parts->part[parts->count - 1], part, item)) {
        struct ah_step_part *last = &parts->part[parts->count - 1];
        int64_t chunks = parts->first[parts->count - 1] + chunks_of(last->n + part->n);
        if (chunks > MOST_CHUNKS)
            return false;
        last->n += part->n;
        parts->chunks = (uint32_t)chunks;
        return true;
    }
    if (parts->count == AH_OPTIM_PARTS || parts->chunks + chunks_of(part->n) > MOST_CHUNKS)
        return false;
    uint64_t all = part->param | part->grad | part->state[0] | part->state[1] | part->state[2];
    parts->part[parts->count] = *part;
    parts->wide[parts->count] = all % 16 == 0;
    parts->first[parts->count++] = parts->chunks;
    parts->chunks += (uint32_t)chunks_of(part->n);
    return true;
}

static uint32_t flags_of(enum ah_optim_kind kind, const struct ah_optim_options *o, double step,
                         const struct ah_optim_scalars *scalars)
{
    bool decay = o->weight_decay != 0;
    return (decay ? AH_STEP_DECAY : 0) |
           (kind == AH_OPTIM_ADAMW || (decay && o->decoupled_weight_decay) ? AH_STEP_DECOUPLED : 0) |
           (o->nesterov ? AH_STEP_NESTEROV : 0) | (step == 1 ? AH_STEP_FIRST : 0) |
           (scalars->near_old ? AH_STEP_NEAR_OLD : 0) | (scalars->rectified ? AH_STEP_RECTIFIED : 0);
}

static int launch_step(struct ah_device *device, const struct ah_step_parts *parts,
                       const struct ah_optim_scalars *scalars, uint32_t flags, const void *unless, enum ah_dtype dtype)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    struct ah_cuda_grid grid = {ah_cuda_blocks(parts->chunks, 1), AH_OPTIM_THREADS, 0};
    if (dtype == AH_F64) {
        struct ah_step_args_f64 args = {
            .parts = *parts, .numbers.flags = flags, .unless = ah_cuda_address(unless)};
#define FIELD(name) args.numbers.scalars.name = scalars->name;
        AH_OPTIM_SCALARS_OF(FIELD)
#undef FIELD
        args.numbers.scalars.lerp -= scalars->near_old ? 0 : 1;
        AH_TRY(ah_cuda_capture_numbers(cuda, parts, sizeof *parts, &args.numbers, sizeof args.numbers,
                                     &args.numbers_at));
        return cuda->revised ? 0 : ah_cuda_launch(device, &step_kernel[dtype], "step", grid, &args);
    }
    struct ah_step_args_f32 args = {
        .parts = *parts, .numbers.flags = flags, .unless = ah_cuda_address(unless)};
#define FIELD(name) args.numbers.scalars.name = (float)scalars->name;
    AH_OPTIM_SCALARS_OF(FIELD)
#undef FIELD
    args.numbers.scalars.lerp -= scalars->near_old ? 0 : 1;
    AH_TRY(ah_cuda_capture_numbers(cuda, parts, sizeof *parts, &args.numbers, sizeof args.numbers, &args.numbers_at));
    return cuda->revised ? 0 : ah_cuda_launch(device, &step_kernel[dtype], "step", grid, &args);
}

/* Step segments whose states are on the device. */
static int step_resident(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                         const struct ah_optim_segment *segment, int count, enum ah_dtype dtype)
{
    for (int first = 0, next; first < count; first = next) {
        struct ah_step_parts parts = {.kind = kind};
        struct ah_optim_scalars scalars;
        for (next = first; next < count && same_scalars(&segment[first], &segment[next]); next++) {
            struct ah_step_part part = part_of(&segment[next]);
            if (part.n > 0 && !add_part(&parts, &part, ah_dtype_size(dtype)))
                break;
        }
        if (next == first)
            return ah_fail(AH_EINVAL, "a parameter of %lld elements is too large for a step on %s",
                           (long long)segment[first].n, device->name);
        ah_optim_set_scalars(&scalars, kind, options, segment[first].step, segment[first].scalar);
        uint32_t flags = flags_of(kind, options, segment[first].step, &scalars);
        if (parts.count > 0)
            AH_TRY(launch_step(device, &parts, &scalars, flags, options->unless, dtype));
    }
    return 0;
}

static int optim_step(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                      const struct ah_optim_segment *segment, int count, enum ah_dtype dtype)
{
    struct ah_offloaded_step step = {device, kind, options, dtype, step_resident};
    for (int first = 0, next; first < count; first = next) {
        bool offloaded = segment[first].offloaded != 0;
        for (next = first + 1; next < count && (segment[next].offloaded != 0) == offloaded; next++)
            continue;
        AH_TRY(offloaded ? ah_cuda_step_offloaded(&step, segment + first, next - first)
                         : step_resident(device, kind, options, segment + first, next - first, dtype));
    }
    return 0;
}

/* Passes over runs. */

/* Those of `run` that fit into a launch; returns the number processed. */
static int add_runs(struct ah_runs *runs, const struct ah_optim_run *run, int count)
{
    int used = 0;
    runs->count = runs->chunks = 0;
    for (; used < count && runs->count < AH_OPTIM_RUNS; used++) {
        if (used > 0 && runs->chunks + chunks_of(run[used].n) > MOST_CHUNKS)
            break;
        if (run[used].n == 0)
            continue;
        runs->x[runs->count] = ah_cuda_address(run[used].x);
        runs->n[runs->count] = run[used].n;
        runs->first[runs->count++] = runs->chunks;
        runs->chunks += (uint32_t)chunks_of(run[used].n);
    }
    return used;
}

static struct ah_cuda_grid grid_of(const struct ah_runs *runs)
{
    return ah_cuda_grid_each(runs->chunks, AH_OPTIM_THREADS);
}

/* The sums of chunks to `partial`, then the results of `total` after them. */
static int add_up(struct ah_device *device, const struct ah_optim_run *run, int count, enum ah_dtype dtype,
                  double *partial, int64_t chunks, struct ah_norm_total_args total)
{
    int64_t done = 0;
    for (int used = 0; used < count;) {
        struct ah_norm_args args = {.partial = ah_cuda_address(partial + done), .p = total.p};
        used += add_runs(&args.runs, run + used, count - used);
        done += args.runs.chunks;
        if (args.runs.count > 0)
            AH_TRY(ah_cuda_launch(device, &norm_kernel[dtype], "norm", grid_of(&args.runs), &args));
    }
    total.partial = ah_cuda_address(partial);
    total.total = ah_cuda_address(partial + chunks);
    total.count = chunks;
    return ah_cuda_launch(device, &total_kernel, "norm", ah_cuda_grid_of(1, AH_OPTIM_THREADS, 0), &total);
}

static int64_t all_chunks(const struct ah_optim_run *run, int count)
{
    int64_t chunks = 0;
    for (int i = 0; i < count; i++)
        chunks += chunks_of(run[i].n);
    return chunks;
}

static int norm_sum(struct ah_device *device, const struct ah_optim_run *run, int count, double p,
                    enum ah_dtype dtype, double *sum)
{
    struct ah_cuda_memory *memory = ah_cuda_state(device)->memory;
    int64_t chunks = all_chunks(run, count);
    double part = 0;
    void *partial;
    if (chunks == 0)
        return 0;
    AH_TRY(ah_cuda_memory_take(memory, (size_t)(chunks + 1) * sizeof(double), &partial));
    int status = add_up(device, run, count, dtype, partial, chunks, (struct ah_norm_total_args){.p = p});
    if (status == 0)
        status = ah_device_copy(&part, &ah_cpu, (double *)partial + chunks, device, sizeof part);
    ah_cuda_memory_give(memory, partial);
    if (status == 0)
        *sum = ah_norm_with(*sum, part, p);
    return status;
}

static int optim_sweep(struct ah_device *device, const struct ah_optim_run *run, int count,
                       const struct ah_scale_args *with, enum ah_dtype dtype)
{
    for (int used = 0; used < count;) {
        struct ah_scale_args args = *with;
        used += add_runs(&args.runs, run + used, count - used);
        if (args.runs.count > 0)
            AH_TRY(ah_cuda_launch(device, &scale_kernel[dtype], "scale", grid_of(&args.runs), &args));
    }
    return 0;
}

static int optim_scale(struct ah_device *device, const struct ah_optim_run *run, int count, double factor,
                       enum ah_dtype dtype, bool *overflow)
{
    struct ah_cuda_memory *memory = ah_cuda_state(device)->memory;
    struct ah_scale_args args = {.number = factor};
    uint32_t seen = 0;
    void *flag;
    if (!overflow)
        return optim_sweep(device, run, count, &args, dtype);
    AH_TRY(ah_cuda_memory_take(memory, sizeof seen, &flag));
    args.overflow = ah_cuda_address(flag);
    int status = device->type->fill(device, flag, 0, sizeof seen);
    if (status == 0)
        status = optim_sweep(device, run, count, &args, dtype);
    if (status == 0)
        status = ah_device_copy(&seen, &ah_cpu, flag, device, sizeof seen);
    ah_cuda_memory_give(memory, flag);
    if (seen)
        *overflow = true;
    return status;
}

static int optim_clamp(struct ah_device *device, const struct ah_optim_run *run, int count, double limit,
                       enum ah_dtype dtype)
{
    return optim_sweep(device, run, count, &(struct ah_scale_args){.number = limit, .clamp = true}, dtype);
}

static int optim_unscale(struct ah_device *device, const struct ah_optim_run *run, int count, enum ah_dtype dtype,
                         const void *factor, void *found)
{
    struct ah_scale_args args = {.overflow = ah_cuda_address(found), .number_at = ah_cuda_address(factor)};
    return optim_sweep(device, run, count, &args, dtype);
}

static int clip_norm(struct ah_device *device, const struct ah_optim_run *run, int count, double max_norm, double p,
                     enum ah_dtype dtype, void *norm)
{
    struct ah_norm_total_args total = {
        .norm = ah_cuda_address(norm), .p = p, .max_norm = max_norm, .wide = dtype == AH_F64};
    int64_t chunks = all_chunks(run, count);
    AH_CUDA_SCRATCH(partial, device);
    AH_TRY(ah_cuda_scratch_take(&partial, (size_t)(chunks + 2) * sizeof(double)));
    AH_TRY(add_up(device, run, count, dtype, partial.at, chunks, total));
    struct ah_scale_args args = {
        .number_at = ah_cuda_address((double *)partial.at + chunks + 1), .shrinks = true};
    return optim_sweep(device, run, count, &args, dtype);
}

const struct ah_optim_kernels ah_cuda_optim = {
    .step = optim_step,
    .norm_sum = norm_sum,
    .scale = optim_scale,
    .clamp = optim_clamp,
    .clip_norm = clip_norm,
    .unscale = optim_unscale,
    .offloads = true,
};
