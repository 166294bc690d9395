/* The socket carries the ranks' process groups, negative when they are none any more, and, when all is well, a zero.
 * Its end without that zero means that the other side was killed. */
#include "cli/job/reaper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status/status.h"
#include "cli/base/syscalls.h"
#include "cli/job/orphans.h"

enum { GROUPS = 256, ROUNDS = 100 };

static void kill_all(const char *mark, const pid_t *groups, int count)
{
    for (int i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
    /* Processes that are forked meanwhile are found in the next round. */
    for (int round = 0; round < ROUNDS && ah_orphans_signal(mark, NULL, 0, SIGKILL, NULL, 0); round++)
        usleep(10000);
}

static int reaper_without(pid_t *groups, int count, pid_t group)
{
    for (int i = 0; i < count; i++)
        if (groups[i] == group)
            groups[i--] = groups[--count];
    return count;
}

static void reaper_watch(int socket, const char *mark)
{
    pid_t groups[GROUPS], group;
    int count = 0;
    sigset_t all;
    setsid();
    prctl(PR_SET_NAME, "ah-reaper"); /* 15 bytes at most */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    dup2(socket, STDIN_FILENO);
    ah_close_from(1);
    for (;;) {
        ssize_t n = read(STDIN_FILENO, &group, sizeof group);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof group)
            break;
        if (!group)
            _exit(0);
        if (group < 0)
            count = reaper_without(groups, count, -group);
        else if (count < GROUPS)
            groups[count++] = group;
    }
    kill_all(mark, groups, count);
    _exit(0);
}

int ah_reaper_start(struct ah_reaper *reaper, const char *mark)
{
    int ends[2];
    *reaper = (struct ah_reaper){.socket = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return ah_fail(AH_EIO, "cannot make a socket pair: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        reaper_watch(ends[0], mark);
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return ah_fail(AH_EIO, "cannot start a process: %s", strerror(errno));
    }
    *reaper = (struct ah_reaper){.pid = pid, .socket = ends[1]};
    return 0;
}

static void reaper_report(struct ah_reaper *reaper, pid_t group)
{
    if (reaper->socket >= 0)
        send(reaper->socket, &group, sizeof group, MSG_NOSIGNAL);
}

void ah_reaper_add(struct ah_reaper *reaper, pid_t group)
{
    reaper_report(reaper, group);
}

void ah_reaper_remove(struct ah_reaper *reaper, pid_t group)
{
    reaper_report(reaper, -group);
}

void ah_reaper_close(struct ah_reaper *reaper)
{
    if (reaper->socket < 0)
        return;
    reaper_report(reaper, 0);
    close(reaper->socket);
    while (waitpid(reaper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *reaper = (struct ah_reaper){.socket = -1};
}
