#include "test.h"

#include "data/grid.h"
#include "data/stream.h"

AH_TEST(streams_are_philox_with_the_sample_as_counter)
{
    struct ah_stream stream;
    ah_stream_open(&stream, 0, 0, 0);
    const uint32_t zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (int i = 0; i < 4; i++)
        CHECK(ah_stream_u32(&stream) == zeros[i]);
    uint32_t second = ah_stream_u32(&stream);
    /* The published answer for counter and key of ones, whose first block a stream never starts at. */
    ah_stream_open(&stream, UINT64_MAX, -1, UINT32_MAX);
    stream.counter[0] = UINT32_MAX;
    const uint32_t ones[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    for (int i = 0; i < 4; i++)
        CHECK(ah_stream_u32(&stream) == ones[i]);
    ah_stream_open(&stream, 0, 0, 1);
    CHECK(ah_stream_u32(&stream) != zeros[0] && second != zeros[0]);
}

static void grid_apply(struct ah_grid *grid, const uint8_t *from, uint8_t *to, uint64_t seed)
{
    int32_t scratch[512];
    struct ah_stream stream;
    ah_stream_open(&stream, seed, 0, 0);
    CHECK_OK(ah_grid_check(grid));
    REQUIRE(ah_grid_scratch(grid) <= sizeof scratch);
    ah_grid_apply(grid, from, to, &stream, scratch);
}

AH_TEST(grids_fill_with_the_later_step)
{
    struct ah_grid grid = {.channels = 1, .size = {1, 2}, .count = 2};
    grid.step[0] = (struct ah_grid_step){.kind = AH_GRID_PAD, .before = {1, 1}, .after = {1, 1}, .fill = {7}};
    grid.step[1] = (struct ah_grid_step){.kind = AH_GRID_PAD, .before = {1, 0}, .after = {0, 1}, .fill = {9}};
    uint8_t out[20];
    grid_apply(&grid, (const uint8_t[]){1, 2}, out, 0);
    CHECK(grid.out[0] == 4 && grid.out[1] == 5);
    const uint8_t expected[20] = {9, 9, 9, 9, 9, 7, 7, 7, 7, 9, 7, 1, 2, 7, 9, 7, 7, 7, 7, 9};
    CHECK(memcmp(out, expected, sizeof expected) == 0);
}

AH_TEST(grids_crop_at_every_place_and_nowhere_else)
{
    struct ah_grid grid = {.channels = 2, .size = {3, 4}, .count = 2};
    grid.step[0] = (struct ah_grid_step){.kind = AH_GRID_RANDOM_CROP, .size = {2, 2}};
    grid.step[1] = (struct ah_grid_step){.kind = AH_GRID_FLIP, .axis = 1, .p = 1};
    uint8_t from[24], out[8];
    int places[12] = {0};
    for (int i = 0; i < 24; i++)
        from[i] = (uint8_t)i;
    for (uint64_t seed = 0; seed < 200; seed++) {
        grid_apply(&grid, from, out, seed);
        int at = out[1];
        REQUIRE(at < 12);
        places[at]++;
        const int expected[8] = {at + 1, at, at + 5, at + 4, at + 13, at + 12, at + 17, at + 16};
        for (int i = 0; i < 8; i++)
            CHECK(out[i] == expected[i]);
    }
    for (int at = 0; at < 12; at++)
        CHECK((places[at] > 0) == (at % 4 < 3 && at < 8));
}

AH_TEST(grids_refuse_steps_that_do_not_fit)
{
    struct ah_grid grid = {.channels = 1, .size = {3, 3}, .count = 1};
    grid.step[0] = (struct ah_grid_step){.kind = AH_GRID_CROP, .at = {2, 0}, .size = {2, 2}};
    CHECK_FAILS(ah_grid_check(&grid), AH_EINVAL, "step 1: 2 from 2 on of 3");
    grid.step[0] = (struct ah_grid_step){.kind = AH_GRID_PAD, .edge = AH_EDGE_REFLECT, .before = {3, 0}};
    CHECK_FAILS(ah_grid_check(&grid), AH_EINVAL, "a mirrored edge of 3 around 3");
    grid.step[0].edge = AH_EDGE_SYMMETRIC;
    CHECK_OK(ah_grid_check(&grid));
    grid.step[0] = (struct ah_grid_step){.kind = AH_GRID_PAD, .before = {-1, 0}};
    CHECK(ah_grid_check(&grid) == AH_EINVAL);
    grid.channels = AH_GRID_CHANNELS + 1;
    grid.step[0] = (struct ah_grid_step){.kind = AH_GRID_PAD, .before = {1, 0}};
    CHECK_FAILS(ah_grid_check(&grid), AH_EINVAL, "fills 5 channels");
    grid.count = AH_GRID_STEPS + 1;
    CHECK(ah_grid_check(&grid) == AH_EINVAL);
}
