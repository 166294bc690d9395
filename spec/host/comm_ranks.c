#include "comm_ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autograd/graph/graph.h"
#include "base/process/threads.h"
#include "comm/control/replay_log.h"
#include "cpu/device.h"

#if defined(__SANITIZE_THREAD__)
enum { THREADS = 1 };
#else
enum { THREADS = 0 };
#endif

static const struct {
    const char *name;
    int hosts;
} backends[] = {{"shm", 1}, {"keep", 1}, {"socket", 1}, {"spread", 2}, {"spread", 3}};
/* Of the run that is on. */
static const struct ah_backend *backend;
static atomic_int *marks;
static struct ah_hosts hosts[AH_HOSTS_MAX]; /* as each of them sees them */
static struct ah_control_block *controls[AH_HOSTS_MAX];

static struct ah_control_block *control_of(int rank)
{
    return controls[ah_hosts_of(&hosts[0], rank)];
}

static void run_one(struct ah_control_block *control, int rank, int64_t timeout_ns, void (*body)(struct rank *),
                    int *failures)
{
    struct rank me = {.rank = rank, .size = control->size, .where = "?", .control = control, .marks = marks,
                      .hosts = control->hosts};
    struct ah_seat seat = {.control = control, .rank = rank, .size = control->size, .timeout_ns = timeout_ns};
    ah_set_num_threads(1); /* threads have no business in the pool, and forks lost its threads */
    if (ah_group_open(&me.group, backend, &seat)) {
        fprintf(stderr, "rank %d: no group: %s\n", rank, ah_error_text());
        *failures = 1;
        return;
    }
    body(&me);
    ah_control_leave(control, rank, AH_RANK_ENDED, NULL, false);
    ah_group_close(me.group);
    *failures = me.failures;
}

struct thread_rank {
    struct ah_control_block *control;
    int rank, failures;
    int64_t timeout_ns;
    void (*body)(struct rank *);
};

static void *thread_main(void *context)
{
    struct thread_rank *t = context;
    run_one(t->control, t->rank, t->timeout_ns, t->body, &t->failures);
    return NULL;
}

static bool run_threads(int size, int64_t timeout_ns, void (*body)(struct rank *))
{
    struct thread_rank at[AH_MAX_RANKS];
    pthread_t thread[AH_MAX_RANKS];
    bool good = true;
    for (int r = 0; r < size; r++) {
        at[r] = (struct thread_rank){control_of(r), r, 0, timeout_ns, body};
        pthread_create(&thread[r], NULL, thread_main, &at[r]);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(thread[r], NULL);
        good &= !at[r].failures;
    }
    return good;
}

static bool run_forked(int size, int64_t timeout_ns, unsigned mortal, void (*body)(struct rank *))
{
    pid_t pid[AH_MAX_RANKS];
    bool good = true;
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            int failures = 0;
            alarm(test_limit(60));
            atomic_store(&ah_rank_entry(control_of(r), r)->pid, (int)getpid());
            run_one(control_of(r), r, timeout_ns, body, &failures);
            _exit(failures ? 1 : 0);
        }
    }
    for (int left = size; left > 0; left--) {
        int status, r = 0;
        pid_t ended = waitpid(-1, &status, 0);
        while (r < size && pid[r] != ended)
            r++;
        if (r == size) {
            left++;
            continue;
        }
        ah_control_leave(control_of(r), r, AH_RANK_DIED, NULL, false);
        if (status && !(mortal >> r & 1)) {
            fprintf(stderr, "rank %d ended with status %x\n", r, status);
            good = false;
        }
    }
    return good;
}

/* Ranks in equal shares, as far as that goes. */
static bool make_control_blocks(int size, int count, const struct ah_store_options *place)
{
    for (int h = 0; h < count; h++) {
        hosts[h] = (struct ah_hosts){.count = count, .mine = h, .store = *place, .transport = "tcp"};
        for (int i = 0; i < count; i++) {
            hosts[h].first[i + 1] = size * (i + 1) / count;
            snprintf(hosts[h].name[i], sizeof hosts[h].name[i], "node%d", i);
        }
        if (ah_control_create(&controls[h], size) || (backend == &ah_replay_backend && ah_replay_enable(controls[h])) ||
            ah_control_map_segments(controls[h]) || (count > 1 && ah_control_place(controls[h], &hosts[h]))) {
            fprintf(stderr, "no control block: %s\n", ah_error_text());
            return false;
        }
    }
    return true;
}

/* The store is served by a separate process, so that this one has no threads when it forks. */
static pid_t serve_store(struct ah_store_options *place)
{
    struct ah_store_server *server;
    int way[2] = {-1, -1};
    pid_t pid = pipe(way) ? -1 : fork();
    if (pid == 0) {
        int port = ah_store_serve(&server, place) ? 0 : ah_store_port(server);
        alarm(test_limit(300));
        if (write(way[1], &port, sizeof port) == (ssize_t)sizeof port)
            pause();
        _exit(0);
    }
    if (pid < 0 || read(way[0], &place->port, sizeof place->port) != (ssize_t)sizeof place->port)
        place->port = 0;
    close(way[0]);
    close(way[1]);
    return pid;
}

static bool run_on_hosts(int size, int count, int64_t timeout_ns, unsigned mortal, bool fork_always,
                         void (*body)(struct rank *))
{
    struct ah_store_options place = {.secret = "a secret", .secret_bytes = 8, .generation = 1};
    void *shared = mmap(NULL, MARKS * sizeof *marks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        fprintf(stderr, "no memory for marks\n");
        return false;
    }
    marks = shared;
    pid_t store = count > 1 ? serve_store(&place) : -1;
    bool good = make_control_blocks(size, count, &place);
    if (good)
        good = THREADS && !fork_always ? run_threads(size, timeout_ns, body)
                                       : run_forked(size, timeout_ns, mortal, body);
    munmap(shared, MARKS * sizeof *marks);
    for (int h = 0; h < count; h++)
        ah_control_close(controls[h]);
    if (store > 0 && !kill(store, SIGKILL))
        waitpid(store, NULL, 0);
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
        const char *only = getenv("COMM_TEST_BACKEND");
        if (backends[i].hosts > size || (only && strcmp(only, backends[i].name)))
            continue;
        backend = ah_backend_find(backends[i].name);
        good &= run_on_hosts(size, backends[i].hosts, timeout_ns, mortal, fork_always, body);
    }
    return good;
}

bool has_messages(struct rank *me)
{
    return me->group->backend->give || me->group->backend == &ah_self_backend;
}

bool has_segments(struct rank *me)
{
    return me->group->backend != &ah_replay_backend;
}

void until_ended(struct rank *me, int rank)
{
    while (atomic_load(&ah_rank_entry(me->control, rank)->state) == AH_RANK_RUNNING)
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

bool run_hosts(int size, int count, int64_t timeout_ns, unsigned mortal, void (*body)(struct rank *))
{
    ah_cpu_open();
    ah_autograd_open();
    backend = ah_backend_find("spread");
    return run_on_hosts(size, count, timeout_ns, mortal, true, body);
}
