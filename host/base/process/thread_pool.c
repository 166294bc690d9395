/* A region's pieces are divided into homes, one for each thread: consecutive pieces that the thread begins in order,
 * so that it works on the same part of the data in each region. A thread without pieces in its home begins those of
 * others. A home is one word, the generation of the region and the pieces begun; a word of an earlier generation means
 * that no piece has been begun. As a region ends after all its pieces, no thread that was late can begin one. */
#include "base/process/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/relax.h"
#include "base/process/threads.h"
#include "base/trace/time.h"

enum {
    SPIN_NS = 100000,           /* a waiting thread polls this long before it sleeps */
    POLLS = 32,                 /* between two readings of the clock */
    PREEMPTED_NS = 30000,       /* between two readings: the system ran another thread here */
    DEBT_NS = 100000,           /* the threads cost this much more than they saved: the caller rests them */
    CREDIT_NS = 1000000,        /* the part of their savings that counts against later costs */
    SHORTEST_REST_NS = 4000000,
    LONGEST_REST_NS = 256000000,
    MOVED_NS = 500000,          /* a thread that needs longer to move to another processor has found it busy: */
    STAY_NS = 50000000,         /* it does not try again for this long */
    LOSS_SHARE = 24,            /* where they have not paid: least length of a rest, in times of the debt before it */
    PROBE_NS = 10000000,        /* after such a rest threads poll for longer than a turn of the scheduler (4 or 8 ms) */
    PROBE_LOST_NS = 1000000,    /* their processors are free if they were preempted for less than this, ... */
    PROBE_WAIT_NS = 12000000,   /* ... and have reported that in this time */
    ANY_CPU = -2,               /* -1: sched_getcpu has failed */
};

struct region {
    uint32_t generation;
    int pieces, homes;
};

/* Members on separate cache lines are written by one thread while others read. Storing `region` publishes the members
 * from `fn` to `open`, so the caller's stores of those are plain or relaxed; the workers' subtractions from `open`
 * release the results of their pieces to the caller, which acquires its 0. Who sleeps (`sleepers`, `caller_sleeps`) and
 * the word that it sleeps on are sequentially consistent, as in comm/control/group_block.c. */
static struct {
    _Alignas(64) _Atomic uint64_t region; /* generation 32 bits | pieces 16 | homes 16 */
    ah_piece_fn fn;
    void *context;
    atomic_int width;                    /* threads that may take part, the caller included */
    atomic_int caller_cpu;                /* its processor at the start of the region; or ANY_CPU */
    _Alignas(64) _Atomic uint32_t open;  /* pieces that have not ended */
    atomic_bool caller_sleeps;
    _Alignas(64) _Atomic uint32_t alarm; /* counts wake-ups; idle threads sleep on it */
    atomic_int sleepers;
    _Atomic uint32_t probe;              /* counts probes of the threads' processors */
    atomic_int found_free;               /* by the last probe */
    int started;                         /* threads, the caller included; 0 before the first region */
    atomic_flag running;                 /* one region at a time */
} pool = {.running = ATOMIC_FLAG_INIT};

static struct {
    _Alignas(64) _Atomic uint64_t begun; /* generation 32 bits | pieces begun 32 */
} home[AH_MOST_THREADS];

/* When the threads pay. Of the thread that has the region. */
static struct {
    int64_t until, length;
    enum { PROBE_NONE, PROBE_DUE, PROBE_RUNS } probe; /* after `until` */
    int64_t balance;     /* ns that the threads saved, less those that they cost, at most CREDIT_NS */
    int64_t saved, lost; /* ns since the last rest */
} rest;

static struct {
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint round;
} barrier;

static _Thread_local struct {
    int index, piece, pieces; /* pieces: 0 outside regions */
    bool divided;             /* a region of several pieces runs: those within it are not divided */
} self;

int ah_thread_index(void)
{
    return self.index;
}

int ah_region_piece(void)
{
    return self.piece;
}

int ah_region_pieces(void)
{
    return self.pieces ? self.pieces : 1;
}

bool ah_region_is_divided(void)
{
    return self.divided;
}

