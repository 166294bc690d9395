/* Blocking collectives of every backend against serial references. */
#include <stdlib.h>
#include <unistd.h>

#include "comm_ranks.h"
#include "tensor/tensor.h"

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = 4 };

/* Small whole numbers: exact in every dtype, also as sums and means of powers of two. They repeat after PERIOD. */
enum { PERIOD = 11 };
static double value_of(int rank, int64_t i)
{
    return (double)((i * 7 + rank * 5) % PERIOD);
}

static void collective_store(void *buffer, enum ah_dtype dtype, int64_t i, double value)
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

static double collective_load(const void *buffer, enum ah_dtype dtype, int64_t i)
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

static double collective_reference(enum ah_dtype dtype, enum ah_reduce_op op, int size, int64_t i)
{
    double one[8], sum, out[1];
    collective_store(one, dtype, 0, value_of(0, i));
    sum = collective_load(one, dtype, 0);
    for (int r = 1; r < size; r++) {
        collective_store(one, dtype, 0, value_of(r, i));
        double v = collective_load(one, dtype, 0);
        switch (op) {
        case AH_REDUCE_SUM:
        case AH_REDUCE_MEAN: sum += v; break;
        case AH_REDUCE_MAX: sum = v > sum ? v : sum; break;
        case AH_REDUCE_MIN: sum = v < sum ? v : sum; break;
        case AH_REDUCE_PRODUCT: sum = dtype == AH_U8 ? (uint8_t)(sum * v) : sum * v; break;
        case AH_REDUCE_AND: sum = (double)((int64_t)sum & (int64_t)v); break;
        case AH_REDUCE_OR: sum = (double)((int64_t)sum | (int64_t)v); break;
        default: sum = (double)((int64_t)sum ^ (int64_t)v);
        }
    }
    if (dtype == AH_BOOL)
        return sum;
    if (op == AH_REDUCE_MEAN)
        sum = dtype == AH_F64 ? sum / size : (double)((float)sum / (float)size);
    collective_store(out, dtype, 0, sum);
    return collective_load(out, dtype, 0);
}

static bool collective_allowed(enum ah_dtype dtype, enum ah_reduce_op op)
{
    if (!ah_dtype_computes(dtype))
        return false;
    if (dtype == AH_BOOL)
        return op == AH_REDUCE_MAX || op == AH_REDUCE_MIN || op >= AH_REDUCE_AND;
    if (op >= AH_REDUCE_AND)
        return !ah_dtype_is_float(dtype);
    return op != AH_REDUCE_MEAN || ah_dtype_is_float(dtype);
}

static const int64_t counts[] = {0, 1, 7, 1000, 33000, 150001};
enum { COUNTS = 6 };

/* A buffer whose first PERIOD elements are set, to its end. */
static void collective_repeat(void *buffer, size_t width, int64_t count)
{
    for (int64_t i = PERIOD; i < count; i += PERIOD)
        memcpy((char *)buffer + (size_t)i * width, buffer, (size_t)(count - i < PERIOD ? count - i : PERIOD) * width);
}

static void collective_fill(void *buffer, enum ah_dtype dtype, int rank, int64_t count)
{
    for (int64_t i = 0; i < count && i < PERIOD; i++)
        collective_store(buffer, dtype, i, value_of(rank, i));
    collective_repeat(buffer, (size_t)ah_dtype_size(dtype), count);
}

static int64_t collective_wrong(const void *buffer, enum ah_dtype dtype, enum ah_reduce_op op, int size, int64_t count)
{
    double expected[PERIOD];
    int64_t bad = 0;
    for (int64_t i = 0; i < PERIOD; i++)
        expected[i] = collective_reference(dtype, op, size, i);
    for (int64_t i = 0; i < count; i++)
        bad += collective_load(buffer, dtype, i) != expected[i % PERIOD];
    return bad;
}

