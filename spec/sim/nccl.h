/* NCCL over shared memory: a communicator is a segment that its ranks map, whether they are processes or devices of
 * one.
 *
 * Collectives pass through it in chunks: every rank writes its chunk, all meet, each reads its part, all meet again.
 * Messages pass through a box for each pair of ranks. A waiting rank monitors the others: one that has ended or left
 * without its call is an asynchronous error, and the work waits on until the communicator is aborted, as on a
 * card. With $ACCELHOST_SIM_LINKS segments are files in that folder, which several hosts in namespaces share. */
#pragma once

#include "cuda/nccl/nccl.h"
#include "state.h"

#define CALL(result, field, symbol, parameters) SIM_API result symbol parameters;
#include "cuda/nccl/nccl.def"
#undef CALL

namespace sim
{
/* Under which its last error's text is kept among the driver's. */
enum { LAST_OF_NCCL = 100000 };

enum : size_t { CHUNK = 64 * 1024, BOX = 16 * 1024 };

/* The next call of a rank; all ranks have to make the same. */
struct Posted {
    int call, type, op, root;
    uint64_t count;
};

/* The segment: this, then a chunk for each rank, then a box for each pair. */
struct Shared_rank {
    std::atomic<uint64_t> step;
    std::atomic<int> process, device;
    std::atomic<uint64_t> host; /* of its processes' numbers */
    std::atomic<int> state; /* 0: not here yet, 1: here, 2: gone */
    Posted posted;
};
struct Box {
    std::atomic<uint64_t> filled, emptied;
    char bytes[BOX];
};
struct Segment {
    enum { MOST_RANKS = 64 };
    std::atomic<int> ranks, here, connecting;
    Shared_rank rank[MOST_RANKS];
};

/* A rank's end of a communicator; lives as long as a work that uses it. */
class Link
{
  public:
    enum { SETTING_UP, READY };

    Link(const std::string &name, int ranks, int rank, CUcontext context);
    ~Link();
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    /* Map the segment and wait for all ranks; then `error` is the result. */
    void meet();
    /* The first call of a blocking communicator, or the end of its group, waits for the other ranks' first calls: false
     * when the communicator was aborted. */
    void begin_connect();
    bool connect();
    /* Wait until all ranks have arrived. False when the communicator was aborted meanwhile. */
    bool arrive();
    /* Wait until every other rank makes the same call; false after an error, when aborted. */
    bool post(const Posted &mine);
    /* Wait a little inside a work; false when aborted. */
    bool pause();
    /* Has a rank ended, or left its communicator? */
    bool is_gone(int peer) const;
    /* Report that a rank has ended that a call waits for. */
    void lose(int peer);
    /* An asynchronous error; the first one stays. */
    void fail(int code, const std::string &text);
    /* Wait for the abort that follows an error. */
    void wait_for_abort();

    char *chunk(int of) const;
    Box *box(int from, int to) const;

    const int ranks, rank;
    const CUcontext context;
    std::atomic<int> error{ncclInProgress};
    std::atomic<bool> aborted{false};
    /* Every graph with a call of it holds this too. */
    const std::shared_ptr<int> in_graphs = std::make_shared<int>();

  private:
    std::string name_;
    Segment *segment_ = nullptr;
    size_t bytes_ = 0;
    unsigned pauses_ = 0;
    bool connecting_ = false;

    /* Is it a thread of this process? */
    bool is_own(int peer) const;
    int open_segment() const;
    void remove_segment() const;
};

/* One call of a rank. */
struct Move {
    enum Call { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE } call;
    const char *from;
    char *to;
    uint64_t count;
    int type, op, root; /* root: also the peer of a message */
};

size_t size_of_nccl(int type);
/* The calls of a group on one communicator, in order; messages side by side. On the stream's thread. */
void carry_out_moves(Link &link, const std::vector<Move> &moves);
/* to[i] = op over `n` ranks' items, which are `step` bytes apart, in the order of the ranks. */
void combine(int type, int op, char *to, const char *from, size_t step, int n, size_t count);
} // namespace sim
