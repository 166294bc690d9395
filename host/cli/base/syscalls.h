/* System calls of Linux for which some C libraries lack a function or header (glibc before 2.36, musl). All return -1
 * and set errno on failure. */
#pragma once

#include <sys/types.h>

/* A descriptor of the process, closed on exec, readable once it has ended. From Linux 5.3. */
int ah_pidfd_open(pid_t pid);

/* kill() for the process that a descriptor holds. */
int ah_pidfd_kill(int pidfd, int number);

/* Close all descriptors from `first`. */
void ah_close_from(int first);

/* "SIGTERM"; NULL for a number without a name. */
const char *ah_signal_name(int number);
