#include "comm_ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autograd/graph.h"
#include "base/threads.h"
#include "cpu/device.h"

#if defined(__SANITIZE_THREAD__)
enum { THREADS = 1 };
#else
enum { THREADS = 0 };
#endif

static const char *const backends[] = {"shm", "socket"};
/* Of the run that is on. */
static const struct ah_backend *backend;
static atomic_int *marks;

static void run_one(struct ah_board *board, int rank, int64_t timeout_ns, void (*body)(struct rank *), int *failures)
{
    struct rank me = {.rank = rank, .size = board->size, .where = "?", .board = board, .marks = marks};
    struct ah_seat seat = {.board = board, .rank = rank, .size = board->size, .timeout_ns = timeout_ns};
    ah_set_num_threads(1); /* threads have no business in the pool, and forks lost its threads */
    if (ah_group_open(&me.group, backend, &seat)) {
        fprintf(stderr, "rank %d: no group: %s\n", rank, ah_error_text());
        *failures = 1;
        return;
    }
    body(&me);
    ah_board_leave(board, rank, AH_RANK_ENDED, NULL, false);
    ah_group_close(me.group);
    *failures = me.failures;
}

struct thread_rank {
    struct ah_board *board;
    int rank, failures;
    int64_t timeout_ns;
    void (*body)(struct rank *);
};

static void *thread_main(void *context)
{
    struct thread_rank *t = context;
    run_one(t->board, t->rank, t->timeout_ns, t->body, &t->failures);
    return NULL;
}

static bool run_threads(struct ah_board *board, int64_t timeout_ns, void (*body)(struct rank *))
{
    struct thread_rank at[AH_BOARD_MAX_RANKS];
    pthread_t thread[AH_BOARD_MAX_RANKS];
    bool good = true;
    for (int r = 0; r < board->size; r++) {
        at[r] = (struct thread_rank){board, r, 0, timeout_ns, body};
        pthread_create(&thread[r], NULL, thread_main, &at[r]);
    }
    for (int r = 0; r < board->size; r++) {
        pthread_join(thread[r], NULL);
        good &= !at[r].failures;
    }
    return good;
}

static bool run_forked(struct ah_board *board, int64_t timeout_ns, unsigned mortal, void (*body)(struct rank *))
{
    pid_t pid[AH_BOARD_MAX_RANKS];
    bool good = true;
    fflush(NULL);
    for (int r = 0; r < board->size; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            int failures = 0;
            alarm(60);
            atomic_store(&ah_board_slot(board, r)->pid, (int)getpid());
            run_one(board, r, timeout_ns, body, &failures);
            _exit(failures ? 1 : 0);
        }
    }
    for (int left = board->size; left > 0; left--) {
        int status, r = 0;
        pid_t ended = waitpid(-1, &status, 0);
        while (r < board->size && pid[r] != ended)
            r++;
        if (r == board->size) {
            left++;
            continue;
        }
        ah_board_leave(board, r, AH_RANK_DIED, NULL, false);
        if (status && !(mortal >> r & 1)) {
            fprintf(stderr, "rank %d ended with status %x\n", r, status);
            good = false;
        }
    }
    return good;
}

static bool run_with_board(int size, int64_t timeout_ns, unsigned mortal, bool fork_always, void (*body)(struct rank *))
{
    struct ah_board *board;
    if (ah_board_create(&board, size) || ah_board_map_segments(board)) {
        fprintf(stderr, "no board: %s\n", ah_error_text());
        return false;
    }
    void *shared = mmap(NULL, MARKS * sizeof *marks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        fprintf(stderr, "no memory for marks\n");
        ah_board_close(board);
        return false;
    }
    marks = shared;
    bool good = THREADS && !fork_always ? run_threads(board, timeout_ns, body)
                                        : run_forked(board, timeout_ns, mortal, body);
    munmap(shared, MARKS * sizeof *marks);
    ah_board_close(board);
    return good;
}

static bool run_backends(int size, int64_t timeout_ns, unsigned mortal, bool fork_always, void (*body)(struct rank *))
{
    bool good = true;
    ah_cpu_open();
    ah_autograd_open();
    if (ah_backend_register(&socket_backend))
        return false;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        backend = ah_backend_find(backends[i]);
        good &= run_with_board(size, timeout_ns, mortal, fork_always, body);
    }
    return good;
}

void until_ended(struct rank *me, int rank)
{
    while (atomic_load(&ah_board_slot(me->board, rank)->state) == AH_RANK_RUNNING)
        usleep(1000);
}

void set_mark(struct rank *me, int which)
{
    atomic_store(&me->marks[which], 1);
}

void until_marked(struct rank *me, int which)
{
    for (int ms = 0; ms < 30000 && !atomic_load(&me->marks[which]); ms++)
        usleep(1000);
}

bool run_ranks(int size, int64_t timeout_ns, void (*body)(struct rank *))
{
    return run_backends(size, timeout_ns, 0, false, body);
}

bool run_ranks_mortal(int size, int64_t timeout_ns, unsigned mortal, void (*body)(struct rank *))
{
    return run_backends(size, timeout_ns, mortal, true, body);
}
