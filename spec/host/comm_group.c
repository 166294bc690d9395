/* Collectives of the shm backend against serial references, and what happens when ranks disagree, die or stall. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/time.h"
#include "comm_ranks.h"
#include "tensor/tensor.h"

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = 4 };

/* Small whole numbers: exact in every dtype, also as sums and means of powers of two. */
static double value_of(int rank, int64_t i)
{
    return (double)((i * 7 + rank * 5) % 11);
}

static void store(void *buffer, enum ah_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case AH_BOOL: ((uint8_t *)buffer)[i] = value > 5; break;
    case AH_U8: ((uint8_t *)buffer)[i] = (uint8_t)value; break;
    case AH_I32: ((int32_t *)buffer)[i] = (int32_t)value; break;
    case AH_I64: ((int64_t *)buffer)[i] = (int64_t)value; break;
    case AH_F16: ((uint16_t *)buffer)[i] = ah_f32_to_f16((float)value); break;
    case AH_BF16: ((uint16_t *)buffer)[i] = ah_f32_to_bf16((float)value); break;
    case AH_F32: ((float *)buffer)[i] = (float)value; break;
    default: ((double *)buffer)[i] = value;
    }
}

static double load(const void *buffer, enum ah_dtype dtype, int64_t i)
{
    switch (dtype) {
    case AH_BOOL:
    case AH_U8: return ((const uint8_t *)buffer)[i];
    case AH_I32: return ((const int32_t *)buffer)[i];
    case AH_I64: return (double)((const int64_t *)buffer)[i];
    case AH_F16: return ah_f16_to_f32(((const uint16_t *)buffer)[i]);
    case AH_BF16: return ah_bf16_to_f32(((const uint16_t *)buffer)[i]);
    case AH_F32: return ((const float *)buffer)[i];
    default: return ((const double *)buffer)[i];
    }
}

static double reference(enum ah_dtype dtype, enum ah_reduce_op op, int size, int64_t i)
{
    double one[8], sum, out[1];
    store(one, dtype, 0, value_of(0, i));
    sum = load(one, dtype, 0);
    for (int r = 1; r < size; r++) {
        store(one, dtype, 0, value_of(r, i));
        double v = load(one, dtype, 0);
        switch (op) {
        case AH_REDUCE_SUM:
        case AH_REDUCE_MEAN: sum += v; break;
        case AH_REDUCE_MAX: sum = v > sum ? v : sum; break;
        case AH_REDUCE_MIN: sum = v < sum ? v : sum; break;
        case AH_REDUCE_PRODUCT: sum = dtype == AH_U8 ? (uint8_t)(sum * v) : sum * v; break;
        }
    }
    if (dtype == AH_BOOL)
        return sum;
    if (op == AH_REDUCE_MEAN)
        sum = dtype == AH_F64 ? sum / size : (double)((float)sum / (float)size);
    store(out, dtype, 0, sum);
    return load(out, dtype, 0);
}

static bool allowed(enum ah_dtype dtype, enum ah_reduce_op op)
{
    if (dtype == AH_BOOL)
        return op == AH_REDUCE_MAX || op == AH_REDUCE_MIN;
    return op != AH_REDUCE_MEAN || ah_dtype_is_float(dtype);
}

static const int64_t counts[] = {0, 1, 7, 1000, 33000, 150001};
enum { COUNTS = 6 };

static int64_t wrong(const void *buffer, enum ah_dtype dtype, enum ah_reduce_op op, int size, int64_t count)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad += load(buffer, dtype, i) != reference(dtype, op, size, i);
    return bad;
}

