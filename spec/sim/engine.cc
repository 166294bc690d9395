/* The scheduler of a block. A thread that waits or ends picks the next thread, so that a change of threads is one
 * change of stacks; a thread that ends while another has not begun lets that one begin on its own stack, so that a
 * kernel without barriers changes stacks once a block. */
#include "engine.h"

#include <algorithm>
#include <memory>
#include <stdarg.h>
#include <stdio.h>

namespace sim
{
AH_SIM_CONSTANT thread_local Here here AH_SIM_TLS = {};

enum { ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };

static const char *const meeting_names[] = {
    "__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count",
    "__syncwarp",    "__ballot_sync",    "__any_sync",        "__all_sync",
    "__shfl_sync",   "__shfl_up_sync",   "__shfl_down_sync",  "__shfl_xor_sync",
    "a load of matrices", "ah_mma"};

std::string text_of(const uint3 &at)
{
    char text[64];
    snprintf(text, sizeof text, "(%u, %u, %u)", at.x, at.y, at.z);
    return text;
}

/* A failing thread's stack is abandoned without unwinding: texts for `fail` own no memory. */
struct Text {
    char at[256];
};

static const char *file_of(const Site &site)
{
    const char *slash = strrchr(site.file, '/');
    return slash ? slash + 1 : site.file;
}

static Text doing(const Lane &lane)
{
    Text text;
    int used = snprintf(text.at, sizeof text.at, "thread (%u, %u, %u)", lane.at.x, lane.at.y, lane.at.z);
    char *rest = text.at + used;
    size_t room = sizeof text.at - (size_t)used;
    if (lane.state == Lane::DONE)
        snprintf(rest, room, ", which has ended");
    else if (lane.state == Lane::READY)
        snprintf(rest, room, ", which runs");
    else if (lane.kind >= SYNC_WARP)
        snprintf(rest, room, " at %s (mask 0x%08x) of %s:%d", meeting_names[lane.kind], lane.mask, file_of(lane.site),
                 lane.site.line);
    else
        snprintf(rest, room, " at %s of %s:%d", meeting_names[lane.kind], file_of(lane.site), lane.site.line);
    return text;
}

Engine::Engine()
{
    fiber_adopt_thread(&main_);
    ready_.reserve(MAX_BLOCK);
}

Engine::~Engine()
{
    for (Fiber *fiber : fibers_)
        fiber_free(fiber);
}

Engine &Engine::mine()
{
    /* A pointer: thread-local objects of a library with initial-exec variables have to be small. */
    static thread_local std::unique_ptr<Engine> engine;
    if (!engine)
        engine.reset(new Engine);
    return *engine;
}

void Engine::fail(int code, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    failure_->code = code;
    failure_->text = std::string("kernel ") + launch_->kernel->name + ", block " + text_of(here.block) + ", thread " +
                     text_of(here.thread) + ": " + text;
    fiber_abandon(&main_);
}

/* The order. */

static bool later(const Lane *a, const Lane *b)
{
    return a->rank > b->rank;
}

void Engine::make_ready(Lane *lane)
{
    lane->state = Lane::READY;
    ready_.push_back(lane);
    if (launch_->order != Launch::DRAWN)
        std::push_heap(ready_.begin(), ready_.end(), later);
}

Lane *Engine::pick()
{
    if (ready_.empty())
        return nullptr;
    if (launch_->order == Launch::DRAWN)
        std::swap(ready_[random_.below((unsigned)ready_.size())], ready_.back());
    else
        std::pop_heap(ready_.begin(), ready_.end(), later);
    Lane *lane = ready_.back();
    ready_.pop_back();
    return lane;
}

/* Warps one after another, and lanes within them. */
static void rank_lanes(Lane *lanes, unsigned count, bool reversed, Random &random)
{
    Walk warps((count + WARP - 1) / WARP, random);
    for (unsigned base = 0; base < count; base += WARP) {
        unsigned warp = (unsigned)warps.next(), size = std::min(count - base, (unsigned)WARP);
        Walk order(size, random);
        for (unsigned i = 0; i < size; i++)
            lanes[base + i].rank = warp * WARP + (unsigned)order.next();
    }
    for (unsigned i = 0; reversed && i < count; i++)
        lanes[i].rank = ~lanes[i].rank;
}

/* Changing threads. */

void Engine::resume(Lane *lane)
{
    lane_ = lane;
    here.thread = lane->at;
}

Fiber *Engine::take_fiber()
{
    if (idle_.empty()) {
        Fiber *fiber = fiber_new(entry);
        if (!fiber)
            fail(LAUNCH_FAILED, "the simulator has no memory for another stack");
        fibers_.push_back(fiber);
        return fiber;
    }
    Fiber *fiber = idle_.back();
    idle_.pop_back();
    return fiber;
}

/* The running thread is registered as waiting; another runs until it is resumed. */
void Engine::wait()
{
    Lane *me = lane_, *next = pick();
    if (!next)
        fail_stuck();
    if (next == me)
        return;
    Fiber *self = fiber_;
    me->fiber = self;
    resume(next);
    fiber_ = next->fiber ? next->fiber : take_fiber();
    fiber_switch(self, fiber_);
}

void Engine::entry()
{
    Engine &engine = *here.engine;
    fiber_arrived(engine.fiber_);
    engine.run_threads();
}

/* Run, in a fiber, threads that have not begun, one after another. */
void Engine::run_threads()
{
    for (;;) {
        launch_->kernel->run(launch_->arguments);
        ended(lane_);
        Lane *next = pick();
        if (next && !next->fiber) {
            resume(next);
            continue;
        }
        if (!next && done_ < count_)
            fail_stuck();
        Fiber *self = fiber_;
        idle_.push_back(self);
        if (next) {
            resume(next);
            fiber_ = next->fiber;
            fiber_switch(self, fiber_);
        } else {
            fiber_switch(self, &main_);
        }
    }
}

void Engine::ended(Lane *lane)
{
    lane->state = Lane::DONE;
    done_++;
    if (at_barrier_) {
        const Lane *other = std::find_if(lanes_, lanes_ + count_, [](const Lane &l) {
            return l.state == Lane::AT_BARRIER;
        });
        fail(LAUNCH_FAILED, "ended without a barrier that others wait at: %s", doing(*other).at);
    }
}

void Engine::fail_stuck()
{
    for (unsigned i = 0; i < count_; i++) {
        if (lanes_[i].state != Lane::AT_WARP)
            continue;
        unsigned base = i / WARP * WARP;
        for (unsigned k = base; k < base + WARP && k < count_; k++) {
            const Lane &other = lanes_[k];
            bool comes = other.state == Lane::AT_WARP && other.kind == lanes_[i].kind && other.mask == lanes_[i].mask;
            if (lanes_[i].mask >> (k - base) & 1 && !comes)
                fail(LAUNCH_FAILED, "threads wait for each other: %s waits for %s", doing(lanes_[i]).at,
                     doing(other).at);
        }
    }
    fail(LAUNCH_FAILED, "threads wait for each other");
}

/* Barriers of the block. */

uint64_t Engine::at_barrier(Meeting kind, int vote, Site site)
{
    Lane *me = lane_;
    me->state = Lane::AT_BARRIER;
    me->kind = kind;
    me->site = site;
    me->value = (uint64_t)(vote != 0);
    at_barrier_++;
    for (unsigned i = 0; done_ && i < count_; i++)
        if (lanes_[i].state == Lane::DONE)
            fail(LAUNCH_FAILED, "a barrier that not all threads reach: %s, but not %s", doing(*me).at,
                 doing(lanes_[i]).at);
    if (at_barrier_ == count_)
        release_barrier();
    wait();
    return me->result;
}

void Engine::release_barrier()
{
    unsigned votes = 0;
    for (unsigned i = 0; i < count_; i++) {
        const Lane &lane = lanes_[i], &first = lanes_[0];
        if (lane.kind != first.kind || lane.site.line != first.site.line || lane.site.file != first.site.file)
            fail(LAUNCH_FAILED, "threads are at different barriers: %s, %s", doing(first).at,
                 doing(lane).at);
        votes += (unsigned)lane.value;
    }
    at_barrier_ = 0;
    for (unsigned i = 0; i < count_; i++) {
        Lane &lane = lanes_[i];
        lane.result = lane.kind == SYNC_THREADS_OR    ? votes > 0
                      : lane.kind == SYNC_THREADS_AND ? votes == count_
                                                      : votes;
        make_ready(&lane);
    }
}

/* Meetings of a warp. */

void Engine::together(Meeting kind, void (*act)(void *const *lanes), void *mine, Site site)
{
    lane_->together = act;
    at_warp(kind, 0xffffffff, (uint64_t)(uintptr_t)mine, 0, 32, site);
}

bool Engine::chance()
{
    return launch_->order == Launch::DRAWN ? random_.below(2) : launch_->order == Launch::FORWARD;
}

uint64_t Engine::at_warp(Meeting kind, unsigned mask, uint64_t value, int argument, int width, Site site)
{
    Lane *me = lane_;
    unsigned base = me->index / WARP * WARP, lane = me->index - base;
    me->state = Lane::AT_WARP;
    me->kind = kind;
    me->mask = mask;
    me->site = site;
    me->value = value;
    me->argument = argument;
    me->width = width;
    if (!(mask >> lane & 1))
        fail(LAUNCH_FAILED, "the mask does not name the lane %u that calls: %s", lane, doing(*me).at);
    if (width < 1 || width > WARP || (width & (width - 1)))
        fail(LAUNCH_FAILED, "the width is not a power of two up to 32: %d", width);
    /* Missing lanes may still arrive, mostly; ended and nonexistent ones are searched for by the first that waits
     * and whenever a thread of the block has ended. */
    unsigned &met = met_[me->index / WARP], before = met;
    met |= 1u << lane;
    bool all = (met & mask) == mask;
    for (unsigned i = 0; i < WARP && (all || !before || done_); i++) {
        if (!(mask >> i & 1))
            continue;
        const Lane &other = lanes_[base + i];
        if (base + i >= count_)
            fail(LAUNCH_FAILED, "the mask names lane %u, which the block does not have: %s", i, doing(*me).at);
        if (other.state == Lane::DONE)
            fail(LAUNCH_FAILED, "the mask names lane %u, which has ended: %s", i, doing(*me).at);
        all = all && other.state == Lane::AT_WARP && other.kind == kind && other.mask == mask;
    }
    if (all)
        finish_warp(&lanes_[base]);
    wait();
    return me->result;
}

static uint64_t shuffled(const Lane *warp, unsigned lane)
{
    const Lane &me = warp[lane];
    int width = me.width, start = (int)lane / width * width, from = (int)lane;
    switch (me.kind) {
    case SHUFFLE:
        from = start + (me.argument & (width - 1));
        break;
    case SHUFFLE_UP:
        from = (int)lane - me.argument < start ? (int)lane : (int)lane - me.argument;
        break;
    case SHUFFLE_DOWN:
        from = (int)lane + me.argument >= start + width ? (int)lane : (int)lane + me.argument;
        break;
    default:
        from = ((int)lane ^ me.argument) >= start + width ? (int)lane : (int)lane ^ me.argument;
    }
    return me.mask >> (from & 31) & 1 ? warp[from & 31].value : ~(uint64_t)0;
}

void Engine::run_together(const Lane *warp)
{
    void *brought[WARP];
    for (unsigned i = 0; i < WARP; i++) {
        if (warp[i].together != warp[0].together)
            fail(LAUNCH_FAILED, "the lanes of a warp are at different products or loads: %s, %s", doing(warp[0]).at,
                 doing(warp[i]).at);
        brought[i] = reinterpret_cast<void *>((uintptr_t)warp[i].value);
    }
    warp[0].together(brought);
}

void Engine::finish_warp(Lane *warp)
{
    unsigned mask = lane_->mask, votes = 0;
    Meeting kind = lane_->kind;
    if (kind >= MATRIX_LOAD)
        run_together(warp);
    for (unsigned i = 0; i < WARP; i++)
        votes |= mask >> i & 1 ? (unsigned)(warp[i].value & 1) << i : 0;
    for (unsigned i = 0; i < WARP; i++) {
        if (!(mask >> i & 1))
            continue;
        warp[i].result = kind == BALLOT ? votes
                         : kind == ANY  ? votes != 0
                         : kind == ALL  ? votes == mask
                         : kind == SYNC_WARP ? 0
                                             : shuffled(warp, i);
    }
    met_[warp->index / WARP] &= ~mask;
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1)
            make_ready(&warp[i]);
}

