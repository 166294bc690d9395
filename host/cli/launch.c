#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/threads.h"
#include "base/time.h"
#include "cli/command.h"
#include "cli/launch_output.h"
#include "comm/backend.h"

static const int64_t second_ns = 1000000000;
static const int64_t peers_ns = 1000000000;  /* after a failure: for the peers to raise themselves */
static const int64_t term_ns = 500000000;    /* between SIGTERM and SIGKILL then */
static const int64_t drain_ns = 200000000;   /* for output of programs that outlive their rank */

/* Options. */

struct launch_options {
    double processes, threads, timeout, grace;
};

static const struct flag {
    const char *name;
    size_t field; /* a double of struct launch_options */
    double least, most;
    bool whole;
    const char *value, *help;
} flags[] = {
    {"--num_processes", offsetof(struct launch_options, processes), 1, AH_BOARD_MAX_RANKS, true,
     "N", "ranks to start (default 1)"},
    {"--num_cpu_threads_per_process", offsetof(struct launch_options, threads), 1, 1024, true,
     "T", "threads of each rank (default: processors / ranks)"},
    {"--timeout", offsetof(struct launch_options, timeout), 1e-3, 1e9, false,
     "S", "seconds a rank may wait in a collective (default 600)"},
    {"--grace", offsetof(struct launch_options, grace), 0, 1e6, false,
     "S", "seconds the ranks get to end after a signal (default 30)"},
};
enum { FLAGS = sizeof flags / sizeof *flags };

static void print_help(void)
{
    puts("usage: accelhost launch [options] script.lua [arguments]\n"
         "       accelhost launch [options] -e CODE [arguments]\n\n"
         "Runs a script in several processes (ranks) of this host and supervises them.\n\noptions:");
    for (int i = 0; i < FLAGS; i++)
        printf("  %s %-*s  %s\n", flags[i].name, (int)(31 - strlen(flags[i].name)), flags[i].value, flags[i].help);
    puts("  --help                            this text\n\n"
         "exit codes: 0 ok, 2 usage, 3 a rank failed, 4 a collective timed out, 128+n ended by signal n");
}

static const struct flag *find_flag(const char *name)
{
    for (int i = 0; i < FLAGS; i++)
        if (!strcmp(flags[i].name, name))
            return &flags[i];
    return NULL;
}

/* Returns the index of the script in argv, or -1 - (exit code). */
static int parse(int argc, char **argv, struct launch_options *options)
{
    for (int i = 0; i < argc; i++) {
        char name[64];
        if (argv[i][0] != '-' || !strcmp(argv[i], "-e"))
            return i;
        if (!strcmp(argv[i], "--"))
            return i + 1 < argc ? i + 1 : -1 - ah_usage("launch", "expected a script");
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help();
            return -1;
        }
        const char *value = strchr(argv[i], '=');
        size_t length = value ? (size_t)(value - argv[i]) : strlen(argv[i]);
        snprintf(name, sizeof name, "%.*s", (int)length, argv[i]);
        for (size_t c = 2; c < strlen(name); c++)
            if (name[c] == '-')
                name[c] = '_';
        const struct flag *flag = find_flag(name);
        if (!flag) {
            const char *known[FLAGS + 2] = {"--help"};
            for (int k = 0; k < FLAGS; k++)
                known[k + 1] = flags[k].name;
            const char *near = ah_nearest(name, known);
            return -1 - ah_usage("launch", near ? "unknown option '%s' (did you mean '%s'?)" : "unknown option '%s'",
                                 argv[i], near);
        }
        if (value)
            value++;
        else if (i + 1 < argc)
            value = argv[++i];
        else
            return -1 - ah_usage("launch", "%s expects a value", flag->name);
        char *end;
        double number = strtod(value, &end);
        if (end == value || *end || !(number >= flag->least && number <= flag->most) ||
            (flag->whole && number != floor(number)))
            return -1 - ah_usage("launch", "%s expects %s in %g..%g, got '%s'", flag->name,
                                 flag->whole ? "a whole number" : "seconds", flag->least, flag->most, value);
        *(double *)((char *)options + flag->field) = number;
    }
    return -1 - ah_usage("launch", "expected a script");
}

/* The job. */

