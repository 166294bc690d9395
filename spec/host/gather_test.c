#include "test.h"

#include <stdlib.h>

#include "data/gather.h"

/* Rows of 3 bytes (value = 3 * row + column) and their labels (10 * row). */
static struct ah_tensor *bytes_of(int64_t rows)
{
    struct ah_tensor *tensor = NULL;
    ah_tensor_empty(&tensor, (int64_t[]){rows, 3}, 2, AH_U8, &ah_cpu);
    for (int64_t i = 0; i < tensor->numel; i++)
        ah_tensor_set_int(tensor, i, i % 256);
    return tensor;
}

static struct ah_tensor *labels_of(int64_t rows)
{
    struct ah_tensor *tensor = NULL;
    ah_tensor_empty(&tensor, (int64_t[]){rows}, 1, AH_I64, &ah_cpu);
    for (int64_t i = 0; i < rows; i++)
        ah_tensor_set_int(tensor, i, 10 * i);
    return tensor;
}

static struct ah_tensor *table_of(int64_t channels)
{
    struct ah_tensor *tensor = NULL;
    ah_tensor_empty(&tensor, (int64_t[]){channels, 256}, 2, AH_F32, &ah_cpu);
    for (int64_t i = 0; i < tensor->numel; i++)
        ah_tensor_set(tensor, i, (double)(i % 256) * 0.5 + 1000.0 * (double)(i / 256));
    return tensor;
}

static struct ah_gather *new_gather(struct ah_tensor *images, struct ah_tensor *labels, struct ah_tensor *table,
                                    size_t inline_bytes)
{
    struct ah_gather *gather = NULL;
    struct ah_gather_column columns[2] = {{.source = images, .table = table, .ndim = 2, .size = {1, 3}},
                                          {.source = labels}};
    CHECK_OK(ah_gather_new(&gather, columns, 2, inline_bytes));
    return gather;
}

static int gather_post(struct ah_gather *gather, const int64_t *row, int64_t count)
{
    return ah_gather_post(gather, &(struct ah_gather_order){.count = count, .row = row});
}

static void check_batch(struct ah_tensor **out, const int64_t *index, int64_t count)
{
    REQUIRE(out[0] && out[1]);
    REQUIRE(out[0]->dtype == AH_F32 && out[0]->ndim == 3 && out[0]->size[0] == count && out[0]->size[2] == 3);
    REQUIRE(out[1]->dtype == AH_I64 && out[1]->ndim == 1 && out[1]->size[0] == count);
    for (int64_t i = 0; i < count; i++) {
        CHECK(ah_tensor_get_int(out[1], i) == 10 * index[i]);
        for (int c = 0; c < 3; c++)
            CHECK(ah_tensor_get(out[0], 3 * i + c) == (double)((3 * index[i] + c) % 256) * 0.5);
    }
    ah_tensor_release(out[0]);
    ah_tensor_release(out[1]);
}

static void gathers_in_order(size_t inline_bytes)
{
    struct ah_tensor *images = bytes_of(50), *labels = labels_of(50), *table = table_of(1), *out[2] = {0};
    struct ah_gather *gather = new_gather(images, labels, table, inline_bytes);
    int64_t index[40][5];
    for (int b = 0; b < 40; b++) {
        for (int i = 0; i < 5; i++)
            index[b][i] = (b * 7 + i * 13) % 50;
    }
    CHECK(ah_gather_is_threaded(gather, 5) == (inline_bytes == 0));
    for (int b = 0; b < 43; b++) {
        if (b < 40)
            CHECK_OK(gather_post(gather, index[b], 5 - b % 2));
        if (b >= 3) { /* three ahead */
            CHECK_OK(ah_gather_take(gather, out));
            check_batch(out, index[b - 3], 5 - (b - 3) % 2);
        }
    }
    CHECK(ah_gather_pending(gather) == 0);
    CHECK_FAILS(ah_gather_take(gather, out), AH_ESTATE, "no batch was asked for");
    ah_gather_free(gather);
    ah_tensor_release(images);
    ah_tensor_release(labels);
    ah_tensor_release(table);
}

AH_TEST(gather_fills_small_batches_on_request)
{
    gathers_in_order(AH_GATHER_INLINE);
}

AH_TEST(gather_fills_large_batches_on_its_thread)
{
    gathers_in_order(0);
}

AH_TEST(gather_keeps_its_columns_alive_and_drops_pending_batches)
{
    for (int pending = 0; pending < 5; pending++) {
        struct ah_tensor *images = bytes_of(2000), *labels = labels_of(2000), *table = table_of(1), *out[2] = {0};
        struct ah_gather *gather = new_gather(images, labels, table, 0), *other = new_gather(images, labels, table, 0);
        ah_tensor_release(images);
        ah_tensor_release(labels);
        ah_tensor_release(table);
        int64_t index[2000];
        for (int i = 0; i < 2000; i++)
            index[i] = 1999 - i;
        for (int i = 0; i < pending; i++) {
            CHECK_OK(gather_post(gather, index, 2000));
            CHECK_OK(gather_post(other, index + i, 1));
        }
        ah_gather_free(gather);
        for (int i = 0; i < pending; i++) {
            CHECK_OK(ah_gather_take(other, out));
            check_batch(out, index + i, 1);
        }
        ah_gather_free(other);
    }
}

