/* Invariant: of each socket pair only the two communicating processes hold an end, so that the end of either is seen by
 * the other at once; a forked process closes its descriptors of the workers before it. */
#include "data/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/status/status.h"
#include "base/trace/time.h"

enum { END_MS = 1000 }; /* milliseconds for a worker to end by itself */

struct slot {
    int file;
    unsigned char *bytes;
    size_t mapped;
};

struct answer {
    uint64_t slot, count;
};

struct ah_worker {
    struct ah_worker *next;
    pid_t pid; /* in the worker itself: 0 */
    int socket;
    bool ours;   /* this process started it, or is it */
    bool reaped;
    int status;  /* of its end, once reaped */
    struct answer answer;
    unsigned char *request;
    size_t room;
    int slots;
    struct slot slot[];
};

static struct ah_worker *all_workers; /* that this process has started */

static void worker_release(struct ah_worker *worker)
{
    if (worker->socket >= 0)
        close(worker->socket);
    for (int s = 0; s < worker->slots; s++) {
        if (worker->slot[s].bytes)
            munmap(worker->slot[s].bytes, worker->slot[s].mapped);
        if (worker->slot[s].file >= 0)
            close(worker->slot[s].file);
    }
    free(worker->request);
    free(worker);
}

static struct ah_worker *worker_allocate(int slots)
{
    struct ah_worker *worker = calloc(1, sizeof *worker + (size_t)slots * sizeof *worker->slot);
    if (!worker)
        return NULL;
    worker->ours = true;
    worker->socket = -1;
    worker->slots = slots;
    for (int s = 0; s < slots; s++)
        worker->slot[s].file = -1;
    for (int s = 0; s < slots; s++) {
        worker->slot[s].file = memfd_create("accelhost-batch", MFD_CLOEXEC);
        if (worker->slot[s].file < 0) {
            worker_release(worker);
            return NULL;
        }
    }
    return worker;
}

/* In the forked process. */
static void become_worker(struct ah_worker *worker, int socket, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it had ended already */
        kill(getpid(), SIGKILL);
    signal(SIGINT, SIG_IGN);
    for (struct ah_worker *other = all_workers; other; other = other->next) {
        close(other->socket);
        other->socket = -1;
        other->ours = false;
    }
    all_workers = NULL;
    worker->socket = socket;
    worker->pid = 0;
    /* The state of the parent is not this process's to close. */
    unsetenv("ACCELHOST_CLOSE");
}

int ah_worker_start(struct ah_worker **out, int slots)
{
    int ends[2];
    struct ah_worker *worker = slots > 0 && slots <= AH_WORKER_SLOTS ? worker_allocate(slots) : NULL;
    if (!worker || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        int reason = errno;
        if (worker)
            worker_release(worker);
        return ah_fail(AH_EIO, "cannot make shared memory or a socket for a worker: %s", strerror(reason));
    }
    fflush(stdout);
    fflush(stderr);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        int reason = errno;
        close(ends[0]);
        close(ends[1]);
        worker_release(worker);
        return ah_fail(AH_EIO, "cannot start a worker: %s", strerror(reason));
    }
    close(ends[pid == 0 ? 0 : 1]);
    *out = worker;
    if (pid == 0) {
        become_worker(worker, ends[1], parent);
        return 0;
    }
    worker->socket = ends[0];
    worker->pid = pid;
    worker->next = all_workers;
    all_workers = worker;
    return 1;
}

