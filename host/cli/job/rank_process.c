/* fork and execve. Between them the child calls only async-signal-safe functions: this process may have threads.
 * Invariant: a group is signalled only while its leader is not reaped. */
#include "cli/job/rank_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/signals.h"
#include "base/status/status.h"
#include "base/process/threads.h"
#include "comm/control/control_block.h"

/* Signals as a program expects them, whatever this process or its parent did to them. */
static void reset_signals(bool writes_to_terminal)
{
    static const int ours[] = {SIGCHLD, SIGPIPE, SIGXFSZ, SIGTSTP, SIGCONT};
    sigset_t none;
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        signal(ours[i], SIG_DFL);
    /* A new group is a background group, which `stty tostop` would stop at its first line. */
    if (writes_to_terminal)
        signal(SIGTTOU, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* strerror may not be called here. */
static const char *rank_process_reason(int error)
{
    switch (error) {
    case ENOENT:
        return "No such file or directory (is /proc mounted?)\n";
    case E2BIG:
        return "Argument list too long (arguments and environment)\n";
    case ENOMEM:
        return "Cannot allocate memory\n";
    case EACCES:
        return "Permission denied\n";
    case EAGAIN:
        return "Resource temporarily unavailable\n";
    case ENFILE:
    case EMFILE:
        return "Too many open files\n";
    default:
        return "execve failed\n";
    }
}

/* In the child, up to execve. */
static void become_rank(const struct ah_rank_plan *plan, const int output[2], pid_t parent)
{
    struct rlimit limit;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* died before we asked to follow it */
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (null > STDERR_FILENO)
        close(null);
    for (int s = 0; s < 2; s++)
        if (output[s] >= 0)
            dup2(output[s], s ? STDERR_FILENO : STDOUT_FILENO);
    ah_control_hand_over(plan->control);
    if (plan->script >= 0)
        fcntl(plan->script, F_SETFD, 0);
    if (plan->channel >= 0)
        fcntl(plan->channel, F_SETFD, 0);
    if (plan->descriptors && !getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = plan->descriptors;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (plan->affinity)
        ah_affinity_set(plan->affinity);
    reset_signals(!plan->pipes);
    execve("/proc/self/exe", plan->argv, plan->environment);
    int error = errno;
    /* Without /proc the path with which this program was started may do. */
    const char *path = (const char *)getauxval(AT_EXECFN);
    if (path)
        execve(path, plan->argv, plan->environment);
    ah_signal_write("accelhost launch: cannot start a rank: /proc/self/exe: ");
    ah_signal_write(rank_process_reason(error));
    _exit(127);
}

static int make_pipes(struct ah_rank_process *process)
{
    for (int s = 0; s < 2; s++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC))
            return ah_fail(AH_EIO, "cannot make a pipe: %s", strerror(errno));
        process->pipe[s] = ends[0];
        process->end[s] = ends[1];
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        fcntl(ends[0], F_SETPIPE_SZ, 256 * 1024); /* fewer turns for much output; the default serves too */
    }
    return 0;
}

static int rank_process_launch(struct ah_rank_process *process, const struct ah_rank_plan *plan)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become_rank(plan, process->end, parent);
    if (pid < 0)
        return ah_fail(AH_EIO, "cannot start a rank: %s", strerror(errno));
    setpgid(pid, pid); /* both do it, so that it is done for both */
    process->pid = pid;
    process->running = true;
    int status = ah_process_watch_open(&process->watch, pid);
    return status < 0 ? ah_fail_prefix(status, "cannot watch a rank") : 0;
}

int ah_rank_process_start(struct ah_rank_process *process, const struct ah_rank_plan *plan)
{
    int status = 0;
    *process = (struct ah_rank_process){.watch.fd = -1, .pipe = {-1, -1}, .end = {-1, -1}};
    if (plan->pipes)
        AH_TRYGO(make_pipes(process), out);
    AH_TRYGO(rank_process_launch(process, plan), out);
out:
    if (!plan->keeps)
        ah_rank_process_let_go(process);
    if (status < 0)
        ah_rank_process_close(process);
    return status;
}

/* Kill its processes that still run, and reap it. */
static void rank_process_reap(struct ah_rank_process *process)
{
    if (process->pid > 0) {
        kill(-process->pid, SIGKILL);
        kill(process->pid, SIGKILL); /* its group may not be made yet */
    }
    ah_process_watch_close(&process->watch);
    if (process->pid > 0)
        waitid(P_PID, (id_t)process->pid, &(siginfo_t){0}, WEXITED);
    process->pid = 0;
    process->running = false;
}

int ah_rank_process_replace(struct ah_rank_process *process, const struct ah_rank_plan *plan)
{
    rank_process_reap(process);
    int status = rank_process_launch(process, plan);
    if (status < 0) {
        rank_process_reap(process);
        return status;
    }
    process->signal = process->code = 0;
    process->stopped = process->killed = false;
    return 0;
}

void ah_rank_process_let_go(struct ah_rank_process *process)
{
    for (int s = 0; s < 2; s++) {
        if (process->end[s] >= 0)
            close(process->end[s]);
        process->end[s] = -1;
    }
}

void ah_rank_process_signal(struct ah_rank_process *process, int number)
{
    if (process->pid <= 0)
        return;
    kill(-process->pid, number);
    if (number != SIGSTOP && number != SIGKILL)
        kill(-process->pid, SIGCONT);
}

bool ah_rank_process_look_stopped(struct ah_rank_process *process)
{
    siginfo_t info = {0};
    if (!process->running || process->killed)
        return false; /* the launcher's own signals are not reported */
    if (waitid(P_PID, (id_t)process->pid, &info, WSTOPPED | WCONTINUED | WNOHANG) || !info.si_pid)
        return false;
    process->stopped = info.si_code == CLD_STOPPED;
    return process->stopped;
}

bool ah_rank_process_look(struct ah_rank_process *process)
{
    siginfo_t info = {0};
    struct rusage usage = {0};
    if (!process->running)
        return false;
    /* The system call, because the library's function leaves out the usage. */
    if (syscall(SYS_waitid, P_PID, process->pid, &info, WEXITED | WNOHANG | WNOWAIT, &usage)) {
        if (errno != ECHILD)
            return false;
        /* It is already reaped (SIGCHLD is ignored here): its exit status is not known, its number no longer ours. */
        process->pid = 0;
        process->code = -1;
    } else if (!info.si_pid) {
        return false;
    } else if (info.si_code == CLD_EXITED) {
        process->code = info.si_status;
    } else {
        process->signal = info.si_status;
    }
    process->running = false;
    process->most_kib = usage.ru_maxrss;
    return true;
}

void ah_rank_process_close(struct ah_rank_process *process)
{
    for (int s = 0; s < 2; s++)
        if (process->pipe[s] >= 0)
            close(process->pipe[s]);
    ah_rank_process_let_go(process);
    rank_process_reap(process);
    *process = (struct ah_rank_process){.watch.fd = -1, .pipe = {-1, -1}, .end = {-1, -1}};
}
