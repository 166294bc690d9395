/* State of a process of this host, from /proc. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_process {
    char name[32];     /* of its program, cut to 15 bytes by the system */
    char state;        /* as ps shows it: R runs, S sleeps, D waits for a device, T stopped, Z ended */
    int parent, group;
    int threads;
    int64_t memory;    /* resident bytes */
    int64_t cpu_ns;    /* processor time so far, of all its threads */
    int64_t started_ns; /* since the system's start (CLOCK_BOOTTIME) */
};

/* Read a process's state from /proc. False when there is no such process or its files cannot be read. */
bool ah_process_look(int pid, struct ah_process *out);

/* The kernel's function that it sleeps in; "" when it is unknown. */
void ah_process_waits(int pid, char *text, size_t room);

/* Return the pid here of the process whose pid is `pid` in the PID namespace of the process `holder` (a container's):
 * `pid` itself when that namespace is this process's, or cannot be read; 0 when there is no such process. */
int ah_process_pid_here(int holder, int pid);

/* Its command line, arguments with blanks between them, cut to `room`; "" when it cannot be read. */
void ah_process_command(int pid, char *text, size_t room);