struct child {
    pid_t pid;
    int pidfd;
    int pipe[2]; /* its stdout and stderr, -1 once at their end or never made */
    bool running, killed; /* killed: we ended it, so its end is no failure of its own */
    int code, signal;
};

enum phase {
    RUNNING,
    FAILING,   /* a rank failed: the others get a moment to raise themselves ... */
    ENDING,    /* ... then SIGTERM ... */
    SIGNALLED, /* we were asked to end and passed it on */
    KILLED,    /* ... and SIGKILL in the end */
};

struct job {
    const struct launch_options *options;
    struct ah_board *board;
    struct ah_output *output[2];
    struct child child[AH_BOARD_MAX_RANKS];
    int size, running;
    enum phase phase;
    int64_t deadline; /* of the phase, -1 for none */
    int signal;       /* that asked us to end, else 0 */
    int output_error; /* errno of what kept us from writing what ranks said */
};

static void set_default(const char *name, const char *format, double value, bool overwrite)
{
    char text[32];
    snprintf(text, sizeof text, format, value);
    setenv(name, text, overwrite);
}

/* In the child, up to exec. */
static void become_rank(struct job *job, int rank, int output[2], pid_t parent, char **argv)
{
    sigset_t none;
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
    set_default("RANK", "%.0f", rank, true);
    set_default("LOCAL_RANK", "%.0f", rank, true);
    set_default("WORLD_SIZE", "%.0f", job->size, true);
    set_default("LOCAL_WORLD_SIZE", "%.0f", job->size, true);
    set_default("GROUP_RANK", "%.0f", 0, true);
    setenv("MASTER_ADDR", "127.0.0.1", 0);
    set_default("ACCELHOST_BOARD", "%.0f", ah_board_hand_over(job->board), true);
    if (job->options->timeout > 0)
        set_default("ACCELHOST_TIMEOUT", "%.9g", job->options->timeout, true);
    double share = floor((double)ah_cpu_count() / job->size);
    if (job->options->threads > 0)
        set_default("OMP_NUM_THREADS", "%.0f", job->options->threads, true);
    else
        set_default("OMP_NUM_THREADS", "%.0f", share < 1 ? 1 : share, false);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", argv);
    dprintf(STDERR_FILENO, "accelhost launch: cannot start a rank: %s\n", strerror(errno));
    _exit(127);
}

static int start_rank(struct job *job, int rank, char **argv)
{
    struct child *child = &job->child[rank];
    int end[2][2] = {{-1, -1}, {-1, -1}};
    *child = (struct child){.pid = -1, .pidfd = -1, .pipe = {-1, -1}};
    for (int s = 0; s < 2 && job->output[s]; s++) {
        if (pipe2(end[s], O_CLOEXEC))
            return ah_fail(AH_EIO, "cannot make a pipe: %s", strerror(errno));
        child->pipe[s] = end[s][0];
        fcntl(end[s][0], F_SETFL, O_NONBLOCK);
    }
    pid_t parent = getpid();
    child->pid = fork();
    if (child->pid == 0)
        become_rank(job, rank, (int[]){end[0][1], end[1][1]}, parent, argv);
    for (int s = 0; s < 2; s++)
        if (end[s][1] >= 0)
            close(end[s][1]);
    if (child->pid < 0)
        return ah_fail(AH_EIO, "cannot start rank %d: %s", rank, strerror(errno));
    setpgid(child->pid, child->pid); /* both do it, so that it is done for both */
    child->running = true;
    job->running++;
    child->pidfd = pidfd_open(child->pid, 0);
    if (child->pidfd < 0)
        return ah_fail(AH_EIO, "cannot watch rank %d: %s", rank, strerror(errno));
    fcntl(child->pidfd, F_SETFD, FD_CLOEXEC);
    return 0;
}

static void signal_ranks(struct job *job, int number, bool ours)
{
    for (int r = 0; r < job->size; r++) {
        if (!job->child[r].running)
            continue;
        job->child[r].killed |= ours;
        kill(-job->child[r].pid, number);
    }
}

static void enter(struct job *job, enum phase phase, int64_t wait)
{
    job->phase = phase;
    job->deadline = wait < 0 ? -1 : ah_now_ns() + wait;
}

