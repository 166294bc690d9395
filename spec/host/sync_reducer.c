/* The reducer: layout, averages, unused parameters, buffers, accumulation. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sync/layout.h"
#include "sync/reducer.h"
#include "comm_ranks.h"

#define PLAIN ((struct ah_reducer_options){.where = "?"})

enum { PARAMS = 5 };
/* 4, 1.6, 3, 0.4 and 0.2 kB of floats: with a limit of 4 kB three buckets, counted from the last parameter. */
static const int64_t shapes[PARAMS][2] = {{10, 100}, {4, 100}, {750, 1}, {10, 10}, {7, 7}};

struct model {
    struct ah_tensor *param[PARAMS], *buffer[2];
    struct ah_reducer *reducer;
};

/* The elements of a contiguous float32 tensor, NULL for others: a call for each of millions costs a second. */
static float *reducer_floats(const struct ah_tensor *tensor)
{
    bool direct = tensor->dtype == AH_F32 && ah_tensor_is_contiguous(tensor);
    return direct ? ah_tensor_data(tensor) : NULL;
}

static void reducer_fill(struct ah_tensor *tensor, double value)
{
    float *floats = reducer_floats(tensor);
    for (int64_t i = 0; i < tensor->numel; i++) {
        if (floats)
            floats[i] = (float)(value + (double)(i % 5));
        else
            ah_tensor_set(tensor, i, value + (double)(i % 5));
    }
}

static bool reducer_holds(const struct ah_tensor *tensor, double value)
{
    const float *floats = reducer_floats(tensor);
    for (int64_t i = 0; i < tensor->numel; i++) {
        double found = floats ? floats[i] : ah_tensor_get(tensor, i);
        if (fabs(found - (value + (double)(i % 5))) > 1e-5)
            return false;
    }
    return true;
}

static int reducer_make(struct rank *me, struct model *m, int64_t limit)
{
    for (int i = 0; i < PARAMS; i++) {
        AH_TRY(ah_tensor_empty(&m->param[i], shapes[i], 2, AH_F32, &ah_cpu));
        reducer_fill(m->param[i], 10 * i + me->rank);
    }
    AH_TRY(ah_tensor_empty(&m->buffer[0], (int64_t[]){3}, 1, AH_F32, &ah_cpu));
    AH_TRY(ah_tensor_empty(&m->buffer[1], NULL, 0, AH_I64, &ah_cpu));
    reducer_fill(m->buffer[0], me->rank);
    reducer_fill(m->buffer[1], 100 + me->rank);
    return ah_reducer_new(&m->reducer, me->group, m->param, PARAMS, m->buffer, 2,
                          (struct ah_reducer_options){.bucket_bytes = limit, .where = "?"});
}

static void reducer_unmake(struct model *m)
{
    ah_reducer_free(m->reducer);
    for (int i = 0; i < PARAMS; i++)
        ah_tensor_release(m->param[i]);
    ah_tensor_release(m->buffer[0]);
    ah_tensor_release(m->buffer[1]);
}

/* Do the engine's work for one parameter. */
static void reducer_give(struct model *m, int i, double value)
{
    bool *has = ah_reducer_has_grad(m->reducer, i);
    if (*has) {
        struct ah_tensor *grad = ah_reducer_grad(m->reducer, i);
        for (int64_t k = 0; k < grad->numel; k++)
            ah_tensor_set(grad, k, ah_tensor_get(grad, k) + value + (double)(k % 5));
    } else {
        reducer_fill(ah_reducer_grad(m->reducer, i), value);
    }
    *has = true;
    ah_reducer_param_ready(m->reducer, i);
}

