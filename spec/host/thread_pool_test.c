/* The pool of threads: each piece runs once, on any thread, also in children of fork() and within other pieces. */
#include "base/process/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/trace/time.h"
#include "test.h"

enum { MOST = 64, THREADS = 3 };

struct runs {
    atomic_int times[MOST]; /* that each piece has run */
    atomic_int wrong;       /* pieces that saw another number than theirs, or a thread's number out of range */
    int pieces;
};

static void count_piece(void *context, int piece)
{
    struct runs *runs = context;
    atomic_fetch_add(&runs->times[piece], 1);
    if (ah_region_piece() != piece || ah_region_pieces() != runs->pieces || ah_thread_index() < 0 ||
        ah_thread_index() >= ah_num_threads())
        atomic_fetch_add(&runs->wrong, 1);
}

/* Run a region of `pieces`; true if each has run once. */
static bool runs_each_once(int pieces)
{
    struct runs runs = {.pieces = pieces};
    ah_pool_run(pieces, count_piece, &runs);
    bool once = !atomic_load(&runs.wrong);
    for (int i = 0; i < MOST; i++)
        once &= atomic_load(&runs.times[i]) == (i < pieces);
    return once;
}

AH_TEST(thread_pool_runs_each_piece_once_for_any_number_of_threads)
{
    int before = ah_num_threads(), failed = 0;
    for (int round = 0; round < 3000; round++) {
        ah_set_num_threads(1 + round / 50 % 5);
        failed += !runs_each_once(1 + round % MOST);
    }
    CHECK(failed == 0);
    ah_set_num_threads(before);
}

static void nested_piece(void *context, int piece)
{
    atomic_int *wrong = context;
    int thread = ah_thread_index();
    struct runs runs = {.pieces = 5};
    ah_pool_run(5, count_piece, &runs);
    if (!ah_region_is_divided() || ah_thread_index() != thread || ah_region_piece() != piece)
        atomic_fetch_add(wrong, 1);
    for (int i = 0; i < 5; i++)
        if (atomic_load(&runs.times[i]) != 1)
            atomic_fetch_add(wrong, 1);
}

AH_TEST(thread_pool_runs_a_region_within_a_piece_on_the_thread_of_the_piece)
{
    int before = ah_num_threads();
    atomic_int wrong = 0;
    ah_set_num_threads(THREADS);
    for (int round = 0; round < 200; round++)
        ah_pool_run(7, nested_piece, &wrong);
    CHECK(atomic_load(&wrong) == 0);
    CHECK(!ah_region_is_divided() && ah_region_pieces() == 1 && ah_thread_index() == 0);
    ah_set_num_threads(before);
}

/* Steps that a member may only do when all have done the one before. */
struct steps {
    atomic_int done, wrong;
};

static void step_member(void *context, int member)
{
    struct steps *steps = context;
    for (int step = 1; step <= 50; step++) {
        atomic_fetch_add(&steps->done, 1);
        ah_team_barrier();
        if (atomic_load(&steps->done) != step * ah_region_pieces())
            atomic_fetch_add(&steps->wrong, 1);
        ah_team_barrier();
    }
}

AH_TEST(thread_pool_runs_the_members_of_a_team_at_the_same_time)
{
    int before = ah_num_threads();
    ah_set_num_threads(THREADS);
    for (int round = 0; round < 20; round++) {
        struct steps steps = {0};
        ah_pool_run_team(THREADS + round % 2, step_member, &steps);
        CHECK(atomic_load(&steps.wrong) == 0 && atomic_load(&steps.done) == 50 * THREADS);
    }
    ah_set_num_threads(before);
}

static void *run_elsewhere(void *context)
{
    atomic_int *failed = context;
    for (int round = 0; round < 500; round++)
        if (!runs_each_once(1 + round % MOST))
            atomic_fetch_add(failed, 1);
    return NULL;
}

AH_TEST(thread_pool_serves_several_threads_that_have_regions_at_the_same_time)
{
    int before = ah_num_threads();
    atomic_int failed = 0;
    pthread_t other;
    ah_set_num_threads(THREADS);
    REQUIRE(!ah_helper_start(&other, run_elsewhere, &failed));
    run_elsewhere(&failed);
    pthread_join(other, NULL);
    CHECK(atomic_load(&failed) == 0);
    ah_set_num_threads(before);
}

AH_TEST(thread_pool_works_in_a_child_of_fork)
{
    int before = ah_num_threads(), status = 0;
    ah_set_num_threads(THREADS);
    runs_each_once(MOST);
    pid_t child = fork();
    if (child == 0) {
        bool fine = runs_each_once(MOST);
        _exit(fine ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(runs_each_once(MOST));
    ah_set_num_threads(before);
}

AH_TEST(thread_pool_runs_each_piece_once_while_other_programs_use_the_processors)
{
    int before = ah_num_threads(), failed = 0, programs = ah_cpu_count() < 8 ? ah_cpu_count() : 8;
    pid_t busy[8];
    ah_set_num_threads(THREADS);
    for (int i = 0; i < programs; i++)
        if ((busy[i] = fork()) == 0)
            for (volatile long turn = 0;; turn++)
                ;
    for (int64_t end = ah_now_ns() + 500000000; ah_now_ns() < end;)
        failed += !runs_each_once(MOST);
    for (int i = 0; i < programs; i++) {
        kill(busy[i], SIGKILL);
        waitpid(busy[i], NULL, 0);
    }
    CHECK(failed == 0);
    ah_set_num_threads(before);
}