static void next_phase(struct job *job)
{
    if (job->phase == FAILING) {
        signal_ranks(job, SIGTERM, true);
        enter(job, ENDING, term_ns);
    } else {
        signal_ranks(job, SIGKILL, true);
        enter(job, KILLED, -1);
    }
}

static void on_signal(struct job *job, int number)
{
    if (job->signal) {
        signal_ranks(job, SIGKILL, true);
        enter(job, KILLED, -1);
        return;
    }
    job->signal = number;
    signal_ranks(job, number, true);
    enter(job, SIGNALLED, (int64_t)(job->options->grace * (double)second_ns));
}

/* Nobody reads any more, or the disk is full. */
static void on_output_error(struct job *job, int error)
{
    if (job->signal || job->output_error)
        return;
    if (error == EPIPE) {
        on_signal(job, SIGPIPE);
        return;
    }
    job->output_error = error;
    signal_ranks(job, SIGTERM, true);
    enter(job, SIGNALLED, (int64_t)(job->options->grace * (double)second_ns));
}

static void on_exit_of(struct job *job, int rank)
{
    struct child *child = &job->child[rank];
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOHANG) || !info.si_pid)
        return;
    child->running = false;
    job->running--;
    close(child->pidfd);
    child->pidfd = -1;
    if (info.si_code == CLD_EXITED)
        child->code = info.si_status;
    else
        child->signal = info.si_status;
    bool failed = child->code || child->signal;
    ah_board_leave(job->board, rank, failed ? AH_RANK_DIED : AH_RANK_ENDED, NULL, false);
    /* A rank may have reported a failure and still have left with 0. */
    failed |= atomic_load(&ah_board_slot(job->board, rank)->state) == AH_RANK_FAILED;
    if (failed) {
        kill(-child->pid, SIGKILL); /* what it had started */
        if (job->phase == RUNNING)
            enter(job, FAILING, peers_ns);
    }
}