/* Every dtype, op and length; the buffer in private memory, in the arena, and posted asynchronously. */
static void reduce_all(struct rank *me)
{
    void *arena, *private = malloc(150001 * 8);
    RANK_CHECK(me, ah_group_arena_alloc(me->group, 150001 * 8, &arena) == 0);
    for (int d = 0; d < AH_DTYPE_COUNT; d++) {
        for (int op = 0; op <= AH_REDUCE_PRODUCT; op++) {
            enum ah_dtype dtype = (enum ah_dtype)d;
            if (!allowed(dtype, (enum ah_reduce_op)op))
                continue;
            for (int c = 0; c < COUNTS; c++) {
                if (counts[c] > 40000 && op != AH_REDUCE_SUM)
                    continue;
                for (int way = 0; way < 4; way++) {
                    void *buffer = way & 1 ? arena : private;
                    for (int64_t i = 0; i < counts[c]; i++)
                        store(buffer, dtype, i, value_of(me->rank, i));
                    if (way < 2) {
                        RANK_CHECK(me, ah_group_all_reduce(me->group, buffer, counts[c], dtype,
                                                           (enum ah_reduce_op)op) == 0);
                    } else {
                        struct ah_work *work;
                        RANK_CHECK(me, ah_group_all_reduce_start(me->group, buffer, counts[c], dtype,
                                                                 (enum ah_reduce_op)op, &work) == 0);
                        RANK_CHECK(me, ah_work_wait(work) == 0);
                    }
                    RANK_CHECK(me, wrong(buffer, dtype, (enum ah_reduce_op)op, me->size, counts[c]) == 0);
                }
            }
        }
    }
    free(private);
}

AH_TEST(all_reduce_equals_the_serial_reference)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, reduce_all));
}

/* Sums of numbers that round: the same bits by every way, in rank order. */
static void reduce_bits(struct rank *me)
{
    enum { N = 70001 };
    float *reference_sum = malloc(N * 4), *private = malloc(N * 4);
    void *arena;
    RANK_CHECK(me, ah_group_arena_alloc(me->group, N * 4, &arena) == 0);
    for (int64_t i = 0; i < N; i++) {
        float sum = 0;
        for (int r = 0; r < me->size; r++) {
            float v = (float)(1.0 / (double)(3 + i % 97 + 11 * r));
            sum = r ? sum + v : v;
        }
        reference_sum[i] = sum;
    }
    for (int way = 0; way < 2; way++) {
        float *buffer = way ? arena : private;
        for (int64_t i = 0; i < N; i++)
            buffer[i] = (float)(1.0 / (double)(3 + i % 97 + 11 * me->rank));
        RANK_CHECK(me, ah_group_all_reduce(me->group, buffer, N, AH_F32, AH_REDUCE_SUM) == 0);
        RANK_CHECK(me, memcmp(buffer, reference_sum, N * 4) == 0);
    }
    free(reference_sum);
    free(private);
}

AH_TEST(all_reduce_sums_in_rank_order_bit_for_bit)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, reduce_bits));
}

