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
