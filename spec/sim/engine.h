/* Runs kernels: the blocks of a launch one after another on the calling thread, a block's threads as fibers.
 *
 * The order of blocks and of threads is drawn from the launch's seed, again after each barrier. An error ends the block
 * where it is and the launch with it. One engine a thread of the system. */
#pragma once

#include <string>
#include <vector>

#include "fiber.h"
#include "random.h"
#include "shared.h"
#include "sim.h"

namespace sim
{
enum { MAX_BLOCK = 1024, WARP = 32 };

struct Launch {
    const Kernel *kernel;
    dim3 grid, block;
    size_t dynamic_bytes;
    const void *arguments;
    uint64_t seed;
    /* Threads and blocks in one drawn order, kept wherever there is a choice, or in its reverse: of two accesses that
     * no barrier parts each is the first once. */
    enum Order { DRAWN, FORWARD, REVERSED } order;
};

struct Failure {
    int code = 0; /* a CUresult */
    std::string text;
};

/* A thread of a block. */
struct Lane {
    enum State : uint8_t { READY, AT_BARRIER, AT_WARP, DONE } state;
    Meeting kind;
    uint3 at;
    unsigned index, rank;
    Fiber *fiber; /* null: not begun */
    Site site;
    unsigned mask;
    int argument, width;
    uint64_t value, result;
    void (*together)(void *const *lanes); /* or null: the warp's common operation on the addresses in `value` */
};

class Engine
{
  public:
    Engine();
    ~Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    /* This thread's own; made on first use. */
    static Engine &mine();

    /* False when a thread failed. */
    bool run(const Launch &launch, Failure *failure);

    /* Called by the running thread. */
    uint64_t at_barrier(Meeting kind, int vote, Site site);
    uint64_t at_warp(Meeting kind, unsigned mask, uint64_t value, int argument, int width, Site site);
    void together(Meeting kind, void (*act)(void *const *lanes), void *mine, Site site);
    bool chance();
    Shared &shared()
    {
        return shared_;
    }
    [[noreturn]] void fail(int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

  private:
    static void entry();
    void run_threads();
    bool run_block();
    Lane *pick();
    void make_ready(Lane *lane);
    void wait();
    void resume(Lane *lane);
    Fiber *take_fiber();
    void release_barrier();
    void finish_warp(Lane *first);
    void run_together(const Lane *warp);
    void ended(Lane *lane);
    [[noreturn]] void fail_stuck();

    const Launch *launch_ = nullptr;
    Failure *failure_ = nullptr;
    Fiber main_;
    std::vector<Fiber *> fibers_, idle_;
    Fiber *fiber_ = nullptr; /* that runs */
    Lane *lane_ = nullptr;   /* that runs */
    Lane lanes_[MAX_BLOCK];
    unsigned met_[MAX_BLOCK / WARP]; /* of each warp, the lanes that wait for others of it */
    unsigned count_ = 0, done_ = 0, at_barrier_ = 0;
    std::vector<Lane *> ready_;
    Random random_;
    Shared shared_;
};

/* The text of a thread's place: "(3, 0, 0)". */
std::string text_of(const uint3 &at);
} // namespace sim
