/* The texts of failures. */
#include <string.h>

#include "base/status.h"
#include "test.h"

AH_TEST(memory_that_is_out_is_told_with_who_asked_first)
{
    CHECK(ah_fail_named(ah_fail(AH_ENOMEM, "out of memory: %d bytes asked for", 12), "relu") == AH_ENOMEM);
    CHECK(!strcmp(ah_error_text(), "relu: out of memory: 12 bytes asked for"));
    CHECK(ah_fail_named(AH_ENOMEM, "backward") == AH_ENOMEM);
    CHECK(!strcmp(ah_error_text(), "relu: out of memory: 12 bytes asked for"));
    CHECK(ah_fail_named(ah_fail(AH_EINVAL, "out of memory of it"), "relu") == AH_EINVAL);
    CHECK(!strcmp(ah_error_text(), "out of memory of it"));
}
