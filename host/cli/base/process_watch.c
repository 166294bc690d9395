/* Kernels before 5.3, gVisor and containers whose seccomp profile is older than pidfds refuse the calls with ENOSYS or
 * EPERM, so any refusal leads to the other way. Invariant of that way: the thread waits with WNOWAIT, so the child's
 * number belongs to the child until the owner has joined the thread and reaps the child. */
#include "cli/base/process_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/process.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "cli/base/syscalls.h"

/* Of the thread: belongs to it. */
struct awaited {
    pid_t child;
    int end; /* of a pipe, to be written to and closed */
};

static void *watch_wait(void *context)
{
    struct awaited awaited = *(struct awaited *)context;
    free(context);
    while (waitid(P_PID, (id_t)awaited.child, &(siginfo_t){0}, WEXITED | WNOWAIT) && errno == EINTR)
        ;
    /* A byte, not the pipe's end: a fork of this process may hold the pipe open. */
    (void)!write(awaited.end, "", 1);
    close(awaited.end);
    return NULL;
}

static int watch_by_thread(struct ah_process_watch *watch, pid_t child)
{
    int ends[2];
    struct awaited *awaited = malloc(sizeof *awaited);
    AH_TRY_MEMORY(awaited, "out of memory");
    if (pipe2(ends, O_CLOEXEC)) {
        free(awaited);
        return ah_fail(AH_EIO, "cannot make a pipe: %s", strerror(errno));
    }
    *awaited = (struct awaited){child, ends[1]};
    int failed = ah_helper_start(&watch->thread, watch_wait, awaited);
    if (failed) {
        close(ends[0]);
        close(ends[1]);
        free(awaited);
        return ah_fail(AH_EIO, "cannot start a thread: %s", strerror(failed));
    }
    watch->fd = ends[0];
    watch->is_thread = true;
    return 0;
}

int ah_process_watch_open(struct ah_process_watch *watch, pid_t child)
{
    *watch = (struct ah_process_watch){.fd = ah_pidfd_open(child)};
    return watch->fd >= 0 ? 0 : watch_by_thread(watch, child);
}

void ah_process_watch_close(struct ah_process_watch *watch)
{
    if (watch->fd < 0)
        return;
    if (watch->is_thread)
        pthread_join(watch->thread, NULL);
    close(watch->fd);
    *watch = (struct ah_process_watch){.fd = -1};
}

bool ah_process_hold(struct ah_process_hold *hold, pid_t pid)
{
    struct ah_process process;
    *hold = (struct ah_process_hold){.pid = pid, .fd = ah_pidfd_open(pid)};
    if (hold->fd >= 0)
        return true;
    bool is_there = errno != ESRCH && ah_process_look(pid, &process);
    hold->started_ns = is_there ? process.started_ns : 0;
    return is_there;
}

void ah_process_hold_signal(const struct ah_process_hold *hold, int number)
{
    struct ah_process process;
    if (hold->fd >= 0 && (ah_pidfd_kill(hold->fd, number) == 0 || errno == ESRCH))
        return;
    /* If pidfds cannot signal, the number belongs to the process as long as its pidfd reports no end. */
    bool same = hold->fd >= 0 ? poll(&(struct pollfd){.fd = hold->fd, .events = POLLIN}, 1, 0) == 0
                              : ah_process_look(hold->pid, &process) && process.started_ns == hold->started_ns;
    if (same)
        kill(hold->pid, number);
}

void ah_process_hold_release(struct ah_process_hold *hold)
{
    if (hold->fd >= 0)
        close(hold->fd);
    hold->fd = -1;
}
