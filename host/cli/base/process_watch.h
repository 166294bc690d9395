/* References to processes that are safe against reuse of a pid: a pidfd where the kernel has them (Linux 5.3), else a
 * thread that waits (for a child) or the start time of the process (for any process). */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The end of a child of this process, which remains a zombie until the caller reaps it. */
struct ah_process_watch {
    int fd;         /* readable once the child has ended; -1 when closed */
    bool is_thread; /* the rest: without pidfds */
    pthread_t thread;
};

/* Watch a child. AH_EIO; on failure nothing is left to close. */
int ah_process_watch_open(struct ah_process_watch *watch, pid_t child);
/* Watch it no longer. The child has ended, or will soon (it was sent SIGKILL), and is not reaped yet. */
void ah_process_watch_close(struct ah_process_watch *watch);

/* Any process of this host, held from before its properties are read until it is signalled. */
struct ah_process_hold {
    pid_t pid;
    int fd;             /* -1: without pidfds */
    int64_t started_ns; /* then: when it was started, as in base/process/process.h */
};

/* False when there is no such process. */
bool ah_process_hold(struct ah_process_hold *hold, pid_t pid);
/* kill() for the process that was held, even if another one has its number now: that one gets nothing. */
void ah_process_hold_signal(const struct ah_process_hold *hold, int number);
void ah_process_hold_release(struct ah_process_hold *hold);
