/* Each is called by its number, which the kernel's headers give, so that one program serves every C library. */
#include "cli/base/syscalls.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int ah_pidfd_open(pid_t pid)
{
    return (int)syscall(__NR_pidfd_open, pid, 0);
}

int ah_pidfd_kill(int pidfd, int number)
{
    return (int)syscall(__NR_pidfd_send_signal, pidfd, number, NULL, 0);
}

void ah_close_from(int first)
{
    struct rlimit limit;
    if (!syscall(__NR_close_range, first, ~0u, 0))
        return;
    /* A kernel before 5.9. */
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 65536)
        limit.rlim_cur = 65536;
    for (int fd = first; fd < (int)limit.rlim_cur; fd++)
        close(fd);
}

const char *ah_signal_name(int number)
{
    static const char *const names[] = {
#define NAME(signal) [signal] = #signal
        NAME(SIGHUP),  NAME(SIGINT),    NAME(SIGQUIT), NAME(SIGILL),  NAME(SIGTRAP), NAME(SIGABRT),   NAME(SIGBUS),
        NAME(SIGFPE),  NAME(SIGKILL),   NAME(SIGUSR1), NAME(SIGSEGV), NAME(SIGUSR2), NAME(SIGPIPE),   NAME(SIGALRM),
        NAME(SIGTERM), NAME(SIGCHLD),   NAME(SIGCONT), NAME(SIGSTOP), NAME(SIGTSTP), NAME(SIGTTIN),   NAME(SIGTTOU),
        NAME(SIGURG),  NAME(SIGXCPU),   NAME(SIGXFSZ), NAME(SIGPROF), NAME(SIGIO),   NAME(SIGVTALRM), NAME(SIGWINCH),
        NAME(SIGPWR),  NAME(SIGSYS),
#undef NAME
    };
    return number > 0 && number < (int)(sizeof names / sizeof names[0]) ? names[number] : NULL;
}
