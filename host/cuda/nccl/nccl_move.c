/* Collectives as calls of NCCL. Those without a call are messages between all pairs of ranks with data for each other,
 * queued at once. */
#include "base/status/status.h"
#include "cuda/nccl/nccl_group.h"

static const ncclDataType_t nccl_types[AH_DTYPE_COUNT] = {
    [AH_F32] = ncclFloat32, [AH_F64] = ncclFloat64, [AH_I64] = ncclInt64,   [AH_I32] = ncclInt32,
    [AH_U8] = ncclUint8,    [AH_BOOL] = ncclUint8,  [AH_F16] = ncclFloat16, [AH_BF16] = ncclBfloat16,
    [AH_I8] = ncclInt8,     [AH_U32] = ncclUint32,  [AH_U64] = ncclUint64,  [AH_I16] = ncclFloat16,
    [AH_U16] = ncclFloat16, /* only moved: reductions are refused before */
};

/* Of bool the bits are the greater and the lesser of two. */
static const ncclRedOp_t nccl_operations[AH_REDUCE_OPS] = {
    [AH_REDUCE_SUM] = ncclSum,      [AH_REDUCE_MEAN] = ncclAvg, [AH_REDUCE_MAX] = ncclMax, [AH_REDUCE_MIN] = ncclMin,
    [AH_REDUCE_PRODUCT] = ncclProd, [AH_REDUCE_AND] = ncclMin,  [AH_REDUCE_OR] = ncclMax,
};

int ah_nccl_report(const struct ah_nccl_comm *comm, ncclResult_t code, const char *what, const char *last_error)
{
    if (code == ncclSuccess || code == ncclInProgress)
        return 0;
    return ah_fail(AH_EIO, "%s: %s: NCCL: %s%s%s", comm->cuda->device->name, what, comm->nccl->error_text(code),
                   last_error && *last_error ? ": " : "", last_error ? last_error : "");
}

int ah_nccl_check(const struct ah_nccl_comm *comm, ncclResult_t code, const char *what)
{
    return ah_nccl_report(comm, code, what, code == ncclSuccess ? NULL : comm->nccl->last_error(NULL));
}

static int nccl_exchange(struct ah_nccl_comm *comm, const struct ah_collective *call)
{
    const struct ah_nccl *nccl = comm->nccl;
    int rank = comm->base.group->rank, size = comm->base.group->size;
    size_t width = ah_dtype_size(call->dtype);
    ncclDataType_t type = nccl_types[call->dtype];
    const char *in = call->in;
    char *out = call->out;
    struct ah_part own = ah_collective_part(call, size, rank, rank);
    char *to = out + (size_t)own.place * width;
    const char *from = in + (size_t)own.first * width;
    bool looped = size == 1 && to != from; /* a rank that is alone sends to itself, so that NCCL is used */
    ncclResult_t code = nccl->group_start();
    for (int r = 0; r < size && code == ncclSuccess; r++) {
        struct ah_part given = ah_collective_part(call, size, rank, r), taken = ah_collective_part(call, size, r, rank);
        if (r == rank && !looped)
            continue;
        if (given.count)
            code =
                nccl->send(in + (size_t)given.first * width, (size_t)given.count, type, r, comm->handle, comm->stream);
        if (taken.count && (code == ncclSuccess || code == ncclInProgress))
            code = nccl->receive(out + (size_t)taken.place * width, (size_t)taken.count, type, r, comm->handle,
                                 comm->stream);
        code = code == ncclInProgress ? ncclSuccess : code;
    }
    ncclResult_t ended = nccl->group_end();
    AH_TRY(ah_nccl_check(comm, code ? code : ended, ah_collective_name(call->kind, call->async)));
    if (!own.count || to == from || looped)
        return 0;
    return ah_cuda_check(ah_cuda.copy_within((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                             (size_t)own.count * width, comm->stream),
                         "%s: copying the own part", comm->cuda->device->name);
}

int ah_nccl_give_message(struct ah_nccl_comm *comm, const struct ah_message_request *transfer)
{
    const struct ah_message *m = &transfer->message;
    size_t count = (size_t)m->count;
    int receiver = comm->base.group->size > 1;
    ncclResult_t code =
        transfer->sends
            ? comm->nccl->send(m->memory, count, nccl_types[m->dtype], receiver, comm->handle, comm->stream)
            : comm->nccl->receive(m->memory, count, nccl_types[m->dtype], 0, comm->handle, comm->stream);
    return ah_nccl_check(comm, code, transfer->sends ? "send" : "recv");
}

int ah_nccl_move(struct ah_nccl_comm *comm, const struct ah_collective *call, double weights, double *divisor)
{
    const struct ah_nccl *nccl = comm->nccl;
    size_t count = (size_t)call->count;
    ncclDataType_t type = nccl_types[call->dtype];
    ncclRedOp_t op = nccl_operations[call->reduce];
    ncclResult_t code;
    *divisor = 1;
    if (ah_collective_reduces(call) && op == ncclAvg && weights != 0 && weights != comm->base.group->size) {
        op = ncclSum;
        *divisor = weights;
    }
    switch (call->kind) {
    case AH_ALL_REDUCE:
        code = nccl->all_reduce(call->in, call->out, count, type, op, comm->handle, comm->stream);
        break;
    case AH_REDUCE:
        code = nccl->reduce(call->in, call->out, count, type, op, call->root, comm->handle, comm->stream);
        break;
    case AH_BROADCAST:
        code = nccl->broadcast(call->in, call->out, count, type, call->root, comm->handle, comm->stream);
        break;
    case AH_ALL_GATHER:
        code = nccl->all_gather(call->in, call->out, count, type, comm->handle, comm->stream);
        break;
    case AH_REDUCE_SCATTER:
        code = nccl->reduce_scatter(call->in, call->out, count, type, op, comm->handle, comm->stream);
        break;
    default:
        return nccl_exchange(comm, call);
    }
    return ah_nccl_check(comm, code, ah_collective_name(call->kind, call->async));
}
