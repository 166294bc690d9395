/* One rank's process: start it, signal its process group, wait for its end without releasing its pid.
 *
 * Each rank leads a process group and is killed when the thread that started it ends. Once a rank has ended it stays a
 * zombie until _close, so that its pid, and its process group's, cannot be reused. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/base/process_watch.h"

struct ah_affinity;
struct ah_control_block;

struct ah_rank_process {
    pid_t pid;       /* 0: never started, or closed */
    struct ah_process_watch watch; /* of its end */
    int pipe[2];     /* its stdout and stderr: to be read and closed by the owner, or -1 */
    int end[2];      /* its ends of these, kept for a process that replaces it, or -1 */
    bool running;
    bool stopped;    /* by a signal, at the last check */
    bool killed;     /* the launcher asked it to end: its end is not its failure */
    int code, signal; /* with which it ended; code -1: not known */
    long most_kib;    /* the most memory it had, once it has ended */
};

/* Start parameters shared by all ranks of a job. */
struct ah_rank_plan {
    struct ah_control_block *control;
    char **argv;          /* of the host, argv[0] included */
    char **environment;
    bool pipes;           /* its output goes to pipes, else to this process's own */
    bool keeps;           /* this process keeps its ends of them */
    int script;           /* a descriptor that it keeps, or -1 */
    int channel;          /* another one */
    uint64_t descriptors; /* its soft limit, 0: as here */
    const struct ah_affinity *affinity; /* its processors, NULL: as here */
};

/* On failure nothing is left to close. */
int ah_rank_process_start(struct ah_rank_process *process, const struct ah_rank_plan *plan);
/* Start a new process in place of one that has ended, with the same pipes; the old one's process group is killed. On
 * failure all fields but the pid are unchanged. */
int ah_rank_process_replace(struct ah_rank_process *process, const struct ah_rank_plan *plan);
/* It is not replaced: its pipes end with the processes that write to them. */
void ah_rank_process_let_go(struct ah_rank_process *process);
/* Signal the process and its group; one that is stopped continues, to receive it. */
void ah_rank_process_signal(struct ah_rank_process *process, int number);
/* Check whether it has ended; true the first time. */
bool ah_rank_process_look(struct ah_rank_process *process);
/* Update `stopped`; true when it was stopped since the last check. */
bool ah_rank_process_look_stopped(struct ah_rank_process *process);
/* Kill its process group, reap it, close its descriptors. */
void ah_rank_process_close(struct ah_rank_process *process);
