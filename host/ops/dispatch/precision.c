/* The state of the switches: one for the process. */
#include "ops/dispatch/precision.h"

#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

static const char *const precision_names[AH_MATMUL_PRECISIONS] = {"highest", "high", "medium"};

struct ah_precision *ah_precision(void)
{
    static struct ah_precision state = {.conv_tf32 = true, .dnn = true};
    static bool begun;
    if (!begun) {
        const char *given = getenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE");
        if (given && !strcmp(given, "1"))
            state.matmul = AH_MATMUL_HIGH;
        begun = true;
    }
    return &state;
}

const char *ah_matmul_precision_name(enum ah_matmul_precision precision)
{
    return precision_names[precision];
}

int ah_matmul_precision_parse(const char *name, enum ah_matmul_precision *out)
{
    for (int i = 0; i < AH_MATMUL_PRECISIONS; i++) {
        if (!strcmp(precision_names[i], name)) {
            *out = (enum ah_matmul_precision)i;
            return 0;
        }
    }
    return ah_fail(AH_EINVAL, "set_float32_matmul_precision: precision: expected 'highest', 'high' or 'medium', "
                   "got '%s'", name);
}