static void reducer_averages(struct rank *me)
{
    struct model m;
    RANK_CHECK(me, reducer_make(me, &m, 4000) == 0);
    for (int i = 0; i < PARAMS; i++)
        RANK_CHECK(me, reducer_holds(m.param[i], 10 * i)); /* rank 0's values */
    RANK_CHECK(me, reducer_holds(m.buffer[0], 0) && ah_tensor_get(m.buffer[1], 0) == 100);
    RANK_CHECK(me, ah_reducer_buckets(m.reducer) == 2);
    for (int step = 0; step < 4; step++) {
        RANK_CHECK(me, ah_reducer_begin(m.reducer, 1, "?") == 0);
        reducer_fill(m.buffer[0], 7 * step + me->rank);
        for (int k = 0; k < PARAMS; k++) {
            /* Rank 0 goes from the front, the others from the back: the order of launches must not depend on it. */
            int i = me->rank ? PARAMS - 1 - k : k;
            reducer_give(&m, i, 100 * step + i + 3 * me->rank);
            ah_reducer_progress(m.reducer);
        }
        RANK_CHECK(me, ah_reducer_finish(m.reducer, "?") == 0);
        for (int i = 0; i < PARAMS; i++) {
            RANK_CHECK(me, *ah_reducer_has_grad(m.reducer, i));
            RANK_CHECK(me, reducer_holds(ah_reducer_grad(m.reducer, i), 100 * step + i + 1.5 * (me->size - 1)));
            *ah_reducer_has_grad(m.reducer, i) = false;
        }
        RANK_CHECK(me, reducer_holds(m.buffer[0], 7 * step));
    }
    /* Agreed after the first backward: the bucket that was ready first on rank 0, that of parameter 0, is first. */
    if (me->size > 1)
        RANK_CHECK(me, ah_reducer_times(m.reducer, 0).first + ah_reducer_times(m.reducer, 0).count == PARAMS);
    reducer_unmake(&m);
}

AH_TEST(gradients_are_averaged_whatever_their_order_of_arrival)
{
    CHECK(run_ranks_mortal(1, 0, 0, reducer_averages));
    CHECK(run_ranks_mortal(2, 0, 0, reducer_averages));
    CHECK(run_ranks_mortal(3, 0, 0, reducer_averages));
    CHECK(run_ranks_mortal(5, 0, 0, reducer_averages));
}

/* Parameter 1 is used by rank 0 only, parameter 2 by no rank. */
static void reducer_unused(struct rank *me)
{
    struct model m;
    RANK_CHECK(me, reducer_make(me, &m, 4000) == 0);
    for (int step = 0; step < 3; step++) {
        RANK_CHECK(me, ah_reducer_begin(m.reducer, 1, "?") == 0);
        for (int i = PARAMS - 1; i >= 0; i--) {
            if (i == 2 || (i == 1 && me->rank != 0))
                continue;
            reducer_give(&m, i, 8);
        }
        RANK_CHECK(me, ah_reducer_finish(m.reducer, "?") == 0);
        RANK_CHECK(me, *ah_reducer_has_grad(m.reducer, 1) && !*ah_reducer_has_grad(m.reducer, 2));
        double first = ah_tensor_get(ah_reducer_grad(m.reducer, 1), 0);
        RANK_CHECK(me, fabs(first - 8.0 / me->size) < 1e-6);
        RANK_CHECK(me, reducer_holds(ah_reducer_grad(m.reducer, 0), 8));
        for (int i = 0; i < PARAMS; i++)
            *ah_reducer_has_grad(m.reducer, i) = false;
    }
    reducer_unmake(&m);
}

AH_TEST(a_parameter_unused_on_some_ranks_counts_as_zero_there)
{
    CHECK(run_ranks_mortal(1, 0, 0, reducer_unused));
    CHECK(run_ranks_mortal(2, 0, 0, reducer_unused));
    CHECK(run_ranks_mortal(3, 0, 0, reducer_unused));
}

/* A hook gets the buckets in order, and its results are every rank's; buffers are those of a chosen rank. */
struct hooked {
    struct rank *me;
    struct model *model;
    int launched, finished, fails_at;
};

static int hook_launch(void *context, int launched)
{
    struct hooked *h = context;
    RANK_CHECK(h->me, launched == h->launched++);
    return launched == h->fails_at ? ah_fail(AH_EIO, "no such thing") : 0;
}

static int hook_finish(void *context, int launched)
{
    struct hooked *h = context;
    struct ah_tensor *bucket;
    RANK_CHECK(h->me, launched == h->finished++);
    AH_TRY(ah_reducer_bucket(&bucket, h->model->reducer, launched));
    int status = reduce(h->me, ah_tensor_data(bucket), bucket->numel, AH_F32, AH_REDUCE_MAX);
    ah_tensor_release(bucket);
    return status;
}

