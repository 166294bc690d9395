/* One level: the processor that the program was built for. */
#include <stdlib.h>

#include "base/numeric/level.h"
#include "base/status/status.h"

int ah_level_choose(void)
{
    const char *wanted = getenv("ACCELHOST_CPU");
    if (wanted && *wanted)
        return ah_fail(AH_EINVAL, "ACCELHOST_CPU=%s: this program was built for one processor (make ARCH=portable "
                       "builds one for all)", wanted);
    return 0;
}

const char *ah_level_name(void)
{
    return "native";
}