/* Every dtype, op and length; the buffer in private memory, in the arena, and issued asynchronously. */
static void reduce_all(struct rank *me)
{
    void *arena, *private = malloc(150001 * 8);
    RANK_CHECK(me, ah_group_alloc(me->group, 150001 * 8, &arena) == 0);
    for (int d = 0; d < AH_DTYPE_COUNT; d++) {
        for (int op = 0; op < AH_REDUCE_OPS; op++) {
            enum ah_dtype dtype = (enum ah_dtype)d;
            if (!collective_allowed(dtype, (enum ah_reduce_op)op))
                continue;
            for (int c = 0; c < COUNTS; c++) {
                if (counts[c] > 40000 && op != AH_REDUCE_SUM)
                    continue;
                for (int way = 0; way < 4; way++) {
                    void *buffer = way & 1 ? arena : private;
                    collective_fill(buffer, dtype, me->rank, counts[c]);
                    if (way < 2) {
                        RANK_CHECK(me, reduce(me, buffer, counts[c], dtype, (enum ah_reduce_op)op) == 0);
                    } else {
                        struct ah_work *work;
                        RANK_CHECK(me, start(me, buffer, counts[c], dtype, (enum ah_reduce_op)op, &work) == 0);
                        RANK_CHECK(me, ah_work_wait(work) == 0);
                    }
                    RANK_CHECK(me, collective_wrong(buffer, dtype, (enum ah_reduce_op)op, me->size, counts[c]) == 0);
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

static float collective_rounding(int rank, int64_t i)
{
    return (float)(1.0 / (double)(3 + i % 97 + 11 * rank));
}

/* Sums of numbers that round: the same bits by every way, in rank order; of several hosts each adds its ranks' numbers
 * first, and then the sums are added in the order of the hosts. */
static void reduce_bits(struct rank *me)
{
    enum { N = 70001 };
    float *reference_sum = malloc(N * 4), *private = malloc(N * 4);
    void *arena;
    RANK_CHECK(me, ah_group_alloc(me->group, N * 4, &arena) == 0);
    int one[] = {0, me->size};
    const int *first = me->hosts ? me->hosts->first : one;
    for (int64_t i = 0; i < N; i++) {
        float sum = 0;
        for (int h = 0; h < (me->hosts ? me->hosts->count : 1); h++) {
            float part = collective_rounding(first[h], i);
            for (int r = first[h] + 1; r < first[h + 1]; r++)
                part += collective_rounding(r, i);
            sum = h ? sum + part : part;
        }
        reference_sum[i] = sum;
    }
    for (int way = 0; way < 2; way++) {
        float *buffer = way ? arena : private;
        for (int64_t i = 0; i < N; i++)
            buffer[i] = collective_rounding(me->rank, i);
        RANK_CHECK(me, reduce(me, buffer, N, AH_F32, AH_REDUCE_SUM) == 0);
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

/* Whole numbers whose sum a half cannot hold, nor the sum of two of them; float32 holds all. */
static double of_halves(enum ah_dtype dtype, int rank, int64_t i)
{
    return (dtype == AH_F16 ? 1024 : 128) + value_of(rank, i);
}

static int64_t wrong_halves(struct rank *me, const void *out, enum ah_dtype dtype, bool mean, int64_t first, int64_t n)
{
    int64_t bad = 0;
    uint16_t once[PERIOD];
    for (int64_t i = 0; i < PERIOD; i++) {
        float sum = 0;
        for (int r = 0; r < me->size; r++)
            sum += (float)of_halves(dtype, r, first + i);
        collective_store(once, dtype, i, mean ? sum / (float)me->size : sum);
    }
    for (int64_t i = 0; i < n; i++)
        bad += ((const uint16_t *)out)[i] != once[i % PERIOD];
    return bad;
}

static void reduce_halves(struct rank *me)
{
    static const int64_t lengths[] = {1000, 40000, 700001};
    for (int l = 0; l < 3; l++)
        for (int k = 0; k < 4; k++) {
            enum ah_dtype dtype = k & 1 ? AH_BF16 : AH_F16;
            bool mean = k & 2;
            enum ah_reduce_op op = mean ? AH_REDUCE_MEAN : AH_REDUCE_SUM;
            int64_t n = lengths[l], all = n * me->size;
            int root = me->size - 1;
            uint16_t *in = malloc((size_t)all * 2), *out = malloc((size_t)n * 2);
            struct ah_work *work;
            for (int64_t i = 0; i < PERIOD; i++)
                collective_store(in, dtype, i, of_halves(dtype, me->rank, i));
            collective_repeat(in, 2, all);
            RANK_CHECK(me, ah_group_run(me->group, ah_collective_reduce_scatter(out, in, n, dtype, op)) == 0);
            RANK_CHECK(me, wrong_halves(me, out, dtype, mean, n * me->rank, n) == 0);
            RANK_CHECK(me, ah_group_run(me->group, ah_collective_reduce(out, in, n, dtype, op, root)) == 0);
            RANK_CHECK(me, me->rank != root || wrong_halves(me, out, dtype, mean, 0, n) == 0);
            memcpy(out, in, (size_t)n * 2);
            RANK_CHECK(me, reduce(me, out, n, dtype, op) == 0);
            RANK_CHECK(me, wrong_halves(me, out, dtype, mean, 0, n) == 0);
            RANK_CHECK(me, start(me, in, n, dtype, op, &work) == 0 && ah_work_wait(work) == 0);
            RANK_CHECK(me, wrong_halves(me, in, dtype, mean, 0, n) == 0);
            free(in);
            free(out);
        }
}

AH_TEST(sums_of_halves_are_rounded_once_on_however_many_hosts)
{
    CHECK(run_ranks(3, 0, reduce_halves));
    CHECK(run_ranks(4, 0, reduce_halves));
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
            RANK_CHECK(me, ah_group_run(me->group, ah_collective_broadcast(in, n, AH_I32, root)) == 0);
            int64_t bad = 0;
            for (int64_t i = 0; i < n; i++)
                bad += in[i] != root * 1000000 + i;
            RANK_CHECK(me, bad == 0);

            for (int64_t i = 0; i < n; i++)
                in[i] = (int32_t)(rank * 1000000 + i);
            out[0] = -1;
            RANK_CHECK(me, ah_group_run(me->group, ah_collective_gather(out, in, n, AH_I32, root)) == 0);
            for (int r = 0; r < size && rank == root; r++)
                for (int64_t i = 0; i < n; i++)
                    bad += out[r * n + i] != r * 1000000 + i;
            RANK_CHECK(me, bad == 0 && (rank == root || out[0] == -1));

            for (int r = 0; r < size; r++)
                for (int64_t i = 0; i < n; i++)
                    in[r * n + i] = (int32_t)(rank * 1000 + r * 1000000 + i);
            RANK_CHECK(me, ah_group_run(me->group, ah_collective_scatter(out, in, n, AH_I32, root)) == 0);
            for (int64_t i = 0; i < n; i++)
                bad += out[i] != root * 1000 + rank * 1000000 + i;
            RANK_CHECK(me, bad == 0);
        }
        int64_t bad = 0;
        for (int64_t i = 0; i < n; i++)
            in[i] = (int32_t)(rank * 1000000 + i);
        RANK_CHECK(me, ah_group_run(me->group, ah_collective_all_gather(out, in, n, AH_I32)) == 0);
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < n; i++)
                bad += out[r * n + i] != r * 1000000 + i;
        RANK_CHECK(me, bad == 0);

        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < n; i++)
                in[r * n + i] = (int32_t)(rank * 1000 + r * 1000000 + i);
        RANK_CHECK(me, ah_group_run(me->group, ah_collective_all_to_all(out, in, n, AH_I32)) == 0);
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < n; i++)
                bad += out[r * n + i] != r * 1000 + rank * 1000000 + i;
        RANK_CHECK(me, bad == 0);

        for (int root = 0; root < size; root++) {
            out[0] = -1;
            RANK_CHECK(me, ah_group_run(me->group, ah_collective_reduce(rank == root ? out : NULL, in, n, AH_I32,
                                                                        AH_REDUCE_SUM, root)) == 0);
            for (int64_t i = 0; i < n && rank == root; i++)
                bad += out[i] != 1000 * size * (size - 1) / 2 + size * i;
            RANK_CHECK(me, bad == 0 && (rank == root || out[0] == -1));
        }

        RANK_CHECK(me, ah_group_run(me->group, ah_collective_reduce_scatter(out, in, n, AH_I32, AH_REDUCE_SUM)) == 0);
        for (int64_t i = 0; i < n; i++)
            bad += out[i] != 1000 * size * (size - 1) / 2 + size * (rank * 1000000 + i);
        RANK_CHECK(me, bad == 0);
        RANK_CHECK(me, barrier(me) == 0);
        free(in);
        free(out);
    }
    /* Ragged: rank r sends 40000 r elements, rank 0 none. */
    int64_t ragged[8], total = 0, bad = 0;
    for (int r = 0; r < size; r++)
        total += ragged[r] = 40000 * r;
    int32_t *in = malloc((size_t)ragged[rank] * 4 + 4), *out = malloc((size_t)total * 4 + 4);
    for (int64_t i = 0; i < ragged[rank]; i++)
        in[i] = (int32_t)(rank * 1000000 + i);
    RANK_CHECK(me, ah_group_run(me->group, ah_collective_all_gather_v(out, in, ragged, rank, AH_I32)) == 0);
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

/* Rank i sends rank j a part of a different length; blocking and as a work, whose counts the caller may drop. */
static void ragged_exchange(struct rank *me)
{
    static const int64_t step[] = {0, 1, 3, 9000};
    int size = me->size, rank = me->rank;
    for (int turn = 0; turn < 8; turn++) {
        int64_t *table = malloc((size_t)(size * size) * sizeof *table), given = 0, taken = 0, bad = 0;
        for (int i = 0; i < size * size; i++)
            table[i] = step[turn % 4] * ((i / size * 2 + i % size * 3) % 5);
        for (int r = 0; r < size; r++) {
            given += table[rank * size + r];
            taken += table[r * size + rank];
        }
        int32_t *in = malloc((size_t)given * 4 + 4), *out = malloc((size_t)taken * 4 + 4), *at = in;
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < table[rank * size + r]; i++)
                *at++ = (int32_t)(rank * 10000000 + r * 1000000 + i);
        struct ah_collective call = ah_collective_all_to_all_v(out, in, table, AH_I32);
        if (turn < 4) {
            RANK_CHECK(me, ah_group_run(me->group, call) == 0);
        } else {
            struct ah_work *work;
            int64_t *passing = memcpy(malloc((size_t)(size * size) * sizeof *table), table,
                                      (size_t)(size * size) * sizeof *table);
            call.counts = passing;
            RANK_CHECK(me, ah_group_start(me->group, call, &work) == 0);
            memset(passing, 0xff, (size_t)(size * size) * sizeof *table);
            free(passing);
            RANK_CHECK(me, ah_work_wait(work) == 0);
        }
        at = out;
        for (int r = 0; r < size; r++)
            for (int64_t i = 0; i < table[r * size + rank]; i++)
                bad += *at++ != r * 10000000 + rank * 1000000 + i;
        RANK_CHECK(me, bad == 0);
        RANK_CHECK(me, barrier(me) == 0);
        free(table);
        free(in);
        free(out);
    }
}

AH_TEST(a_ragged_all_to_all_moves_parts_of_any_length)
{
    for (int s = 0; s < SIZES; s++)
        CHECK(run_ranks(sizes[s], 0, ragged_exchange));
}

static void many_rounds(struct rank *me)
{
    enum { N = 40000 };
    float *buffer = malloc(N * 4);
    for (int round = 0; round < 200; round++) {
        int64_t n = round % 3 == 0 ? 5 : round % 3 == 1 ? N : 300;
        for (int64_t i = 0; i < n; i++)
            buffer[i] = (float)(me->rank + round);
        RANK_CHECK(me, reduce(me, buffer, n, AH_F32, AH_REDUCE_SUM) == 0);
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