AH_TEST(gather_reports_a_bad_index_with_its_own_batch)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        struct ah_tensor *images = bytes_of(4), *labels = labels_of(4), *table = table_of(1), *out[2] = {0};
        struct ah_gather *gather = new_gather(images, labels, table, threaded ? 0 : AH_GATHER_INLINE);
        CHECK_OK(gather_post(gather, (int64_t[]){0, 3}, 2));
        CHECK_OK(gather_post(gather, (int64_t[]){0, 4}, 2));
        CHECK_OK(gather_post(gather, (int64_t[]){-1}, 1));
        CHECK_OK(gather_post(gather, (int64_t[]){2}, 1));
        CHECK_OK(ah_gather_take(gather, out));
        check_batch(out, (int64_t[]){0, 3}, 2);
        CHECK_FAILS(ah_gather_take(gather, out), AH_EINVAL, "index 4 is out of range for a data set of 4");
        CHECK_FAILS(ah_gather_take(gather, out), AH_EINVAL, "index -1 is out of range");
        CHECK_OK(ah_gather_take(gather, out));
        check_batch(out, (int64_t[]){2}, 1);
        ah_gather_free(gather);
        ah_tensor_release(images);
        ah_tensor_release(labels);
        ah_tensor_release(table);
    }
}

AH_TEST(gather_uses_one_table_row_per_channel)
{
    struct ah_tensor *images = bytes_of(4), *table = table_of(3), *out[1] = {0};
    struct ah_gather *gather = NULL;
    struct ah_gather_column column = {.source = images, .table = table, .ndim = 3, .size = {3, 1, 1}};
    REQUIRE(ah_gather_new(&gather, &column, 1, AH_GATHER_INLINE) == 0);
    CHECK_OK(gather_post(gather, (int64_t[]){2}, 1));
    REQUIRE(ah_gather_take(gather, out) == 0);
    for (int c = 0; c < 3; c++)
        CHECK(ah_tensor_get(out[0], c) == 1000.0 * c + 0.5 * (6 + c));
    ah_tensor_release(out[0]);
    ah_gather_free(gather);
    ah_tensor_release(images);
    ah_tensor_release(table);
}

AH_TEST(gather_refuses_columns_that_do_not_fit)
{
    struct ah_tensor *images = bytes_of(4), *labels = labels_of(5), *table = table_of(2);
    struct ah_gather *gather = NULL;
    struct ah_gather_column rows[2] = {{.source = images, .ndim = 1, .size = {3}}, {.source = labels}};
    CHECK_FAILS(ah_gather_new(&gather, rows, 2, 0), AH_EINVAL,
                "column 2 of the data set: expected 4 rows like the first, got 5");
    struct ah_gather_column shape = {.source = images, .ndim = 1, .size = {4}};
    CHECK_FAILS(ah_gather_new(&gather, &shape, 1, 0), AH_EINVAL, "rows (4,) do not have the 3 elements of (4, 3)");
    struct ah_gather_column uneven = {.source = images, .table = table, .ndim = 1, .size = {3}};
    CHECK_FAILS(ah_gather_new(&gather, &uneven, 1, 0), AH_EINVAL, "does not fit uint8 rows of 3");
    CHECK_FAILS(ah_gather_new(&gather, rows, 0, 0), AH_EINVAL, "1 to 16 columns, got 0");
    CHECK(!gather);
    ah_tensor_release(images);
    ah_tensor_release(labels);
    ah_tensor_release(table);
}

/* 40 images of 2 x 4 x 4 bytes through random steps and a table. */
static struct ah_gather *new_moving_gather(struct ah_tensor *images, struct ah_tensor *table, size_t inline_bytes)
{
    struct ah_gather *gather = NULL;
    struct ah_grid grid = {.channels = 2, .size = {4, 4}, .count = 3};
    grid.step[0] = (struct ah_grid_step){.kind = AH_GRID_PAD, .before = {1, 2}, .after = {1, 2}, .fill = {7, 9}};
    grid.step[1] = (struct ah_grid_step){.kind = AH_GRID_RANDOM_CROP, .size = {3, 5}};
    grid.step[2] = (struct ah_grid_step){.kind = AH_GRID_FLIP, .axis = 1, .p = 0.5f};
    struct ah_gather_column column = {
        .source = images, .table = table, .grid = &grid, .ndim = 3, .size = {2, 3, 5}};
    CHECK_OK(ah_gather_new(&gather, &column, 1, inline_bytes));
    return gather;
}

AH_TEST(gather_moves_pixels_alike_on_either_thread)
{
    struct ah_tensor *images = NULL, *table = table_of(2), *here[1], *there[1];
    int64_t row[40], sample[40];
    uint32_t turn[40];
    ah_tensor_empty(&images, (int64_t[]){40, 32}, 2, AH_U8, &ah_cpu);
    for (int64_t i = 0; i < images->numel; i++)
        ah_tensor_set_int(images, i, i % 251);
    struct ah_gather *inlined = new_moving_gather(images, table, SIZE_MAX);
    struct ah_gather *threaded = new_moving_gather(images, table, 0);
    CHECK(ah_gather_is_random(inlined));
    for (int i = 0; i < 40; i++) {
        row[i] = i * 7 % 40;
        sample[i] = i;
        turn[i] = (uint32_t)i % 3;
    }
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct ah_gather_order order = {40, row, seed, sample, turn};
        CHECK_OK(ah_gather_post(inlined, &order));
        CHECK_OK(ah_gather_post(threaded, &order));
    }
    for (int batch = 0; batch < 20; batch++) {
        CHECK_OK(ah_gather_take(inlined, here));
        CHECK_OK(ah_gather_take(threaded, there));
        CHECK(memcmp(ah_tensor_data(here[0]), ah_tensor_data(there[0]), 40 * 30 * sizeof(float)) == 0);
        ah_tensor_release(here[0]);
        ah_tensor_release(there[0]);
    }
    ah_gather_free(inlined);
    ah_gather_free(threaded);
    ah_tensor_release(images);
    ah_tensor_release(table);
}