static void exchange_all(struct rank *me)
{
    int size = me->size, rank = me->rank;
    static const int64_t lengths[] = {0, 1, 100, 5000, 100003};
    for (int l = 0; l < 5; l++) {
        int64_t n = lengths[l];
        int32_t *in = malloc(((size_t)n * (size_t)size + 1) * 4), *out = malloc(((size_t)n * (size_t)size + 1) * 4);
        for (int root = 0; root < size; root++) {
            for (int64_t i = 0; i < n; i++)
                in[i] = (int32_t)(rank * 1000000 + i);
            RANK_CHECK(me, ah_group_broadcast(me->group, in, n, AH_I32, root) == 0);
            int64_t bad = 0;
            for (int64_t i = 0; i < n; i++)
                bad += in[i] != root * 1000000 + i;
            RANK_CHECK(me, bad == 0);

            for (int64_t i = 0; i < n; i++)
                in[i] = (int32_t)(rank * 1000000 + i);
            out[0] = -1;
            RANK_CHECK(me, ah_group_gather(me->group, out, in, n, AH_I32, root) == 0);
            for (int r = 0; r < size && rank == root; r++)
                for (int64_t i = 0; i < n; i++)
                    bad += out[r * n + i] != r * 1000000 + i;
            RANK_CHECK(me, bad == 0 && (rank == root || out[0] == -1));

            for (int r = 0; r < size; r++)
                for (int64_t i = 0; i < n; i++)
                    in[r * n + i] = (int32_t)(rank * 1000 + r * 1000000 + i);
            RANK_CHECK(me, ah_group_scatter(me->group, out, in, n, AH_I32, root) == 0);
            for (int64_t i = 0; i < n; i++)
                bad += out[i] != root * 1000 + rank * 1000000 + i;
            RANK_CHECK(me, bad == 0);
        }
        int64_t bad = 0;
        for (int64_t i = 0; i < n; i++)
            in[i] = (int32_t)(rank * 1000000 + i);
        RANK_CHECK(me, ah_group_all_gather(me->group, out, in, n, AH_I32) == 0);
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < n; i++)
                bad += out[r * n + i] != r * 1000000 + i;
        RANK_CHECK(me, bad == 0);

        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < n; i++)
                in[r * n + i] = (int32_t)(rank * 1000 + r * 1000000 + i);
        RANK_CHECK(me, ah_group_all_to_all(me->group, out, in, n, AH_I32) == 0);
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < n; i++)
                bad += out[r * n + i] != r * 1000 + rank * 1000000 + i;
        RANK_CHECK(me, bad == 0);

        RANK_CHECK(me, ah_group_reduce_scatter(me->group, out, in, n, AH_I32, AH_REDUCE_SUM) == 0);
        for (int64_t i = 0; i < n; i++)
            bad += out[i] != 1000 * size * (size - 1) / 2 + size * (rank * 1000000 + i);
        RANK_CHECK(me, bad == 0);
        RANK_CHECK(me, ah_group_barrier(me->group) == 0);
        free(in);
        free(out);
    }
    /* Ragged: rank r gives 40000 r elements, rank 0 none. */
    int64_t ragged[8], total = 0, bad = 0;
    for (int r = 0; r < size; r++)
        total += ragged[r] = 40000 * r;
    int32_t *in = malloc((size_t)ragged[rank] * 4 + 4), *out = malloc((size_t)total * 4 + 4);
    for (int64_t i = 0; i < ragged[rank]; i++)
        in[i] = (int32_t)(rank * 1000000 + i);
    RANK_CHECK(me, ah_group_all_gather_v(me->group, out, in, ragged, AH_I32) == 0);
    int64_t at = 0;
    for (int r = 0; r < size; r++)
        for (int64_t i = 0; i < ragged[r]; i++)
            bad += out[at++] != r * 1000000 + i;
    RANK_CHECK(me, bad == 0);
    free(in);
    free(out);
}

AH_TEST(exchanges_move_every_element_to_its_place)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, exchange_all));
}

/* More works than the ring has entries, waited for in the opposite order, with blocking calls between. */
static void many_works(struct rank *me)
{
    enum { WORKS = 150, N = 1000 };
    float(*buffer)[N] = calloc(WORKS, sizeof *buffer);
    RANK_CHECK(me, buffer != NULL);
    struct ah_work *work[WORKS];
    for (int w = 0; w < WORKS; w++) {
        for (int i = 0; i < N; i++)
            buffer[w][i] = (float)(w + me->rank);
        RANK_CHECK(me, ah_group_all_reduce_start(me->group, buffer[w], N, AH_F32, AH_REDUCE_SUM, &work[w]) == 0);
        if (w % 40 == 39) {
            double one = 1;
            RANK_CHECK(me, ah_group_all_reduce(me->group, &one, 1, AH_F64, AH_REDUCE_SUM) == 0 && one == me->size);
        }
    }
    bool done = false;
    RANK_CHECK(me, ah_work_test(work[0], &done) == 0);
    for (int w = WORKS - 1; w >= 0; w--) {
        RANK_CHECK(me, ah_work_wait(work[w]) == 0);
        int bad = 0;
        for (int i = 0; i < N; i++)
            bad += buffer[w][i] != (float)(w * me->size + me->size * (me->size - 1) / 2);
        RANK_CHECK(me, bad == 0);
    }
    free(buffer);
}

AH_TEST(asynchronous_works_complete_in_any_order)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, many_works));
}

