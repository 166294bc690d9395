/* Signals are received by sigwaitinfo; the child gets them as a process with another pid than 1 would. */
#include "cli/command/init.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void be_first(pid_t child, const sigset_t *signals)
{
    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(signals, &info), state;
        /* The child receives a terminal's signals by itself. */
        if (number > 0 && number != SIGCHLD && info.si_code != SI_KERNEL)
            kill(child, number);
        for (pid_t pid; number == SIGCHLD && (pid = waitpid(-1, &state, WNOHANG)) > 0;)
            if (pid == child)
                _exit(WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state));
    }
}

void ah_init_if_first(void)
{
    sigset_t signals, before;
    if (getpid() != 1)
        return;
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, &before);
    pid_t child = fork();
    if (child < 0)
        fprintf(stderr, "accelhost: cannot start a process (%s); signals may not reach this one\n", strerror(errno));
    if (child > 0)
        be_first(child, &signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
}
