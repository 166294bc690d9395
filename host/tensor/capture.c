/* The state of a capture that components below host/capture see. */
#include "tensor/capture.h"

#include "base/status/status.h"

bool ah_cpu_captured;
const struct ah_capture_hooks *ah_capture_hooks;

int ah_capture_refuse(const char *op_name, const char *what, const char *remedy)
{
    if (__builtin_expect(!ah_cpu_captured, 1))
        return 0;
    if (!op_name)
        op_name = ah_capture_hooks->op();
    return ah_fail(AH_ESTATE, "%s%s%s cannot be captured in a graph; %s", op_name ? op_name : "", op_name ? ": " : "",
                   what, remedy);
}

int ah_capture_enter(const struct ah_capture_work *work)
{
    return ah_cpu_captured ? ah_capture_hooks->enter(work) : 0;
}

void ah_capture_leave(void)
{
    if (ah_cpu_captured)
        ah_capture_hooks->leave();
}

int ah_capture_leaf(struct ah_tensor *leaf, struct ah_tensor *grad, bool replaces)
{
    return ah_cpu_captured ? ah_capture_hooks->leaf(leaf, grad, replaces) : 0;
}

void ah_capture_forget(const void *context)
{
    if (ah_capture_hooks)
        ah_capture_hooks->forget(context);
}
