/* The texts of failures. */
#include <string.h>

#include "base/status/printable.h"
#include "base/status/status.h"
#include "test.h"

AH_TEST(a_failed_allocation_is_reported_with_its_first_caller)
{
    CHECK(ah_fail_named(ah_fail(AH_ENOMEM, "out of memory: %d bytes asked for", 12), "relu") == AH_ENOMEM);
    CHECK(!strcmp(ah_error_text(), "relu: out of memory: 12 bytes asked for"));
    CHECK(ah_fail_named(AH_ENOMEM, "backward") == AH_ENOMEM);
    CHECK(!strcmp(ah_error_text(), "relu: out of memory: 12 bytes asked for"));
    CHECK(ah_fail_named(ah_fail(AH_EINVAL, "out of memory of it"), "relu") == AH_EINVAL);
    CHECK(!strcmp(ah_error_text(), "out of memory of it"));
}

AH_TEST(texts_of_failures_hold_no_control_characters)
{
    static const char *const cases[][2] = {
        {"tensor '\x1b]0;title\x07'", "tensor '?]0;title?'"},
        {"two\nlines\tand a tab\r", "two\nlines\tand a tab?"},
        {"\xc2\x9b" "31m \xc2\xa0 \x7f", "?31m \xc2\xa0 ?"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x9b" "31m \xff \xc3( \xe2\x82", "?31m ? ?( ??"},
        {"\xc0\x9b \xed\xa0\x80 \xf4\x90\x80\x80", "?? ??? ????"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ah_fail(AH_EINVAL, "%s", cases[i][0]);
        CHECK(!strcmp(ah_error_text(), cases[i][1]));
    }
    char cut[2100];
    for (size_t i = 0; i + 2 < sizeof cut; i += 2)
        memcpy(cut + i, "\xc3\xbc", 3);
    ah_fail(AH_EINVAL, "%s", cut); /* the buffer ends within a character */
    CHECK(strlen(ah_error_text()) == 2047 && ah_error_text()[2046] == '?');
    CHECK(ah_utf8_length(ah_error_text() + 2044, 2) == 2);
}