/* Blocks. */

bool Engine::run_block()
{
    done_ = at_barrier_ = 0;
    ready_.clear();
    std::fill(met_, met_ + MAX_BLOCK / WARP, 0);
    for (unsigned i = 0; i < count_; i++)
        lanes_[i].fiber = nullptr;
    if (launch_->order != Launch::DRAWN)
        rank_lanes(lanes_, count_, launch_->order == Launch::REVERSED, random_);
    for (unsigned i = 0; i < count_; i++)
        make_ready(&lanes_[i]);
    shared_.begin(launch_->dynamic_bytes);
    fiber_ = take_fiber();
    resume(pick());
    fiber_switch(&main_, fiber_);
    if (failure_->code) {
        idle_.clear();
        for (Fiber *fiber : fibers_) {
            fiber_reset(fiber, entry);
            idle_.push_back(fiber);
        }
        return false;
    }
    std::string broken;
    if (shared_.end(&broken))
        return true;
    failure_->code = ILLEGAL_ADDRESS;
    failure_->text = std::string("kernel ") + launch_->kernel->name + ", block " + text_of(here.block) +
                     ": shared memory was written " + broken;
    return false;
}

bool Engine::run(const Launch &launch, Failure *failure)
{
    launch_ = &launch;
    failure_ = failure;
    random_.seed(launch.seed);
    here.engine = this;
    here.block_dim = launch.block;
    here.grid_dim = launch.grid;
    uint64_t blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    Walk walk(blocks, random_);
    if (launch.order == Launch::REVERSED)
        walk.reverse();
    dim3 size = launch.block;
    count_ = size.x * size.y * size.z;
    for (unsigned i = 0; i < count_; i++) {
        lanes_[i].at = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        lanes_[i].index = i;
    }
    bool fine = true;
    for (uint64_t i = 0; fine && i < blocks; i++) {
        uint64_t block = walk.next();
        here.block = {(unsigned)(block % launch.grid.x), (unsigned)(block / launch.grid.x % launch.grid.y),
                      (unsigned)(block / launch.grid.x / launch.grid.y)};
        if (launch.order != Launch::DRAWN)
            random_.seed(launch.seed + block);
        fine = run_block();
    }
    here.engine = nullptr;
    return fine;
}

