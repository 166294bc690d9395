#include "test.h"

#include <stdlib.h>

#include "data/digits.h"

enum { COUNT = 500 };

static uint8_t images[COUNT * AH_DIGITS_PIXELS], again[COUNT * AH_DIGITS_PIXELS];
static int64_t labels[COUNT], again_labels[COUNT];

AH_TEST(digits_are_a_function_of_seed_split_and_index)
{
    ah_digits_draw(images, labels, 3, 0, 0, COUNT);
    ah_digits_draw(again, again_labels, 3, 0, 0, COUNT);
    CHECK(memcmp(images, again, sizeof images) == 0 && memcmp(labels, again_labels, sizeof labels) == 0);
    /* A part drawn by itself equals the part of the whole. */
    memset(again, 1, sizeof again);
    ah_digits_draw(again, again_labels, 3, 0, 123, 200);
    CHECK(memcmp(images + 123 * AH_DIGITS_PIXELS, again, 200 * AH_DIGITS_PIXELS) == 0);
    CHECK(memcmp(labels + 123, again_labels, 200 * sizeof *labels) == 0);
    ah_digits_draw(again, again_labels, 3, 1, 0, COUNT);
    CHECK(memcmp(images, again, sizeof images) != 0 && memcmp(labels, again_labels, sizeof labels) != 0);
    ah_digits_draw(again, again_labels, 4, 0, 0, COUNT);
    CHECK(memcmp(images, again, sizeof images) != 0);
}

AH_TEST(digits_show_every_class_with_ink_away_from_the_border)
{
    int seen[10] = {0};
    int64_t inside = 0, border = 0;
    ah_digits_draw(images, labels, 0, 0, 0, COUNT);
    for (int i = 0; i < COUNT; i++) {
        REQUIRE(labels[i] >= 0 && labels[i] < 10);
        seen[labels[i]]++;
        const uint8_t *image = images + i * AH_DIGITS_PIXELS;
        int strongest = 0;
        for (int p = 0; p < AH_DIGITS_PIXELS; p++) {
            int y = p / AH_DIGITS_SIDE, x = p % AH_DIGITS_SIDE;
            bool edge = y == 0 || x == 0 || y == AH_DIGITS_SIDE - 1 || x == AH_DIGITS_SIDE - 1;
            *(edge ? &border : &inside) += image[p];
            strongest = image[p] > strongest ? image[p] : strongest;
        }
        CHECK(strongest >= 100);
    }
    for (int digit = 0; digit < 10; digit++)
        CHECK(seen[digit] >= 25 && seen[digit] <= 80);
    double mean = (double)(inside + border) / sizeof images / 255;
    CHECK(mean > 0.06 && mean < 0.14);
    CHECK(border * 20 < inside);
}

/* The drawing itself is pinned, so that results on the data set stay comparable. */
AH_TEST(digits_are_the_same_everywhere)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    ah_digits_draw(images, labels, 0, 0, 0, COUNT);
    for (size_t i = 0; i < sizeof images; i++)
        hash = (hash ^ images[i]) * UINT64_C(1099511628211);
    if (hash != UINT64_C(0xdd3028868a2ed81f))
        test_failed(__FILE__, __LINE__, "the first %d images hash to %llx", COUNT, (unsigned long long)hash);
}
