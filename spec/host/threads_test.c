/* The processors of a process, and their division among the ranks of a job. */
#include "base/process/threads.h"

#include <pthread.h>
#include <signal.h>

#include "test.h"

AH_TEST(threads_parts_of_the_mask_are_disjoint_and_make_up_all_of_it)
{
    int count = ah_affinity_count();
    struct ah_affinity whole, part;
    ah_affinity_part(0, 1, &whole);
    CHECK(count >= 1 && CPU_COUNT_S(sizeof whole.set, whole.set) == count);
    for (int parts = 1; parts <= count && parts < 70; parts++) {
        struct ah_affinity all = {0};
        int sum = 0;
        for (int i = 0; i < parts; i++) {
            ah_affinity_part(i, parts, &part);
            int size = CPU_COUNT_S(sizeof part.set, part.set);
            CHECK(size == count / parts || size == count / parts + 1);
            sum += size;
            CPU_OR_S(sizeof all.set, all.set, all.set, part.set);
        }
        CHECK(sum == count && CPU_EQUAL_S(sizeof all.set, all.set, whole.set));
    }
}

AH_TEST(threads_more_parts_than_processors_have_one_processor_each)
{
    struct ah_affinity part;
    int parts = ah_affinity_count() + 3;
    for (int i = 0; i < parts; i++) {
        ah_affinity_part(i, parts, &part);
        CHECK(CPU_COUNT_S(sizeof part.set, part.set) == 1);
    }
}

static void *signals_blocked(void *set)
{
    pthread_sigmask(SIG_BLOCK, NULL, set);
    return NULL;
}

AH_TEST(threads_helpers_receive_their_own_faults_and_no_signal_of_another_process)
{
    pthread_t thread;
    sigset_t blocked;
    CHECK(ah_helper_start(&thread, signals_blocked, &blocked) == 0);
    pthread_join(thread, NULL);
    CHECK(!sigismember(&blocked, SIGBUS) && !sigismember(&blocked, SIGSEGV) && !sigismember(&blocked, SIGFPE));
    CHECK(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGUSR1));
}

AH_TEST(threads_leave_a_processor_for_another_one_of_their_mask)
{
    struct ah_affinity before = {0}, after = {0}, one;
    REQUIRE(!sched_getaffinity(0, sizeof before.set, before.set));
    int moves = 0;
    for (int i = 0; i < 20; i++) {
        int cpu = sched_getcpu();
        CHECK(ah_affinity_leave(cpu) == (CPU_COUNT_S(sizeof before.set, before.set) > 1));
        moves += sched_getcpu() != cpu;
    }
    CHECK((moves > 0) == (CPU_COUNT_S(sizeof before.set, before.set) > 1));
    REQUIRE(!sched_getaffinity(0, sizeof after.set, after.set));
    CHECK(CPU_EQUAL_S(sizeof after.set, after.set, before.set));

    ah_affinity_part(0, ah_affinity_count(), &one);
    REQUIRE(!ah_affinity_set(&one));
    CHECK(!ah_affinity_leave(sched_getcpu()));
    sched_getaffinity(0, sizeof after.set, after.set);
    CHECK(CPU_EQUAL_S(sizeof after.set, after.set, one.set));
    CHECK(!ah_affinity_set(&before));
}