/* Returns false at the end of the stream. */
static bool pump(struct job *job, int rank, int s)
{
    char text[65536];
    int *fd = &job->child[rank].pipe[s];
    ssize_t n = read(*fd, text, sizeof text);
    if (n > 0) {
        ah_output_feed(job->output[s], rank, text, (size_t)n, ah_now_ns());
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    close(*fd);
    *fd = -1;
    ah_output_end(job->output[s], rank, ah_now_ns());
    return false;
}

static void supervise(struct job *job, int signals)
{
    struct pollfd at[1 + 3 * AH_BOARD_MAX_RANKS];
    int open_pipes = 1;
    int64_t drained = -1; /* when to stop reading after the last rank has gone */
    while (job->running > 0 || open_pipes > 0) {
        int count = 0;
        int64_t now = ah_now_ns(), due = job->deadline;
        open_pipes = 0;
        at[count++] = (struct pollfd){.fd = signals, .events = POLLIN};
        for (int r = 0; r < job->size; r++) {
            const int fds[3] = {job->child[r].pidfd, job->child[r].pipe[0], job->child[r].pipe[1]};
            for (int k = 0; k < 3; k++) /* poll passes over negative ones */
                at[count++] = (struct pollfd){.fd = fds[k], .events = POLLIN};
            open_pipes += (fds[1] >= 0) + (fds[2] >= 0);
        }
        if (job->running == 0) {
            if (drained < 0)
                drained = now + drain_ns;
            if (now >= drained || !open_pipes)
                break;
            due = drained;
        }
        for (int s = 0; s < 2 && job->output[s]; s++) {
            int64_t line = ah_output_flush(job->output[s], now);
            due = line >= 0 && (due < 0 || line < due) ? line : due;
            if (ah_output_error(job->output[s]))
                on_output_error(job, ah_output_error(job->output[s]));
        }
        int64_t left = due - now;
        int timeout = due < 0 ? -1 : left <= 0 ? 0 : (int)((left + 999999) / 1000000);
        if (poll(at, (nfds_t)count, timeout) < 0 && errno != EINTR)
            break;
        struct signalfd_siginfo info;
        if (at[0].revents && read(signals, &info, sizeof info) == sizeof info)
            on_signal(job, (int)info.ssi_signo);
        for (int r = 0; r < job->size; r++) {
            /* Output first: what a rank said before it died comes before what we say about it. */
            for (int s = 0; s < 2; s++)
                if (at[2 + 3 * r + s].revents)
                    pump(job, r, s);
            if (at[1 + 3 * r].revents)
                on_exit_of(job, r);
        }
        if (job->deadline >= 0 && ah_now_ns() >= job->deadline && job->running > 0)
            next_phase(job);
    }
}

/* The end. */

static bool has_failed(const struct job *job, int rank)
{
    const struct child *child = &job->child[rank];
    const struct ah_board_slot *slot = ah_board_slot(job->board, rank);
    return atomic_load(&slot->state) == AH_RANK_FAILED || ((child->code || child->signal) && !child->killed);
}

/* The rank that failed first, those that only lost a peer last; -1 when none did. */
static int first_failure(const struct job *job)
{
    int first = -1;
    int64_t time = 0;
    for (int victims = 0; victims < 2 && first < 0; victims++) {
        for (int r = 0; r < job->size; r++) {
            struct ah_board_slot *slot = ah_board_slot(job->board, r);
            int64_t ended = atomic_load(&slot->ended_ns);
            if (!has_failed(job, r) || (bool)atomic_load(&slot->victim) != (bool)victims)
                continue;
            if (first < 0 || ended < time) {
                first = r;
                time = ended;
            }
        }
    }
    return first;
}

static void first_line(const char *text, char *line, size_t bytes)
{
    snprintf(line, bytes, "%.*s", (int)strcspn(text, "\n"), text);
}

/* "rank 2" or "ranks 0, 2, 4-7" */
static void list_ranks(const bool *listed, int size, char *text, size_t room)
{
    int count = 0, at;
    for (int r = 0; r < size; r++)
        count += listed[r];
    at = snprintf(text, room, count > 1 ? "ranks" : "rank");
    for (int r = 0, some = 0; r < size && (size_t)at + 16 < room; r++) {
        if (!listed[r])
            continue;
        int end = r;
        while (end + 1 < size && listed[end + 1])
            end++;
        if (end < r + 2)
            end = r;
        at += snprintf(text + at, room - (size_t)at, end > r ? "%s%d-%d" : "%s%d", some++ ? ", " : " ", r, end);
        r = end;
    }
}

/* Ranks with a failure of their own, and those that this one took along: a line each. */
static void print_others(const struct job *job, int first)
{
    bool own[AH_BOARD_MAX_RANKS] = {false}, taken[AH_BOARD_MAX_RANKS] = {false};
    char ranks[1024], line[1024];
    int second = -1, victims = 0, blamed = atomic_load(&ah_board_slot(job->board, first)->blamed);
    for (int r = job->size; r-- > 0;) {
        struct ah_board_slot *slot = ah_board_slot(job->board, r);
        if (r == first || r == blamed || !(has_failed(job, r) || job->child[r].killed))
            continue;
        own[r] = atomic_load(&slot->state) == AH_RANK_FAILED && !atomic_load(&slot->victim);
        taken[r] = !own[r];
        victims += taken[r];
        second = own[r] ? r : second;
    }
    if (blamed >= 0)
        fprintf(stderr, "accelhost launch: rank %d did not come and was ended\n", blamed);
    if (second >= 0) {
        list_ranks(own, job->size, ranks, sizeof ranks);
        first_line(ah_board_slot(job->board, second)->text, line, sizeof line);
        fprintf(stderr, "accelhost launch: %s failed too: %s\n", ranks, line);
    }
    if (victims) {
        list_ranks(taken, job->size, ranks, sizeof ranks);
        fprintf(stderr, "accelhost launch: %s ended because of it\n", ranks);
    }
}

static void report(const struct job *job, int rank)
{
    const struct child *child = &job->child[rank];
    struct ah_board_slot *slot = ah_board_slot(job->board, rank);
    uint32_t posted = atomic_load(&slot->counter[AH_POSTED]);
    const struct ah_post *post = &slot->post[posted % AH_BOARD_POSTS];
    char last[160] = "";
    if (posted)
        snprintf(last, sizeof last, "; its last collective was %s #%u at %s", ah_collective_name(post->kind), posted,
                 post->where);
    if (atomic_load(&slot->state) == AH_RANK_FAILED) {
        const char *line = slot->text;
        for (int i = 0; i < 4 && *line; i++) {
            int length = (int)strcspn(line, "\n");
            if (i == 0)
                fprintf(stderr, "accelhost launch: rank %d failed: %.*s\n", rank, length, line);
            else
                fprintf(stderr, "%.*s\n", length, line);
            line += length + (line[length] != 0);
        }
    } else if (child->signal) {
        const char *name = sigabbrev_np(child->signal);
        fprintf(stderr, "accelhost launch: rank %d was killed by SIG%s%s%s\n", rank, name ? name : "?",
                child->signal == SIGKILL ? " (out of memory, or kill -9)" : "", last);
    } else {
        fprintf(stderr, "accelhost launch: rank %d exited with code %d%s\n", rank, child->code, last);
    }
    print_others(job, rank);
}

static int exit_code(const struct job *job)
{
    if (job->signal)
        return 128 + job->signal;
    if (job->output_error) {
        fprintf(stderr, "accelhost launch: cannot write what the ranks print: %s\n", strerror(job->output_error));
        return 3;
    }
    int first = first_failure(job);
    if (first < 0)
        return 0;
    /* A single rank writes to our output itself: what ends it would have ended us. */
    if (job->size == 1 && job->child[0].signal == SIGPIPE)
        return 128 + SIGPIPE;
    bool usage = true;
    for (int r = 0; r < job->size; r++)
        usage &= job->child[r].code == 2 && !atomic_load(&ah_board_slot(job->board, r)->counter[AH_POSTED]);
    if (usage)
        return 2; /* the ranks have said why */
    report(job, first);
    return atomic_load(&ah_board_slot(job->board, first)->group_status) == AH_ETIMEOUT ? 4 : 3;
}

static int watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 4; i++) {
        struct sigaction now;
        /* What nohup or a shell's background made us ignore stays ignored. */
        if (sigaction(numbers[i], NULL, &now) || now.sa_handler != SIG_IGN)
            sigaddset(&set, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static void describe_terminal(struct ah_board_header *header)
{
    struct winsize window = {0};
    header->stdout_is_terminal = isatty(STDOUT_FILENO);
    header->stderr_is_terminal = isatty(STDERR_FILENO);
    if (!ioctl(header->stdout_is_terminal ? STDOUT_FILENO : STDERR_FILENO, TIOCGWINSZ, &window))
        header->columns = window.ws_col;
    header->reports = true;
}

int ah_cli_launch(int argc, char **argv)
{
    struct launch_options options = {.processes = 1, .grace = 30};
    int script = parse(argc, argv, &options);
    if (script < 0)
        return -1 - script;
    if (!strcmp(argv[script], "-e")) {
        if (script + 1 == argc)
            return ah_usage("launch", "-e expects code");
    } else if (ah_check_script("launch", argv[script])) {
        return 2;
    }

    static struct job job;
    job.options = &options;
    job.size = (int)options.processes;
    job.deadline = -1;
    char **command = calloc((size_t)(argc - script) + 3, sizeof *command);
    int code = 3, signals = watch_signals();
    if (!command || signals < 0 || ah_board_create(&job.board, job.size)) {
        fprintf(stderr, "accelhost launch: %s\n", command && signals >= 0 ? ah_error_text() : strerror(errno));
        free(command);
        return 3;
    }
    describe_terminal(job.board->header);
    command[0] = (char *)"accelhost";
    command[1] = (char *)"run";
    memcpy(command + 2, argv + script, (size_t)(argc - script) * sizeof *command);
    int status = 0;
    /* A single rank writes to our output itself. */
    if (job.size > 1) {
        AH_TRYGO(ah_output_open(&job.output[0], STDOUT_FILENO, job.size, job.board->header->stdout_is_terminal), out);
        AH_TRYGO(ah_output_open(&job.output[1], STDERR_FILENO, job.size, job.board->header->stderr_is_terminal), out);
    }
    fflush(NULL);
    for (int r = 0; r < job.size; r++)
        AH_TRYGO(start_rank(&job, r, command), out);
    supervise(&job, signals);
out:
    if (status < 0) {
        fprintf(stderr, "accelhost launch: %s\n", ah_error_text());
        signal_ranks(&job, SIGKILL, true);
    }
    for (int s = 0; s < 2; s++)
        ah_output_close(job.output[s]);
    if (!status)
        code = exit_code(&job);
    ah_board_close(job.board);
    close(signals);
    free(command);
    return code;
}
