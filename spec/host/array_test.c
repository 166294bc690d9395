/* Growing arrays. */
#include "base/memory/array.h"

#include <stdint.h>
#include <stdlib.h>

#include "test.h"

AH_TEST(array_keeps_what_it_holds_while_it_grows)
{
    int *numbers = NULL;
    size_t room = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(ah_grow(&numbers, (size_t)i + 1, &room, sizeof *numbers));
        REQUIRE(room > (size_t)i);
        numbers[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        CHECK(numbers[i] == i);
    free(numbers);
}

AH_TEST(array_refuses_a_size_beyond_memory_and_stays_as_it_was)
{
    char *text = NULL;
    size_t room = 0;
    CHECK_OK(ah_grow(&text, 10, &room, 1));
    size_t before = room;
    char *place = text;
    CHECK_FAILS(ah_grow(&text, SIZE_MAX, &room, 1), AH_ENOMEM, "out of memory");
    CHECK_FAILS(ah_grow(&text, SIZE_MAX / 4, &room, 8), AH_ENOMEM, "out of memory");
    CHECK(text == place && room == before);
    free(text);
}
