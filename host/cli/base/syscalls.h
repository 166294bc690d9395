/* What Linux offers and not every C library has a function or a header for (glibc before 2.36, musl). All give -1 and
 * errno when they fail. */
#ifndef AH_CLI_SYSCALLS_H
#define AH_CLI_SYSCALLS_H

#include <sys/types.h>

/* A descriptor of the process, closed on exec, readable once it has ended. From Linux 5.3. */
int ah_pidfd_open(pid_t pid);

/* kill() for the process that a descriptor holds. */
int ah_pidfd_kill(int pidfd, int number);

/* Close all descriptors from `first`. */
void ah_close_from(int first);

/* "SIGTERM"; NULL for a number without a name. */
const char *ah_signal_name(int number);

#endif
