/* A model that is trained by the reducer continues to the bit when a rank is killed. */
#include <stdlib.h>
#include <sys/wait.h>

#include "autograd/graph/graph.h"
#include "comm/recover/recover.h"
#include "cpu/device.h"
#include "recover_scene.h"
#include "sync/reducer.h"

enum { PARAMS = 6, LONGEST = 1000 };

struct model {
    struct ah_tensor *param[PARAMS], *buffer;
    struct ah_reducer *reducer;
};

static float *recover_values(struct ah_tensor *tensor)
{
    return ah_tensor_data(tensor);
}

static int recover_make(struct model *m, struct ah_group *group, int rank)
{
    for (int i = 0; i < PARAMS; i++) {
        AH_TRY(ah_tensor_empty(&m->param[i], (int64_t[]){LONGEST - 100 * i}, 1, AH_F32, &ah_cpu));
        for (int64_t k = 0; k < m->param[i]->numel; k++)
            recover_values(m->param[i])[k] = (float)(k % 7) + (float)rank;
    }
    AH_TRY(ah_tensor_zeros(&m->buffer, (int64_t[]){5}, 1, AH_F32, &ah_cpu));
    place(rank, -1, 0);
    return ah_reducer_new(&m->reducer, group, m->param, PARAMS, &m->buffer, 1,
                          (struct ah_reducer_options){.bucket_bytes = 4000, .where = "make:1"});
}

/* Gradients arrive in another order on each rank, so that the ranks would agree on rank 0's. */
static int recover_backward(struct model *m, int rank, int step)
{
    AH_TRY(ah_reducer_begin(m->reducer, rank + 1, "step:1"));
    for (int i = 0; i < PARAMS; i++) {
        int p = (i * 5 + rank + 2) % PARAMS;
        place(rank, step, i);
        if (p == step % PARAMS && rank == 1)
            continue; /* a parameter that this rank did not use */
        for (int64_t k = 0; k < m->param[p]->numel; k++)
            recover_values(ah_reducer_grad(m->reducer, p))[k] = (float)((k * 31 + step * 7 + rank * 3) % 101) / 99.0f;
        *ah_reducer_has_grad(m->reducer, p) = true;
        ah_reducer_param_ready(m->reducer, p);
        ah_reducer_progress(m->reducer);
    }
    AH_TRY(ah_reducer_finish(m->reducer, "step:2"));
    place(rank, step, PARAMS);
    for (int p = 0; p < PARAMS; p++) {
        for (int64_t k = 0; k < m->param[p]->numel; k++)
            recover_values(m->param[p])[k] -= 0.1f * recover_values(ah_reducer_grad(m->reducer, p))[k];
        *ah_reducer_has_grad(m->reducer, p) = false;
    }
    recover_values(m->buffer)[step % 5] += (float)rank + recover_values(m->param[0])[step];
    place(rank, step, PARAMS + 1);
    return 0;
}

/* A slice is here whole parameters: those whose number is the rank's, modulo the number of ranks. */
static int recover_publish(struct model *m, int rank)
{
    void *slice;
    size_t at = 0;
    AH_TRY(ah_recovery_slice(sizeof(float) * LONGEST * PARAMS, &slice));
    for (int p = rank; p < PARAMS; p += scene->size, at += LONGEST)
        memcpy((float *)slice + at, recover_values(m->param[p]), sizeof(float) * (size_t)m->param[p]->numel);
    return ah_recovery_mark(recover_values(m->buffer), 5 * sizeof(float));
}

static int recover_resume(struct model *m, int rank, int *step)
{
    int64_t at;
    const void *part;
    size_t bytes;
    AH_TRY(ah_recovery_find(&at));
    if (at < 0)
        return 0;
    AH_TRY(ah_recovery_note_of(rank, &part, &bytes));
    memcpy(recover_values(m->buffer), part, bytes);
    for (int p = 0; p < PARAMS; p++) {
        AH_TRY(ah_recovery_slice_of(p % scene->size, &part, &bytes));
        memcpy(recover_values(m->param[p]), (const float *)part + (size_t)(p / scene->size) * LONGEST,
               sizeof(float) * (size_t)m->param[p]->numel);
    }
    *step = (int)at;
    return ah_recovery_take();
}

static int recover_train(struct ah_group *group, int rank)
{
    struct model m;
    int step = 0;
    uint64_t sum = 0;
    ah_cpu_open();
    ah_autograd_open();
    AH_TRY(recover_make(&m, group, rank));
    AH_TRY(recover_resume(&m, rank, &step));
    for (; step < scene->steps; step++) {
        AH_TRY(recover_publish(&m, rank));
        AH_TRY(recover_backward(&m, rank, step));
    }
    for (int p = 0; p < PARAMS; p++)
        for (int64_t k = 0; k < m.param[p]->numel; k++) {
            uint32_t word;
            memcpy(&word, &recover_values(m.param[p])[k], sizeof word);
            sum = (sum ^ word) * 0x100000001b3u;
        }
    atomic_store(&scene->sum[rank], sum);
    return 0;
}

AH_TEST(averaged_gradients_are_the_same_to_the_bit_when_a_rank_is_replaced)
{
    uint64_t sum[MOST];
    for (int size = 2; size <= 3; size++) {
        REQUIRE(learn(recover_train, size, STEPS, sum));
        CHECK(sum[0] == sum[size - 1]);
        CHECK(survives(recover_train, size, 1, -1, 0, sum));
        for (int number = 0; number < PARAMS + 2; number++)
            for (int step = 0; step < 3; step++)
                CHECK(survives(recover_train, size, (number + step) % size, step, number, sum));
    }
}
