/* NCCL's calls: communicators, groups, and their moves as works of streams. */
#include "nccl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "random.h"

struct ncclComm {
    std::shared_ptr<sim::Link> link;
    std::thread setting_up;
    std::mutex joining;
    bool blocking;

    void join()
    {
        std::lock_guard<std::mutex> hold(joining);
        if (setting_up.joinable())
            setting_up.join();
    }
};

using namespace sim;

namespace
{
/* A thread's calls since ncclGroupStart. */
struct Grouped {
    ncclComm_t comm;
    CUstream stream;
    std::vector<Move> moves;
};
thread_local int depth;
thread_local std::vector<Grouped> *grouped;
thread_local std::vector<ncclComm_t> *opened;

int finish_opening(ncclComm_t comm)
{
    comm->join();
    return comm->link->error;
}

/* A replay after one of its buffers was freed is an error, as for kernels. */
void note_used(CUstream stream, const std::vector<Move> &moves)
{
    std::lock_guard<std::mutex> running(stream->context->run);
    for (const Move &move : moves)
        for (const void *at : {static_cast<const void *>(move.from), static_cast<const void *>(move.to)})
            if (const Range::Block *block = stream->context->memory.find(at, 1))
                stream->capture->graph.used.push_back({block->at, block->bytes, block->number});
}

int give_moves(const Grouped &group)
{
    auto link = group.comm->link;
    auto moves = group.moves;
    if (group.stream->capture) {
        note_used(group.stream, moves);
        auto held = link->in_graphs;
        Work work = {[link, moves, held] { carry_out_moves(*link, moves); }, false};
        return stream_give(group.stream, work) ? ncclUnhandledCudaError : ncclSuccess;
    }
    return stream_give(group.stream, {[link, moves] { carry_out_moves(*link, moves); }, false}) ? ncclUnhandledCudaError
                                                                                                : ncclSuccess;
}

int end_group()
{
    int result = ncclSuccess;
    if (opened)
        for (ncclComm_t comm : *opened)
            if (int code = finish_opening(comm))
                result = code;
    delete opened;
    opened = nullptr;
    if (grouped) {
        for (const Grouped &group : *grouped)
            if (auto its = group.comm->link; !its->connect())
                result = ncclInternalError;
        Api hold(api);
        for (const Grouped &group : *grouped)
            if (int code = result ? (int)result : give_moves(group))
                result = code;
    }
    delete grouped;
    grouped = nullptr;
    return result;
}

bool on_device(CUcontext context, const void *at, size_t bytes)
{
    std::lock_guard<std::mutex> running(context->run);
    return !bytes || context->memory.find(at, bytes);
}

int refuse(const char *text)
{
    report(LAST_OF_NCCL, text);
    return ncclInvalidArgument;
}

/* Compute the sizes of the two buffers in units of `count`. */
void shares(const Move &move, int ranks, uint64_t *from, uint64_t *to)
{
    *from = move.call == Move::RECEIVE ? 0 : move.call == Move::REDUCE_SCATTER ? (uint64_t)ranks : 1;
    *to = move.call == Move::SEND ? 0 : move.call == Move::ALL_GATHER ? (uint64_t)ranks : 1;
}

int add(ncclComm_t comm, CUstream handle, Move move)
{
    CUstream stream;
    if (!comm) {
        Api hold(api);
        return refuse("no communicator");
    }
    auto its = comm->link; /* an abort by another thread frees the communicator */
    if (comm->blocking && its->error == ncclSuccess)
        its->begin_connect();
    if (!depth && !its->connect())
        return ncclInternalError;
    Api hold(api);
    Link &link = *comm->link;
    if (int error = link.error)
        return error == ncclInProgress ? (int)ncclInvalidUsage : error;
    if (move.type < 0 || move.type > ncclBfloat16 || move.op < 0 || move.op > ncclAvg || move.root < 0 ||
        move.root >= link.ranks)
        return refuse("a type, operation, root or peer that there is not");
    if (stream_of(handle, &stream))
        return ncclUnhandledCudaError;
    if (stream->context != link.context)
        return refuse("a stream of another device than the communicator's");
    uint64_t from, to, bytes = move.count * size_of_nccl(move.type);
    shares(move, link.ranks, &from, &to);
    bool takes = move.call != Move::REDUCE || link.rank == move.root;
    bool brings = move.call != Move::BROADCAST || link.rank == move.root;
    if ((brings && !on_device(link.context, move.from, from * bytes)) ||
        (takes && !on_device(link.context, move.to, to * bytes)))
        return refuse("a buffer that is not in the device's memory");
    if (!depth)
        return give_moves({comm, stream, {move}});
    if (!grouped)
        grouped = new std::vector<Grouped>;
    for (Grouped &group : *grouped)
        if (group.comm == comm && group.stream == stream) {
            group.moves.push_back(move);
            return ncclSuccess;
        }
    grouped->push_back({comm, stream, {move}});
    return ncclSuccess;
}

Move move_of(Move::Call call, const void *from, void *to, size_t count, int type, int op, int root)
{
    return {call, static_cast<const char *>(from), static_cast<char *>(to), count, type, op, root};
}
} // namespace