/* Thousands of works under way at once, far more than the ring has entries, while one rank is always behind. */
static void thousands_of_works(struct rank *me)
{
    enum { WORKS = 3000, N = 40 };
    float(*buffer)[N] = calloc(WORKS, sizeof *buffer);
    struct ah_work **work = calloc(WORKS, sizeof *work);
    RANK_CHECK(me, buffer && work);
    int bad = 0;
    for (int w = 0; w < WORKS; w++) {
        for (int i = 0; i < N; i++)
            buffer[w][i] = (float)(w % 100 + me->rank);
        bad += ah_group_all_reduce_start(me->group, buffer[w], N, AH_F32, AH_REDUCE_SUM, &work[w]) != 0;
        if (me->rank == (w / 500) % me->size && w % 20 == 0)
            usleep(200);
    }
    for (int w = 0; w < WORKS && !bad; w++) {
        bad += ah_work_wait(work[w]) != 0;
        for (int i = 0; i < N; i++)
            bad += buffer[w][i] != (float)(w % 100 * me->size + me->size * (me->size - 1) / 2);
    }
    RANK_CHECK(me, bad == 0);
    free(work);
    free(buffer);
}

AH_TEST(thousands_of_works_are_right_on_ranks_of_unequal_speed)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 5 * 1000000000ll, thousands_of_works));
}

static void many_rounds(struct rank *me)
{
    enum { N = 40000 };
    float *buffer = malloc(N * 4);
    for (int round = 0; round < 200; round++) {
        int64_t n = round % 3 == 0 ? 5 : round % 3 == 1 ? N : 300;
        for (int64_t i = 0; i < n; i++)
            buffer[i] = (float)(me->rank + round);
        RANK_CHECK(me, ah_group_all_reduce(me->group, buffer, n, AH_F32, AH_REDUCE_SUM) == 0);
        int64_t bad = 0;
        for (int64_t i = 0; i < n; i++)
            bad += buffer[i] != (float)(me->size * round + me->size * (me->size - 1) / 2);
        RANK_CHECK(me, bad == 0);
        if (round % 7 == me->rank)
            usleep(300);
    }
    free(buffer);
}

AH_TEST(stages_are_not_overwritten_while_a_peer_reads)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, many_rounds));
}

/* Disagreement. */

static void disagree(struct rank *me)
{
    float buffer[10] = {0};
    RANK_CHECK(me, ah_group_barrier(me->group) == 0);
    ah_group_set_shape(me->group, (int64_t[]){10}, 1);
    int status;
    if (me->rank == me->size - 1) {
        ah_group_set_call_site(me->group, "train.lua:15");
        status = ah_group_broadcast(me->group, buffer, 10, AH_F32, 0);
    } else {
        ah_group_set_call_site(me->group, "train.lua:12");
        status = ah_group_all_reduce(me->group, buffer, 10, AH_F32, AH_REDUCE_SUM);
    }
    char expected[200];
    snprintf(expected, sizeof expected,
             "collective #2 differs: rank 0 all_reduce float32 (10,) at train.lua:12; rank %d broadcast float32 (10,) "
             "at train.lua:15", me->size - 1);
    RANK_CHECK(me, status == AH_EMISMATCH && !strcmp(ah_error_text(), expected));
    RANK_FAILS(me, ah_group_barrier(me->group), AH_EMISMATCH, "failed before");
}

AH_TEST(a_mismatch_raises_on_every_rank_with_both_call_sites)
{
    CHECK(run_ranks(2, 0, disagree));
    CHECK(run_ranks(3, 0, disagree));
}

static void disagree_on(struct rank *me)
{
    static const struct {
        int64_t count;
        enum ah_dtype dtype;
        enum ah_reduce_op op;
    } other[] = {{9, AH_F32, AH_REDUCE_SUM}, {10, AH_F64, AH_REDUCE_SUM}, {10, AH_F32, AH_REDUCE_MEAN}};
    int which = getenv("COMM_TEST_CASE")[0] - '0';
    double buffer[10] = {0};
    int status = me->rank == 0 ? ah_group_all_reduce(me->group, buffer, 10, AH_F32, AH_REDUCE_SUM)
                               : ah_group_all_reduce(me->group, buffer, other[which].count, other[which].dtype,
                                                     other[which].op);
    RANK_CHECK(me, status == AH_EMISMATCH);
}

AH_TEST(count_dtype_and_reduction_must_agree)
{
    for (int i = 0; i < 3; i++) {
        setenv("COMM_TEST_CASE", i == 0 ? "0" : i == 1 ? "1" : "2", 1);
        CHECK(run_ranks(2, 0, disagree_on));
    }
    unsetenv("COMM_TEST_CASE");
}