static void pool_sleep(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void pool_wake(_Atomic uint32_t *word, int threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static struct region pool_region(void)
{
    uint64_t word = atomic_load(&pool.region);
    return (struct region){(uint32_t)(word >> 32), (int)(word >> 16 & 0xffff), (int)(word & 0xffff)};
}

/* Begin the next piece of home `h`; false where all have been begun. */
static bool home_claim(struct region region, int h, int *piece)
{
    int first = region.pieces * h / region.homes, count = region.pieces * (h + 1) / region.homes - first;
    uint64_t word = atomic_load_explicit(&home[h].begun, memory_order_acquire), claimed; /* the exchange decides */
    do {
        int32_t age = (int32_t)(region.generation - (uint32_t)(word >> 32));
        int next = age > 0 ? 0 : (int)(uint32_t)word;
        if (age < 0 || next >= count)
            return false;
        *piece = first + next;
        claimed = (uint64_t)region.generation << 32 | (uint64_t)(next + 1);
    } while (!atomic_compare_exchange_weak(&home[h].begun, &word, claimed));
    return true;
}

static void run_piece(ah_piece_fn fn, void *context, int piece, int pieces)
{
    int outer_piece = self.piece, outer_pieces = self.pieces;
    bool outer_divided = self.divided;
    self.piece = piece;
    self.pieces = pieces;
    self.divided = outer_divided || pieces > 1;
    fn(context, piece);
    self.piece = outer_piece;
    self.pieces = outer_pieces;
    self.divided = outer_divided;
}

/* Run pieces of the region, first those of the own home, until all have been begun; returns their number and the ns of
 * the shortest. The last piece of all to end wakes the caller. */
static int run_pieces(struct region region, int homes, int64_t *shortest)
{
    int ran = 0, piece;
    int64_t before = ah_now_ns();
    *shortest = INT64_MAX;
    for (int i = 0; i < homes; i++) {
        int h = (self.index + i) % region.homes;
        for (; home_claim(region, h, &piece); ran++) {
            run_piece(pool.fn, pool.context, piece, region.pieces);
            if (atomic_fetch_sub(&pool.open, 1) == 1 && atomic_load(&pool.caller_sleeps))
                pool_wake(&pool.open, 1);
            int64_t now = ah_now_ns();
            *shortest = now - before < *shortest ? now - before : *shortest;
            before = now;
        }
    }
    return ran;
}

static bool worker_sees_region(uint32_t last)
{
    return pool_region().generation != last && self.index < atomic_load(&pool.width);
}

static bool worker_sees_probe(uint32_t last)
{
    return atomic_load(&pool.probe) != last && self.index < atomic_load(&pool.width);
}

/* Poll for a region or a probe after the last ones. False: none has started, or the system runs other programs on this
 * processor. */
static bool worker_poll(uint32_t last, uint32_t last_probe)
{
    int64_t begin = ah_now_ns(), before = begin;
    while (self.index < atomic_load_explicit(&pool.width, memory_order_relaxed)) {
        for (int i = 0; i < POLLS; i++) {
            if (worker_sees_region(last) || worker_sees_probe(last_probe))
                return true;
            ah_relax();
        }
        int64_t now = ah_now_ns();
        if (now - begin > SPIN_NS || now - before > PREEMPTED_NS)
            return false;
        before = now;
    }
    return false;
}

static void worker_sleep(uint32_t last, uint32_t last_probe)
{
    atomic_fetch_add(&pool.sleepers, 1);
    uint32_t seen = atomic_load(&pool.alarm);
    if (!worker_sees_region(last) && !worker_sees_probe(last_probe))
        pool_sleep(&pool.alarm, seen);
    atomic_fetch_sub(&pool.sleepers, 1);
}

/* Move to another processor than the caller's. The system wakes a thread where it ran last, without a search for an
 * idle processor where a cache has two of them and one is busy (Linux 6.18): the thread would wait behind the caller in
 * each region. False if the others are busy, too. */
static bool worker_leave(int cpu)
{
    static _Thread_local int64_t stays_until;
    int64_t begin = ah_now_ns();
    if (begin < stays_until || !ah_affinity_leave(cpu))
        return false;
    int64_t now = ah_now_ns();
    if (now - begin < MOVED_NS)
        return true;
    stays_until = now + STAY_NS;
    return false;
}

/* Is this thread on another processor than the caller's, if need be after a move? */
static bool worker_is_apart(void)
{
    int caller_cpu = atomic_load_explicit(&pool.caller_cpu, memory_order_relaxed);
    return sched_getcpu() != caller_cpu || worker_leave(caller_cpu);
}

/* Poll, to find out whether other programs use this processor: without a piece, so that the caller does not wait. */
static void worker_probe(uint32_t last)
{
    uint32_t probe = atomic_load(&pool.probe);
    int64_t begin = ah_now_ns(), before = begin, now = begin, lost = 0;
    if (!worker_is_apart())
        return;
    for (; now - begin < PROBE_NS && lost < PROBE_LOST_NS; before = now) {
        for (int i = 0; i < POLLS; i++)
            ah_relax();
        if (worker_sees_region(last))
            return;
        now = ah_now_ns();
        lost += now - before > PREEMPTED_NS ? now - before : 0;
    }
    if (lost < PROBE_LOST_NS && probe == atomic_load(&pool.probe))
        atomic_fetch_add(&pool.found_free, 1);
}

static void *worker_run(void *index)
{
    uint32_t last = 0, last_probe = 0;
    int64_t shortest;
    self.index = (int)(intptr_t)index;
    ah_affinity_bind(self.index);
    for (;;) {
        if (!worker_poll(last, last_probe))
            worker_sleep(last, last_probe);
        if (worker_sees_region(last)) {
            struct region region = pool_region();
            last = region.generation;
            if (worker_is_apart())
                run_pieces(region, region.homes, &shortest);
            else
                worker_sleep(last, last_probe); /* it would run in place of the caller */
        } else if (worker_sees_probe(last_probe)) {
            last_probe = atomic_load(&pool.probe);
            worker_probe(last);
        }
    }
    return NULL;
}

/* A child of fork() has the calling thread alone. */
static void pool_forget(void)
{
    pool.started = 0;
    rest.probe = PROBE_NONE;
    atomic_store(&pool.sleepers, 0);
    atomic_flag_clear(&pool.running);
    self.index = 0;
}

/* Start the threads that are missing; where the system refuses one, those that there are. */
static void pool_start(int threads)
{
    static bool registered;
    if (!registered)
        registered = !pthread_atfork(NULL, NULL, pool_forget);
    if (pool.started == 0)
        pool.started = 1;
    while (pool.started < threads) {
        pthread_t thread;
        if (ah_helper_start(&thread, worker_run, (void *)(intptr_t)pool.started))
            break;
        pthread_detach(thread);
        pool.started++;
    }
    atomic_store_explicit(&pool.width, threads < pool.started ? threads : pool.started, memory_order_relaxed);
}

static void pool_set_caller(int cpu)
{
    atomic_store_explicit(&pool.caller_cpu, cpu < 0 ? ANY_CPU : cpu, memory_order_relaxed);
}

/* Wake `threads` of those that sleep, if any. */
static void pool_alarm(int threads)
{
    if (atomic_load(&pool.sleepers) > 0) {
        atomic_fetch_add(&pool.alarm, 1);
        pool_wake(&pool.alarm, threads);
    }
}

static struct region pool_publish(int pieces, int homes, ah_piece_fn fn, void *context, int cpu)
{
    struct region region = {pool_region().generation + 1, pieces, homes < pieces ? homes : pieces};
    region.generation += region.generation == 0; /* a thread that has seen none has seen 0 */
    pool.fn = fn;
    pool.context = context;
    pool_set_caller(cpu);
    atomic_store_explicit(&pool.open, (uint32_t)pieces, memory_order_relaxed);
    atomic_store(&pool.region,
                 (uint64_t)region.generation << 32 | (uint64_t)pieces << 16 | (uint64_t)region.homes);
    pool_alarm(pool.started > atomic_load(&pool.width) ? pool.started : region.homes - 1);
    return region;
}

/* Wait until the last piece has ended. */
static void pool_wait(void)
{
    int64_t begin = 0;
    while (atomic_load_explicit(&pool.open, memory_order_acquire)) {
        for (int i = 0; i < POLLS && atomic_load_explicit(&pool.open, memory_order_acquire); i++)
            ah_relax();
        int64_t now = ah_now_ns();
        begin = begin ? begin : now;
        if (now - begin < SPIN_NS / 2)
            continue;
        atomic_store(&pool.caller_sleeps, true);
        for (uint32_t open; (open = atomic_load(&pool.open));)
            pool_sleep(&pool.open, open);
        atomic_store(&pool.caller_sleeps, false);
    }
}

static void rest_begin(int64_t length, int64_t least)
{
    rest.length = length < SHORTEST_REST_NS ? SHORTEST_REST_NS : length;
    rest.length = rest.length > LONGEST_REST_NS ? LONGEST_REST_NS : rest.length;
    rest.until = ah_now_ns() + (rest.length > least ? rest.length : least);
}

/* Account for a region in which other threads ran `others` pieces of `piece` ns, after the caller had needed `woke` ns
 * to wake them, and `waited` ns for their end. Pieces are not of one size, so a wait for one more is no loss. A quarter
 * of the saved time counts: on a busy machine caches are cold, pieces slow, and the time seems longer. */
static void rest_account(int others, int64_t piece, int64_t woke, int64_t waited)
{
    int64_t saved = others * piece / 4, lost = woke + (waited > piece ? waited - piece : 0);
    rest.saved += saved;
    rest.lost += lost;
    rest.balance += saved - lost;
    if (rest.balance > CREDIT_NS)
        rest.balance = CREDIT_NS;
    if (rest.balance > -DEBT_NS)
        return;
    bool paid = rest.saved > 2 * rest.lost; /* since the last rest: an exception, not a busy machine */
    rest_begin(paid ? rest.length / 2 : 2 * rest.length, paid ? 0 : LOSS_SHARE * -rest.balance);
    rest.probe = paid ? PROBE_NONE : PROBE_DUE;
    rest.saved = rest.lost = rest.balance = 0;
}

/* After a rest in which the threads had not paid: have them find out whether their processors are free, and rest on
 * while they are not. Returns false as long as the caller should run alone. */
static bool rest_has_ended(int64_t now)
{
    if (now < rest.until)
        return false;
    if (rest.probe == PROBE_NONE)
        return true;
    if (rest.probe == PROBE_DUE) {
        rest.probe = PROBE_RUNS;
        rest.until = now + PROBE_WAIT_NS;
        pool_set_caller(sched_getcpu());
        atomic_store(&pool.found_free, 0);
        atomic_fetch_add(&pool.probe, 1);
        pool_alarm(pool.started);
        return false;
    }
    rest.probe = PROBE_NONE;
    if (2 * atomic_load(&pool.found_free) >= atomic_load(&pool.width) - 1)
        return true;
    rest_begin(2 * rest.length, 0);
    rest.probe = PROBE_DUE;
    return false;
}

static void run_alone(int pieces, ah_piece_fn fn, void *context)
{
    for (int piece = 0; piece < pieces; piece++)
        run_piece(fn, context, piece, pieces);
}

void ah_pool_run(int pieces, ah_piece_fn fn, void *context)
{
    int threads = ah_num_threads();
    if (pieces <= 1 || threads <= 1 || self.divided || atomic_flag_test_and_set(&pool.running)) {
        run_alone(pieces, fn, context);
        return;
    }
    int64_t begin = ah_now_ns();
    if (!rest_has_ended(begin)) {
        run_alone(pieces, fn, context);
    } else {
        pool_start(threads);
        struct region region = pool_publish(pieces, threads, fn, context, sched_getcpu());
        int64_t published = ah_now_ns(), piece;
        int own = run_pieces(region, region.homes, &piece);
        int64_t ran = ah_now_ns();
        pool_wait();
        if (own > 0)
            rest_account(pieces - own, piece, published - begin, ah_now_ns() - ran);
    }
    atomic_flag_clear(&pool.running);
}

void ah_pool_run_team(int members, ah_piece_fn fn, void *context)
{
    int threads = ah_num_threads();
    members = members < threads ? members : threads;
    if (members <= 1 || self.divided) {
        run_alone(1, fn, context);
        return;
    }
    while (atomic_flag_test_and_set(&pool.running))
        sched_yield();
    pool_start(threads);
    members = members < pool.started ? members : pool.started;
    atomic_store(&barrier.arrived, 0);
    int64_t shortest;
    run_pieces(pool_publish(members, members, fn, context, ANY_CPU), 1, &shortest);
    pool_wait();
    atomic_flag_clear(&pool.running);
}

void ah_team_barrier(void)
{
    unsigned round = atomic_load(&barrier.round);
    if (atomic_fetch_add(&barrier.arrived, 1) + 1 == ah_region_pieces()) {
        atomic_store(&barrier.arrived, 0);
        atomic_fetch_add(&barrier.round, 1);
        return;
    }
    for (int i = 0; atomic_load(&barrier.round) == round; i++)
        if (i < 4 * POLLS)
            ah_relax();
        else
            sched_yield();
}