SIM_API ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return ncclSuccess;
}

SIM_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t bits[2] = {};
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool drawn = file >= 0 && read(file, bits, sizeof bits) == sizeof bits;
    if (file >= 0)
        close(file);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/accelhost-sim-nccl-%016llx%016llx", (unsigned long long)bits[0],
             (unsigned long long)bits[1]);
    return drawn ? ncclSuccess : ncclSystemError;
}

SIM_API const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",         "unhandled cuda error", "unhandled system error",
        "internal error",   "invalid argument",     "invalid usage",
        "remote process exited or there was a network error", "NCCL operation in progress"};
    return result >= 0 && result <= ncclInProgress ? texts[result] : "unknown result code";
}

/* The last error of any communicator: as in NCCL, where it is a line of the log. */
SIM_API const char *ncclGetLastError(ncclComm_t comm)
{
    const char *text = nullptr;
    cuGetErrorString(LAST_OF_NCCL, &text);
    return text ? text : "";
}

SIM_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                            ncclConfig_t *config)
{
    CUcontext context;
    {
        Api hold(api);
        if (current(&context))
            return ncclUnhandledCudaError;
    }
    if (ranks < 1 || ranks > Segment::MOST_RANKS || rank < 0 || rank >= ranks || !memchr(id.internal, 0, sizeof id))
        return refuse("a rank or a count of ranks that cannot be, or an id that is none");
    if (config && config->magic != 0xcafebeef)
        return refuse("a configuration that was not initialised");
    ncclComm_t comm = new ncclComm;
    auto link = std::make_shared<Link>(id.internal, ranks, rank, context);
    comm->link = link;
    comm->blocking = !config || config->blocking != 0;
    comm->setting_up = std::thread([link] { link->meet(); });
    *out = comm;
    if (config && config->blocking == 0)
        return ncclInProgress;
    if (depth) {
        if (!opened)
            opened = new std::vector<ncclComm_t>;
        opened->push_back(comm);
        return ncclSuccess;
    }
    return finish_opening(comm);
}

SIM_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!comm)
        return ncclInvalidArgument;
    *error = comm->link->error;
    if (*error != ncclInProgress)
        comm->join(); /* as NCCL does: a process may end without destroying its communicators */
    return ncclSuccess;
}

SIM_API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return comm ? ncclSuccess : ncclInvalidArgument;
}

/* Its works keep the link until they have completed; while graphs with its calls exist, it waits for them. */
SIM_API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    comm->join();
    while (comm->link->in_graphs.use_count() > 1)
        usleep(1000);
    delete comm;
    return ncclSuccess;
}

SIM_API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    comm->link->aborted = true;
    return ncclCommDestroy(comm);
}

SIM_API ncclResult_t ncclGroupStart()
{
    depth++;
    return ncclSuccess;
}

SIM_API ncclResult_t ncclGroupEnd()
{
    if (!depth)
        return ncclInvalidUsage;
    return --depth ? ncclSuccess : end_group();
}

SIM_API ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, CUstream stream)
{
    count_call();
    return add(comm, stream, move_of(Move::ALL_REDUCE, from, to, count, type, op, 0));
}

SIM_API ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                int root, ncclComm_t comm, CUstream stream)
{
    count_call();
    return add(comm, stream, move_of(Move::REDUCE, from, to, count, type, op, root));
}

SIM_API ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                   ncclComm_t comm, CUstream stream)
{
    count_call();
    return add(comm, stream, move_of(Move::BROADCAST, from, to, count, type, 0, root));
}

SIM_API ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                   CUstream stream)
{
    count_call();
    return add(comm, stream, move_of(Move::ALL_GATHER, from, to, count, type, 0, 0));
}

SIM_API ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                       ncclComm_t comm, CUstream stream)
{
    count_call();
    return add(comm, stream, move_of(Move::REDUCE_SCATTER, from, to, count, type, op, 0));
}

SIM_API ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                              CUstream stream)
{
    count_call();
    return add(comm, stream, move_of(Move::SEND, from, nullptr, count, type, 0, peer));
}

SIM_API ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
    count_call();
    return add(comm, stream, move_of(Move::RECEIVE, nullptr, to, count, type, 0, peer));
}