static void reducer_hooks(struct rank *me)
{
    struct model m;
    struct hooked h = {.me = me, .model = &m, .fails_at = -1};
    RANK_CHECK(me, reducer_make(me, &m, 4000) == 0);
    ah_reducer_set_hook(m.reducer, (struct ah_reducer_hook){hook_launch, hook_finish, &h});
    ah_reducer_buffers_from(m.reducer, me->size - 1);
    for (int step = 0; step < 3; step++) {
        h.launched = h.finished = 0;
        RANK_CHECK(me, ah_reducer_begin(m.reducer, 1, "?") == 0);
        reducer_fill(m.buffer[0], 7 * step + me->rank);
        for (int i = PARAMS - 1; i > 0; i--) /* the last one reaches rank 0 only */
            reducer_give(&m, i, step + i + me->rank);
        if (me->rank == 0)
            reducer_give(&m, 0, 50);
        RANK_CHECK(me, ah_reducer_finish(m.reducer, "?") == 0);
        RANK_CHECK(me, h.launched == 2 && h.finished == 2 && ah_reducer_rounds(m.reducer) == step + 1);
        for (int i = 0; i < PARAMS; i++) {
            RANK_CHECK(me, *ah_reducer_has_grad(m.reducer, i));
            RANK_CHECK(me, reducer_holds(ah_reducer_grad(m.reducer, i), i ? step + i + me->size - 1 : 50));
            *ah_reducer_has_grad(m.reducer, i) = false;
        }
        RANK_CHECK(me, reducer_holds(m.buffer[0], 7 * step + me->size - 1));
    }
    h.launched = h.fails_at = 0;
    RANK_CHECK(me, ah_reducer_begin(m.reducer, 1, "?") == 0);
    RANK_FAILS(me, ah_reducer_finish(m.reducer, "?"), AH_EIO, "no such thing");
    reducer_unmake(&m);
}

AH_TEST(a_hook_replaces_the_average)
{
    CHECK(run_ranks_mortal(1, 0, 0, reducer_hooks));
    CHECK(run_ranks_mortal(2, 0, 0, reducer_hooks));
    CHECK(run_ranks_mortal(3, 0, 0, reducer_hooks));
}

/* The shapes of GPT-2's small model, whose embedding serves as its last layer too; the buckets that PyTorch 1.13 made
 * of them after its first backward. Nothing is written there, so the memory is never touched. */
static void add_shape(struct ah_tensor **list, int *count, int64_t rows, int64_t columns)
{
    int64_t size[2] = {rows, columns};
    CHECK(ah_tensor_empty(&list[(*count)++], size, 2, AH_F32, &ah_cpu) == 0);
}

AH_TEST(buckets_of_a_large_model_are_those_of_pytorch)
{
    enum { WIDTH = 768 };
    static const int64_t block[][2] = {{1, WIDTH}, {1, WIDTH}, {WIDTH, 3 * WIDTH}, {1, 3 * WIDTH}, {WIDTH, WIDTH},
                                       {1, WIDTH}, {1, WIDTH}, {1, WIDTH}, {WIDTH, 4 * WIDTH}, {1, 4 * WIDTH},
                                       {4 * WIDTH, WIDTH}, {1, WIDTH}};
    struct ah_tensor *list[148];
    struct ah_layout layout;
    int count = 0;
    add_shape(list, &count, 50257, WIDTH);
    add_shape(list, &count, 1024, WIDTH);
    for (int b = 0; b < 12; b++)
        for (int i = 0; i < 12; i++)
            add_shape(list, &count, block[i][0], block[i][1]);
    add_shape(list, &count, 1, WIDTH);
    add_shape(list, &count, 1, WIDTH);
    REQUIRE(count == 148 && ah_layout_init(&layout, list, count, (struct ah_layout_options){0}) == 0);
    CHECK(layout.bucket_count == 13);
    for (int b = 0; b < layout.bucket_count; b++)
        CHECK(layout.bucket[b].payload == (b == 0 ? 9446400 : b < 12 ? 28351488 : 176446464));
    ah_layout_free(&layout);
    for (int i = 0; i < count; i++)
        ah_tensor_release(list[i]);
}

/* Rank r has weight r + 1 and passes gradients already multiplied by it, spread over two micro-steps. */
static void reducer_weights(struct rank *me)
{
    struct model m;
    double total = 0, weighted = 0;
    for (int r = 0; r < me->size; r++) {
        total += r + 1;
        weighted += 10 * (r + 1) * r;
    }
    RANK_CHECK(me, reducer_make(me, &m, 0) == 0);
    RANK_CHECK(me, ah_reducer_buckets(m.reducer) == 1);
    for (int i = 0; i < PARAMS; i++)
        reducer_give(&m, i, 4); /* outside begin and finish: stays here */
    ah_reducer_begin(m.reducer, me->rank + 1, "?");
    for (int i = PARAMS - 1; i > 0; i--)
        reducer_give(&m, i, 10 * (me->rank + 1) * me->rank - 4);
    RANK_CHECK(me, ah_reducer_finish(m.reducer, "?") == 0);
    double first = ah_tensor_get(ah_reducer_grad(m.reducer, 1), 0);
    RANK_CHECK(me, fabs(first - weighted / total) < 1e-4);
    /* Parameter 0 got nothing in the second micro-step: its gradient of the first is summed all the same. */
    first = ah_tensor_get(ah_reducer_grad(m.reducer, 0), 0);
    RANK_CHECK(me, fabs(first - 4 * me->size / total) < 1e-5);
    reducer_unmake(&m);
}

