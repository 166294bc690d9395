/* The state of a capture that components below host/capture see. */
#include "tensor/capture.h"

#include <stddef.h>

bool ah_cpu_captured;
const char *(*ah_capture_op)(void);

int ah_capture_refuse(const char *op_name, const char *what, const char *remedy)
{
    if (__builtin_expect(!ah_cpu_captured, 1))
        return 0;
    if (!op_name && ah_capture_op)
        op_name = ah_capture_op();
    return ah_fail(AH_ESTATE, "%s%s%s cannot be captured in a graph; %s", op_name ? op_name : "", op_name ? ": " : "",
                   what, remedy);
}
