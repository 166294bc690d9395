/* The script lines of nodes, and the detection of gradients that are nan. */
#include "autograd/graph/anomaly.h"

#include <string.h>

#include "base/status/status.h"

struct ah_anomaly ah_anomaly;

int ah_anomaly_mark(struct ah_node *node)
{
    if (!ah_anomaly.on)
        return 0;
    node->site = strdup(ah_anomaly.site());
    return node->site ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

static int holds_nan(struct ah_tensor *grad, bool *found)
{
    AH_OWNED struct ah_tensor *truth = NULL, *any = NULL, *here = NULL;
    AH_GRAD_SCOPE(false);
    AH_TRY(ah_op1(AH_OP_isnan, &truth, AH_T(grad)));
    AH_TRY(ah_op1(AH_OP_any, &any, AH_T(truth)));
    AH_TRY(ah_host_copy(&here, any));
    *found = ah_tensor_get(here, 0) != 0;
    return 0;
}

int ah_anomaly_check(const struct ah_node *node, struct ah_tensor **grad_in)
{
    for (int i = 0; ah_anomaly.on && ah_anomaly.check_nan && i < node->input_count; i++) {
        bool found = false;
        if (grad_in[i] && ah_dtype_is_float(grad_in[i]->dtype))
            AH_TRY(holds_nan(grad_in[i], &found));
        if (found) {
            return ah_fail(AH_EINVAL, "backward of %s: the gradient of input %d holds nan; the op was called at %s",
                           ah_node_name(node), i + 1, node->site ? node->site : "(before anomaly mode was on)");
        }
    }
    return 0;
}