AH_TEST(gradients_are_divided_by_the_sum_of_weights)
{
    CHECK(run_ranks_mortal(1, 0, 0, reducer_weights));
    CHECK(run_ranks_mortal(2, 0, 0, reducer_weights));
    CHECK(run_ranks_mortal(3, 0, 0, reducer_weights));
}

static void different_models(struct rank *me)
{
    int64_t shape[2] = {4, me->rank == 1 ? 6 : 5};
    struct ah_tensor *param[2];
    struct ah_reducer *reducer;
    RANK_CHECK(me, ah_tensor_empty(&param[0], (int64_t[]){3}, 1, AH_F32, &ah_cpu) == 0);
    RANK_CHECK(me, ah_tensor_empty(&param[1], shape, 2, AH_F32, &ah_cpu) == 0);
    RANK_FAILS(me, ah_reducer_new(&reducer, me->group, param, 2, NULL, 0, PLAIN), AH_EMISMATCH,
               "prepare: number 1 of the parameters is float32 (4, 6) on rank 1, float32 (4, 5) on rank 0");
    RANK_FAILS(me, ah_reducer_new(&reducer, me->group, param, me->rank == 1 ? 1 : 2, NULL, 0, PLAIN), AH_EMISMATCH,
               "prepare: rank 0 has 2 parameters, rank 1 has 1");
    ah_tensor_release(param[0]);
    ah_tensor_release(param[1]);
}

AH_TEST(models_that_differ_are_refused_on_every_rank)
{
    CHECK(run_ranks_mortal(2, 0, 0, different_models));
    CHECK(run_ranks_mortal(3, 0, 0, different_models));
}

static void reducer_large(struct rank *me)
{
    struct ah_tensor *param[4];
    struct ah_reducer *reducer;
    static const int64_t lengths[4] = {800 * 1000, 7 * 1000 * 1000, 2000, 300 * 1000};
    for (int i = 0; i < 4; i++)
        RANK_CHECK(me, ah_tensor_zeros(&param[i], &lengths[i], 1, AH_F32, &ah_cpu) == 0);
    RANK_CHECK(me, ah_reducer_new(&reducer, me->group, param, 4, NULL, 0, PLAIN) == 0);
    /* From the end: 1.2 MB passes 1 MiB; 0.008 + 28 MB pass 25 MiB; the rest. */
    RANK_CHECK(me, ah_reducer_buckets(reducer) == 3);
    RANK_CHECK(me, ah_reducer_times(reducer, 0).bytes == 1200000 && ah_reducer_times(reducer, 0).count == 1);
    RANK_CHECK(me, ah_reducer_times(reducer, 1).bytes == 28008000 && ah_reducer_times(reducer, 1).count == 2);
    RANK_CHECK(me, ah_reducer_times(reducer, 2).bytes == 3200000);
    ah_reducer_begin(reducer, 1, "?");
    for (int i = 3; i >= 0; i--) {
        *ah_reducer_has_grad(reducer, i) = true;
        reducer_fill(ah_reducer_grad(reducer, i), me->rank);
        ah_reducer_param_ready(reducer, i);
        if (i == 3) {
            int64_t issued = ah_reducer_times(reducer, 0).issued_ns;
            RANK_CHECK(me, issued > 0); /* under way before the others arrive */
        }
    }
    RANK_CHECK(me, ah_reducer_finish(reducer, "?") == 0);
    for (int i = 0; i < 4; i++)
        RANK_CHECK(me, reducer_holds(ah_reducer_grad(reducer, i), 0.5 * (me->size - 1)));
    ah_reducer_free(reducer);
    for (int i = 0; i < 4; i++)
        ah_tensor_release(param[i]);
}

AH_TEST(buckets_close_at_their_limits_and_leave_early)
{
    CHECK(run_ranks_mortal(2, 0, 0, reducer_large));
}

