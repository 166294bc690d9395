/* Pieces are packed and copied back by ops, without recording a graph, so that they work on every device. */
#include "optim/piece.h"

#include "autograd/graph/graph.h"
#include "base/status/status.h"

static int without_grad(enum ah_opid id, struct ah_tensor **out, struct ah_tensor *a, struct ah_tensor *b)
{
    AH_GRAD_SCOPE(false);
    return b ? ah_op1(id, out, AH_T(a), AH_T(b)) : ah_op1(id, out, AH_T(a));
}

int ah_piece_open(struct ah_piece *piece, struct ah_tensor *tensor, bool writes)
{
    *piece = (struct ah_piece){.writes = writes};
    AH_TRY(ah_tensor_row_major(tensor));
    if (!ah_tensor_is_contiguous(tensor))
        AH_TRY(without_grad(AH_OP_contiguous, &piece->packed, tensor, NULL));
    piece->tensor = tensor;
    piece->data = ah_tensor_data(piece->packed ? piece->packed : tensor);
    return 0;
}

int ah_piece_close(struct ah_piece *piece, bool failed)
{
    int status = 0;
    if (!piece->tensor)
        return 0;
    bool written = piece->writes && !failed;
    if (written && piece->packed) {
        struct ah_tensor *same = NULL;
        status = without_grad(AH_OP_copy_, &same, piece->tensor, piece->packed);
        ah_tensor_release(same);
    } else if (written) {
        ah_tensor_touch(piece->tensor);
    }
    ah_tensor_release(piece->packed);
    *piece = (struct ah_piece){0};
    return status;
}