/* Functions that kernels call. */

int meet_block(Meeting kind, int vote, Site site)
{
    return (int)here.engine->at_barrier(kind, vote, site);
}

uint64_t meet_warp(Meeting kind, unsigned mask, uint64_t value, int argument, int width, Site site)
{
    return here.engine->at_warp(kind, mask, value, argument, width, site);
}

void meet_together(Meeting kind, void (*together)(void *const *lanes), void *mine, Site site)
{
    here.engine->together(kind, together, mine, site);
}

bool chance()
{
    return here.engine->chance();
}

void too_many_copies(int most)
{
    here.engine->fail(LAUNCH_FAILED, "more than %d copies of one thread on their way to shared memory", most);
}

void *shared_object(const Shared_site *site, size_t bytes, size_t alignment)
{
    void *object = here.engine->shared().object(site, bytes, alignment);
    if (!object)
        here.engine->fail(LAUNCH_FAILED, "more shared memory than a block has (%d bytes static, %d in all) at %s of %s",
                          STATIC_LIMIT, SHARED_LIMIT, site->name, file_of(site->site));
    return object;
}

void *shared_dynamic(size_t alignment)
{
    return here.engine->shared().dynamic();
}

void misaligned(const void *address)
{
    here.engine->fail(MISALIGNED_ADDRESS, "an access that is not aligned, at %p", address);
}
} // namespace sim
