#include "tensor/rng.h"

#include "test.h"

AH_TEST(rng_generates_mt19937)
{
    /* The reference implementation's 1st, 2nd and 10000th output for seed 5489. */
    struct ah_generator g;
    ah_generator_seed(&g, 5489);
    CHECK(ah_generator_u32(&g) == 3499211612u);
    CHECK(ah_generator_u32(&g) == 581869302u);
    uint32_t draw = 0;
    for (int i = 2; i < 10000; i++)
        draw = ah_generator_u32(&g);
    CHECK(draw == 4123659995u);
}

AH_TEST(rng_blocks_equal_single_draws)
{
    struct ah_generator one, many;
    ah_generator_seed(&one, 3);
    ah_generator_seed(&many, 3);
    static uint32_t block[2000];
    int64_t lengths[] = {0, 1, 7, 623, 624, 625, 1300, 2000};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        ah_generator_fill_u32(&many, block, lengths[k]);
        bool same = true;
        for (int64_t i = 0; i < lengths[k]; i++)
            same = same && block[i] == ah_generator_u32(&one);
        CHECK(same);
    }
}

AH_TEST(rng_skips_as_many_draws_as_it_would_make)
{
    struct ah_generator drawn, skipped;
    int64_t lengths[] = {0, 1, 623, 0, 624, 625, 5000, 1248};
    ah_generator_seed(&drawn, 3);
    ah_generator_seed(&skipped, 3);
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        for (int64_t i = 0; i < lengths[k]; i++)
            ah_generator_u32(&drawn);
        ah_generator_skip(&skipped, lengths[k]);
        struct ah_generator a = drawn, b = skipped;
        CHECK(ah_generator_u64(&a) == ah_generator_u64(&b));
    }
}

AH_TEST(rng_keep_is_a_comparison_of_doubles)
{
    struct ah_generator one, many;
    double chances[] = {0.25, 0.1, 1.0 / 3, 0x1p-53, 1 - 0x1p-53};
    static uint8_t keep[3000];
    for (size_t k = 0; k < sizeof chances / sizeof *chances; k++) {
        ah_generator_seed(&one, k);
        ah_generator_seed(&many, k);
        ah_generator_fill_keep(&many, keep, 3000, chances[k]);
        bool same = true;
        for (int i = 0; i < 3000; i++)
            same = same && keep[i] == (ah_generator_double(&one) < chances[k]);
        CHECK(same);
        CHECK(ah_generator_u64(&one) == ah_generator_u64(&many));
    }
}

AH_TEST(rng_state_travels_at_every_position)
{
    struct ah_generator from, to;
    uint8_t bytes[AH_RNG_STATE_BYTES];
    ah_generator_seed(&from, 99);
    int advance[] = {0, 1, 622, 1, 1, 300};
    for (size_t k = 0; k < sizeof advance / sizeof *advance; k++) {
        for (int i = 0; i < advance[k]; i++)
            ah_generator_u32(&from);
        ah_generator_seed(&to, 1);
        ah_generator_get_state(&from, bytes);
        CHECK_OK(ah_generator_set_state(&to, bytes, sizeof bytes));
        struct ah_generator copy = from;
        CHECK(to.seed == 99);
        CHECK(ah_generator_u64(&copy) == ah_generator_u64(&to));
    }
}

AH_TEST(rng_state_of_nonsense_is_refused)
{
    struct ah_generator g;
    uint8_t bytes[AH_RNG_STATE_BYTES];
    ah_generator_seed(&g, 1);
    ah_generator_get_state(&g, bytes);
    CHECK_FAILS(ah_generator_set_state(&g, bytes, 100), AH_EINVAL, "expected 5056 bytes, got 100");
    bytes[8] = 200; /* `left` and `next` disagree */
    CHECK_FAILS(ah_generator_set_state(&g, bytes, sizeof bytes), AH_EINVAL, "not the state");
    memset(bytes, 0xff, sizeof bytes);
    CHECK_FAILS(ah_generator_set_state(&g, bytes, sizeof bytes), AH_EINVAL, "not the state");
}