/* Rank 0 and 1 differ while rank 2 is late: nobody waits for it, and it raises as well when it comes. */
static void late_witness(struct rank *me)
{
    float buffer[4] = {0};
    if (me->rank == 2)
        usleep(150000);
    int status = me->rank == 1 ? ah_group_barrier(me->group)
                               : ah_group_all_reduce(me->group, buffer, 4, AH_F32, AH_REDUCE_SUM);
    RANK_CHECK(me, status == AH_EMISMATCH && strstr(ah_error_text(), "rank 0 all_reduce") &&
                       strstr(ah_error_text(), "rank 1 barrier"));
}

AH_TEST(a_late_rank_learns_of_a_mismatch_too)
{
    CHECK(run_ranks(3, 0, late_witness));
}

/* Death, end, stall. */

static void die_at_two(struct rank *me)
{
    float buffer[4] = {0};
    ah_group_set_call_site(me->group, "train.lua:7");
    RANK_CHECK(me, ah_group_all_reduce(me->group, buffer, 4, AH_F32, AH_REDUCE_SUM) == 0);
    if (me->rank == me->size - 1) {
        usleep(20000);
        kill(getpid(), SIGKILL);
    }
    int64_t start = ah_now_ns();
    RANK_FAILS(me, ah_group_all_reduce(me->group, buffer, 4, AH_F32, AH_REDUCE_SUM), AH_EPEER, "which died");
    RANK_CHECK(me, strstr(ah_error_text(), "all_reduce #2 at train.lua:7: lost rank"));
    RANK_CHECK(me, ah_now_ns() - start < 220 * 1000000);
    RANK_FAILS(me, ah_group_barrier(me->group), AH_EPEER, "failed before");
}

AH_TEST(a_killed_peer_raises_at_once)
{
    CHECK(run_ranks_mortal(2, 0, 1u << 1, die_at_two));
    CHECK(run_ranks_mortal(3, 0, 1u << 2, die_at_two));
}

static void end_early(struct rank *me)
{
    RANK_CHECK(me, ah_group_barrier(me->group) == 0);
    if (me->rank == 1)
        return;
    usleep(10000);
    RANK_FAILS(me, ah_group_barrier(me->group), AH_EPEER, "rank 1 ended without it");
}

AH_TEST(a_peer_that_ended_raises)
{
    CHECK(run_ranks(2, 0, end_early));
}

static void give_up(struct rank *me)
{
    if (me->rank == 0) {
        RANK_FAILS(me, ah_group_barrier(me->group), AH_EPEER, "rank 1 gave up");
    } else if (me->rank == 1) {
        me->group->ops->poisoned(me->group); /* what the door does after a failure */
        usleep(100000);
    } else {
        usleep(100000);
    }
}

static void give_up_poisoned(struct rank *me)
{
    if (me->rank == 1) {
        me->group->poison = AH_ETIMEOUT;
        snprintf(me->group->poison_text, sizeof me->group->poison_text, "barrier #1: timed out");
    }
    give_up(me);
}

AH_TEST(a_peer_whose_group_is_poisoned_raises)
{
    CHECK(run_ranks(2, 0, give_up_poisoned));
}

static void stall(struct rank *me)
{
    float buffer[4] = {0};
    ah_group_set_call_site(me->group, "train.lua:12");
    RANK_CHECK(me, ah_group_all_reduce(me->group, buffer, 4, AH_F32, AH_REDUCE_SUM) == 0);
    if (me->rank == 1) {
        usleep(400000);
        return;
    }
    RANK_FAILS(me, ah_group_barrier(me->group), AH_ETIMEOUT,
               "barrier #2 at train.lua:12: timed out after 0.15 s: rank 1 was last seen at train.lua:12, all_reduce "
               "#1");
}

AH_TEST(a_timeout_names_the_rank_that_is_missing)
{
    CHECK(run_ranks(2, 150 * 1000000, stall));
}