static bool send_all(int socket, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t sent = send(socket, at, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        count -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int socket, void *bytes, size_t count)
{
    char *at = bytes;
    while (count > 0) {
        ssize_t got = recv(socket, at, count, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        count -= (size_t)got;
    }
    return true;
}

int ah_worker_send(struct ah_worker *worker, const void *bytes, size_t count)
{
    uint64_t length = count;
    /* A worker that has ended is reported by ah_worker_wait, with its exit status. */
    if (send_all(worker->socket, &length, sizeof length))
        send_all(worker->socket, bytes, count);
    return 0;
}

static int worker_map(struct slot *slot, size_t size)
{
    if (slot->bytes)
        munmap(slot->bytes, slot->mapped);
    slot->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, slot->file, 0);
    slot->mapped = size;
    if (slot->bytes != MAP_FAILED)
        return 0;
    slot->bytes = NULL;
    return ah_fail(AH_ENOMEM, "cannot map %zu bytes of shared memory: %s", size, strerror(errno));
}

int ah_worker_room(struct ah_worker *worker, int at, size_t count, unsigned char **out)
{
    struct slot *slot = &worker->slot[at];
    if (!slot->bytes || count > slot->mapped) {
        size_t size = count < 2 * slot->mapped ? 2 * slot->mapped : count;
        size = (size + 65535) / 65536 * 65536;
        if (ftruncate(slot->file, (off_t)size))
            return ah_fail(AH_ENOMEM, "cannot allocate %zu bytes of shared memory: %s", size, strerror(errno));
        AH_TRY(worker_map(slot, size));
    }
    *out = slot->bytes;
    return 0;
}

int ah_worker_answer(struct ah_worker *worker, int slot, size_t count)
{
    struct answer answer = {(uint64_t)slot, count};
    send_all(worker->socket, &answer, sizeof answer);
    return 0;
}

static int receive_answer(struct ah_worker *worker, const unsigned char **bytes, size_t *count)
{
    struct slot *slot = &worker->slot[worker->answer.slot];
    struct stat info;
    if (!slot->bytes || worker->answer.count > slot->mapped) {
        if (fstat(slot->file, &info) || (uint64_t)info.st_size < worker->answer.count)
            return ah_fail(AH_EPEER, "a worker's answer is not where it should be");
        AH_TRY(worker_map(slot, (size_t)info.st_size));
    }
    *bytes = slot->bytes;
    *count = worker->answer.count;
    return 0;
}

int ah_worker_receive(struct ah_worker *worker, const unsigned char **bytes, size_t *count)
{
    uint64_t length;
    *bytes = NULL;
    *count = 0;
    if (worker->pid)
        return receive_answer(worker, bytes, count);
    if (!receive_all(worker->socket, &length, sizeof length))
        return 0;
    if (length > worker->room) {
        unsigned char *larger = realloc(worker->request, length);
        if (!larger)
            return ah_fail(AH_ENOMEM, "out of memory: a request of %llu bytes", (unsigned long long)length);
        worker->request = larger;
        worker->room = length;
    }
    if (receive_all(worker->socket, worker->request, length)) {
        *bytes = worker->request;
        *count = length;
    }
    return 0;
}

static int report_end(struct ah_worker *worker, int number)
{
    if (!worker->reaped)
        while (waitpid(worker->pid, &worker->status, 0) < 0 && errno == EINTR)
            ;
    worker->reaped = true;
    int status = worker->status, pid = (int)worker->pid;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return ah_fail(AH_EPEER, "worker %d (process %d) was killed by SIGKILL (out of memory, or kill -9)", number,
                       pid);
    if (WIFSIGNALED(status))
        return ah_fail(AH_EPEER, "worker %d (process %d) was killed by signal %d (%s)", number, pid, WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    return ah_fail(AH_EPEER, "worker %d (process %d) ended with code %d", number, pid, WEXITSTATUS(status));
}

int ah_worker_wait(struct ah_worker *const *workers, int count, double seconds, int *which)
{
    struct pollfd *polled = calloc((size_t)count, sizeof *polled);
    int64_t until = seconds > 0 ? ah_now_ns() + (int64_t)(seconds * 1e9) : 0;
    int status = 0;
    AH_TRY_MEMORY(polled, "out of memory");
    *which = -1;
    while (status == 0 && *which < 0) {
        int64_t left = until - ah_now_ns();
        for (int w = 0; w < count; w++)
            polled[w] = (struct pollfd){.fd = workers[w]->socket, .events = POLLIN};
        int ready = poll(polled, (nfds_t)count, until == 0 ? -1 : left > 0 ? (int)(left / 1000000) + 1 : 0);
        if (ready == 0)
            status = ah_fail(AH_ETIMEOUT, "timed out after %g s", seconds);
        for (int w = 0; ready > 0 && w < count && status == 0 && *which < 0; w++) {
            if (!polled[w].revents)
                continue;
            if (receive_all(workers[w]->socket, &workers[w]->answer, sizeof workers[w]->answer))
                *which = w;
            else
                status = report_end(workers[w], w);
        }
    }
    free(polled);
    return status;
}

void ah_worker_leave(struct ah_worker *worker)
{
    if (worker->ours && worker->pid && worker->socket >= 0) {
        close(worker->socket);
        worker->socket = -1;
    }
}

/* Has it ended? Without waiting. */
static bool has_ended(struct ah_worker *worker)
{
    if (!worker->reaped && waitpid(worker->pid, &worker->status, WNOHANG) != 0)
        worker->reaped = true;
    return worker->reaped;
}

void ah_worker_free(struct ah_worker *worker)
{
    if (!worker)
        return;
    if (worker->ours && worker->pid) {
        ah_worker_leave(worker);
        for (int waited = 0; waited < END_MS && !has_ended(worker); waited++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (!has_ended(worker)) {
            kill(worker->pid, SIGKILL);
            while (waitpid(worker->pid, &worker->status, 0) < 0 && errno == EINTR)
                ;
        }
        struct ah_worker **at = &all_workers;
        while (*at != worker)
            at = &(*at)->next;
        *at = worker->next;
    }
    worker_release(worker);
}

int ah_worker_pid(const struct ah_worker *worker)
{
    return (int)worker->pid;
}