static void reducer_views(struct rank *me)
{
    struct ah_tensor *base, *view, *whole;
    struct ah_reducer *reducer;
    RANK_CHECK(me, ah_tensor_zeros(&base, (int64_t[]){4, 6}, 2, AH_F32, &ah_cpu) == 0);
    RANK_CHECK(me, ah_tensor_view(&view, base, (int64_t[]){2, 6}, (int64_t[]){6, 1}, 2, 12) == 0);
    RANK_FAILS(me, ah_reducer_new(&reducer, me->group, &view, 1, NULL, 0, PLAIN), AH_EINVAL,
               "is a view of a larger tensor");
    ah_tensor_release(view);
    /* A view of the whole follows the storage into the arena. */
    RANK_CHECK(me, ah_tensor_view(&whole, base, (int64_t[]){24}, (int64_t[]){1}, 1, 0) == 0);
    RANK_CHECK(me, ah_reducer_new(&reducer, me->group, &base, 1, NULL, 0, PLAIN) == 0);
    ah_tensor_set(base, 5, 42);
    RANK_CHECK(me, ah_tensor_get(whole, 5) == 42);
    ah_reducer_free(reducer);
    RANK_CHECK(me, ah_tensor_get(whole, 5) == 42); /* the arena lives as long as its storages */
    ah_tensor_release(whole);
    ah_tensor_release(base);
}

AH_TEST(storages_move_with_their_views)
{
    CHECK(run_ranks_mortal(1, 0, 0, reducer_views));
}

/* Models of every size, one after the other, with buffers: the segment ends no larger than a few of them. */
static void reducer_sweep(struct rank *me)
{
    struct stat info;
    for (int trial = 1; trial <= 60; trial++) {
        struct ah_tensor *param, *buffer;
        struct ah_reducer *reducer;
        int64_t count = 20000 + 1000 * (trial * 7 % 60);
        RANK_CHECK(me, ah_tensor_zeros(&param, &count, 1, AH_F32, &ah_cpu) == 0);
        RANK_CHECK(me, ah_tensor_zeros(&buffer, &count, 1, AH_F32, &ah_cpu) == 0);
        RANK_CHECK(me, ah_reducer_new(&reducer, me->group, &param, 1, &buffer, 1, PLAIN) == 0);
        ah_reducer_begin(reducer, 1, "?");
        reducer_fill(ah_reducer_grad(reducer, 0), me->rank);
        ah_reducer_param_ready(reducer, 0);
        RANK_CHECK(me, ah_reducer_finish(reducer, "?") == 0);
        ah_reducer_free(reducer);
        ah_tensor_release(param);
        ah_tensor_release(buffer);
    }
    if (!has_segments(me))
        return;
    RANK_CHECK(me, fstat(me->control->segment_fd[me->rank], &info) == 0);
    RANK_CHECK(me, info.st_size < 2 * AH_STAGE_BYTES + 4 * 80000 * 4);
    RANK_CHECK(me, barrier(me) == 0);
    ah_group_trim(me->group);
    RANK_CHECK(me, fstat(me->control->segment_fd[me->rank], &info) == 0);
    RANK_CHECK(me, info.st_blocks * 512 <= 2 * AH_STAGE_BYTES + 2 * sysconf(_SC_PAGESIZE));
}

AH_TEST(memory_of_models_that_are_gone_serves_models_of_other_sizes)
{
    CHECK(run_ranks_mortal(2, 0, 0, reducer_sweep));
}

static void reducer_again(struct rank *me)
{
    void *first = NULL;
    for (int round = 0; round < 3; round++) {
        struct ah_tensor *param;
        struct ah_reducer *reducer;
        RANK_CHECK(me, ah_tensor_zeros(&param, (int64_t[]){5000}, 1, AH_F32, &ah_cpu) == 0);
        RANK_CHECK(me, ah_reducer_new(&reducer, me->group, &param, 1, NULL, 0, PLAIN) == 0);
        struct ah_tensor *grad = ah_reducer_grad(reducer, 0);
        RANK_CHECK(me, ah_tensor_get(grad, 4999) == 0); /* fresh, whatever was there */
        if (!strcmp(ah_group_backend(me->group), "shm"))
            RANK_CHECK(me, round == 0 || ah_tensor_data(grad) == first);
        first = ah_tensor_data(grad);
        reducer_fill(grad, 3);
        ah_reducer_free(reducer);
        ah_tensor_release(param);
    }
}

AH_TEST(a_prepared_model_that_is_gone_leaves_its_memory_to_the_next)
{
    CHECK(run_ranks_mortal(2, 0, 0, reducer_again));
}