static void stall_of_two(struct rank *me)
{
    float buffer[4] = {0};
    /* Rank 1 comes a call further than rank 2, which nobody else has reached: it is the one to be named. */
    ah_group_set_call_site(me->group, "train.lua:12");
    if (me->rank == 2) {
        usleep(500000);
        return;
    }
    if (me->rank == 1)
        usleep(20000);
    RANK_FAILS(me, ah_group_all_reduce(me->group, buffer, 4, AH_F32, AH_REDUCE_SUM), AH_ETIMEOUT,
               "rank 2 has not come to its first collective");
    RANK_CHECK(me, atomic_load(&ah_board_slot(me->board, me->rank)->blamed) == 2);
}

AH_TEST(a_timeout_names_the_rank_that_all_wait_for)
{
    CHECK(run_ranks(3, 200 * 1000000, stall_of_two));
}

/* Rank 0 waits while the whole job is stopped for longer than the timeout; a shell stands for whoever stops it. */
static void suspended(struct rank *me)
{
    RANK_CHECK(me, ah_group_barrier(me->group) == 0);
    if (me->rank == 0) {
        pid_t peer = (pid_t)atomic_load(&ah_board_slot(me->board, 1)->pid), self = getpid();
        if (fork() == 0) {
            usleep(50000);
            kill(peer, SIGSTOP);
            kill(self, SIGSTOP);
            usleep(900000);
            kill(self, SIGCONT);
            usleep(100000);
            kill(peer, SIGCONT);
            _exit(0);
        }
    } else {
        usleep(100000);
    }
    RANK_CHECK(me, ah_group_barrier(me->group) == 0);
}

AH_TEST(a_job_that_was_suspended_goes_on)
{
    CHECK(run_ranks_mortal(2, 600 * 1000000, 0, suspended));
}

/* Arguments are this rank's error only. */
static void bad_arguments(struct rank *me)
{
    int64_t buffer[4] = {0};
    RANK_FAILS(me, ah_group_all_reduce(me->group, buffer, 4, AH_I64, AH_REDUCE_MEAN), AH_EINVAL,
               "mean needs a floating");
    RANK_FAILS(me, ah_group_all_reduce(me->group, buffer, 4, AH_BOOL, AH_REDUCE_SUM), AH_EINVAL,
               "bool has max and min");
    RANK_FAILS(me, ah_group_broadcast(me->group, buffer, 4, AH_I64, 2), AH_EINVAL, "expected a root in 0..1, got 2");
    RANK_FAILS(me, ah_group_all_reduce(me->group, buffer, -1, AH_I64, AH_REDUCE_SUM), AH_EINVAL, "count from 0");
    RANK_CHECK(me, ah_group_barrier(me->group) == 0);
}

AH_TEST(wrong_arguments_do_not_poison)
{
    CHECK(run_ranks(2, 0, bad_arguments));
}

AH_TEST(topology_comes_from_the_environment)
{
    struct ah_topology who;
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID",
                                        "SLURM_NTASKS", "SLURM_STEP_ID"};
    char *saved[7];
    for (int i = 0; i < 7; i++) {
        saved[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
        unsetenv(names[i]);
    }
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.rank == 0 && who.size == 1 && who.local_size == 1);
    setenv("RANK", "1", 1);
    CHECK_FAILS(ah_topology_from_environment(&who), AH_EINVAL, "RANK is set but WORLD_SIZE is not");
    setenv("WORLD_SIZE", "1", 1);
    CHECK_FAILS(ah_topology_from_environment(&who), AH_EINVAL, "RANK is 1 but WORLD_SIZE is 1");
    setenv("WORLD_SIZE", "x", 1);
    CHECK_FAILS(ah_topology_from_environment(&who), AH_EINVAL, "WORLD_SIZE: expected a number from 0, got 'x'");
    setenv("WORLD_SIZE", "4", 1);
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.rank == 1 && who.size == 4 && who.local_rank == 1 && who.local_size == 4);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    setenv("SLURM_PROCID", "2", 1);
    setenv("SLURM_NTASKS", "3", 1);
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.size == 1); /* a batch shell, not a step */
    setenv("SLURM_STEP_ID", "0", 1);
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.rank == 2 && who.size == 3);
    for (int i = 0; i < 7; i++) {
        if (saved[i])
            setenv(names[i], saved[i], 1);
        else
            unsetenv(names[i]);
        free(saved[i]);
    }
}
