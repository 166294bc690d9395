/* Starting a job: room for its descriptors, its control block, its mark, its reaper, then each rank with its own
 * environment. Invariant: whatever fails, ah_job_close undoes all steps. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "cli/base/environment.h"
#include "cli/job/job_state.h"
#include "cli/job/orphans.h"
#include "comm/control/replay_log.h"
#include "comm/join/membership.h"

/* Is it a connection of a store that this process serves? These are left out: any process may open some. */
static bool is_connection(const char *name)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd = (int)strtol(name, NULL, 10);
    return !getpeername(fd, (struct sockaddr *)&address, &length) && address.ss_family != AF_UNIX;
}

static rlim_t open_descriptors(void)
{
    rlim_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        count += !is_connection(entry->d_name);
    if (folder)
        closedir(folder);
    return count;
}

/* Make room for the descriptors that `ranks` ranks need here, and for connections of other machines where there are
 * some; return the soft limit to restore in the ranks, or 0. */
static int make_room(int ranks, bool machines, uint64_t *before)
{
    struct rlimit limit;
    rlim_t connections = machines ? AH_STORE_STRANGERS + 2 * AH_HOSTS_MAX : 0;
    rlim_t needed = (rlim_t)ranks * 8 + 64 + connections + open_descriptors();
    *before = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
        return 0;
    if (limit.rlim_max < needed)
        return ah_fail(AH_EIO, "%d ranks need %llu file descriptors, and the limit is %llu (ulimit -Hn)", ranks,
                       (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    *before = limit.rlim_cur;
    limit.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        return ah_fail(AH_EIO, "cannot raise the limit of file descriptors to %llu: %s", (unsigned long long)needed,
                       strerror(errno));
    return 0;
}

static void make_mark(struct ah_job *job)
{
    const char *outer = getenv(AH_JOB_MARK);
    snprintf(job->mark, sizeof job->mark, "%s%d.%lld/", outer && strlen(outer) < 200 ? outer : "", (int)getpid(),
             (long long)ah_now_ns());
}

static int describe_rank(const struct ah_job *job, struct ah_environment *environment, int rank)
{
    AH_TRY(ah_environment_set(environment, true, "RANK", "%d", job->first + rank));
    return ah_environment_set(environment, true, "LOCAL_RANK", "%d", rank);
}

/* Add the caller's variables. */
static int add_variables(const struct ah_job *job, struct ah_environment *environment)
{
    for (const char *const *at = job->options.variables; at && *at; at++) {
        char name[64];
        size_t bytes = strcspn(*at, "=");
        snprintf(name, sizeof name, "%.*s", (int)bytes, *at);
        AH_TRY(ah_environment_set(environment, true, name, "%s", *at + bytes + 1));
    }
    return 0;
}

/* The leader among the ranks finds the store by MASTER_ADDR and MASTER_PORT. */
static int describe_hosts(const struct ah_job *job, struct ah_environment *environment)
{
    static char text[AH_HOSTS_TEXT];
    const struct ah_hosts *hosts = job->options.hosts;
    AH_TRY(ah_environment_set(environment, true, "GROUP_RANK", "%d", hosts ? hosts->mine : 0));
    AH_TRY(ah_environment_set(environment, true, "GROUP_WORLD_SIZE", "%d", hosts ? hosts->count : 1));
    if (!hosts)
        return 0;
    ah_hosts_write(hosts, text, sizeof text);
    AH_TRY(ah_environment_set(environment, true, "ACCELHOST_HOSTS", "%s", text));
    AH_TRY(ah_environment_set(environment, true, "MASTER_ADDR", "%s", hosts->store.host));
    AH_TRY(ah_environment_set(environment, true, "MASTER_PORT", "%d", hosts->store.port));
    AH_TRY(ah_environment_set(environment, true, "ACCELHOST_RDZV_ID", "%s", hosts->store.job ? hosts->store.job : ""));
    if (!hosts->store.secret_bytes)
        return ah_environment_set(environment, true, "ACCELHOST_SECRET_FILE", "none");
    return ah_environment_set(environment, true, "ACCELHOST_SECRET", "%.*s", (int)hosts->store.secret_bytes,
                              (const char *)hosts->store.secret);
}

static int describe_job(const struct ah_job *job, struct ah_environment *environment)
{
    double share = floor((double)ah_cpu_count() / job->size);
    AH_TRY(describe_hosts(job, environment));
    AH_TRY(ah_environment_set(environment, true, "WORLD_SIZE", "%d", job->control->size));
    AH_TRY(ah_environment_set(environment, true, "LOCAL_WORLD_SIZE", "%d", job->size));
    AH_TRY(ah_environment_set(environment, false, "MASTER_ADDR", "127.0.0.1"));
    AH_TRY(ah_environment_set(environment, true, "ACCELHOST_CONTROL_BLOCK", "%d", job->control->fd));
    AH_TRY(ah_environment_set(environment, true, AH_JOB_MARK, "%s", job->mark));
    if (job->options.timeout > 0)
        AH_TRY(ah_environment_set(environment, true, "ACCELHOST_TIMEOUT", "%.9g", job->options.timeout));
    AH_TRY(ah_environment_set(environment, true, "ACCELHOST_PATIENCE", "%.9g", (double)job->stall_warning_ns / 1e9));
    if (job->options.threads > 0)
        return ah_environment_set(environment, true, "OMP_NUM_THREADS", "%d", job->options.threads);
    return ah_environment_set(environment, false, "OMP_NUM_THREADS", "%.0f", share < 1 ? 1 : share);
}

/* Under OMP_PROC_BIND libgomp binds the threads of a process to the processors of its mask, from the first on: ranks
 * get disjoint parts of the mask, or all of them would be bound to the same processors. This process is bound itself,
 * so that its ranks would inherit one processor. Places with braces are the user's own. */
static bool place_rank(const struct ah_job *job, int rank, struct ah_affinity *affinity)
{
    const char *binds = getenv("OMP_PROC_BIND"), *places = getenv("OMP_PLACES");
    if (!binds || !*binds || !strncasecmp(binds, "false", 5))
        return false;
    bool explicit = places && strchr(places, '{');
    ah_affinity_part(explicit ? 0 : rank, explicit ? 1 : job->size, affinity);
    return true;
}

/* One end of a rank's channel goes into the plan, for the rank to inherit; the other one is the job's. */
static int make_channel(struct ah_job *job, int rank, struct ah_rank_plan *plan, struct ah_environment *environment)
{
    int ends[2];
    if (!job->options.message)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return ah_fail(AH_EIO, "rank %d: cannot make a channel: %s", rank, strerror(errno));
    plan->channel = ends[1];
    AH_TRY(ah_job_open_channel(job, rank, ends[0]));
    return ah_environment_set(environment, true, "ACCELHOST_CHANNEL", "%d", ends[1]);
}

/* The process in the place of one that has ended. */
static int replace_rank(struct ah_job *job, int rank, const struct ah_rank_plan *plan)
{
    struct ah_rank_process *process = &job->rank[rank];
    ah_reaper_remove(&job->reaper, process->pid);
    ah_job_watch_source(job, rank, AH_JOB_EXIT, process->watch.fd, false);
    AH_TRY(ah_rank_process_replace(process, plan));
    ah_reaper_add(&job->reaper, process->pid);
    return ah_job_watch_source(job, rank, AH_JOB_EXIT, process->watch.fd, true);
}

static int start_rank(struct ah_job *job, int rank, const struct ah_rank_plan *plan)
{
    struct ah_rank_process *process = &job->rank[rank];
    int status = ah_rank_process_start(process, plan);
    if (status < 0)
        return ah_fail_prefix(status, "rank %d", job->first + rank);
    job->running++;
    ah_reaper_add(&job->reaper, process->pid);
    AH_TRY(ah_job_watch_source(job, rank, AH_JOB_EXIT, process->watch.fd, true));
    for (int s = 0; s < 2; s++) {
        job->open_pipes += process->pipe[s] >= 0;
        AH_TRY(ah_job_watch_source(job, rank, AH_JOB_OUTPUT + s, process->pipe[s], true));
    }
    return 0;
}

/* The rank's end is the rank's. */
static void close_end(struct ah_rank_plan *plan)
{
    if (plan->channel >= 0)
        close(plan->channel);
    plan->channel = -1;
}

/* Ranks from `first` on, for the first time or again. */
static int start_ranks(struct ah_job *job, int first, int count, bool again)
{
    int status = 0;
    struct ah_environment environment;
    struct ah_affinity affinity;
    struct ah_rank_plan plan = {
        .control = job->control,
        .argv = job->options.argv,
        .pipes = job->options.output,
        .keeps = job->options.recovers,
        .script = job->options.script,
        .descriptors = job->descriptors,
        .channel = -1,
    };
    AH_TRY(ah_environment_copy(&environment));
    AH_TRYGO(describe_job(job, &environment), out);
    AH_TRYGO(add_variables(job, &environment), out);
    for (int r = first; r < first + count; r++) {
        AH_TRYGO(describe_rank(job, &environment, r), out);
        AH_TRYGO(make_channel(job, r, &plan, &environment), out);
        plan.environment = environment.at;
        plan.affinity = place_rank(job, r, &affinity) ? &affinity : NULL;
        AH_TRYGO(again ? replace_rank(job, r, &plan) : start_rank(job, r, &plan), out);
        close_end(&plan);
    }
out:
    close_end(&plan);
    ah_environment_close(&environment);
    return status;
}

int ah_job_start_again(struct ah_job *job, int rank)
{
    ah_job_close_channel(job, rank);
    return start_ranks(job, rank, 1, true);
}

static int read_stall_warning(struct ah_job *job)
{
    job->stall_warning_ns = (int64_t)(job->options.stall_warning * 1e9);
    if (!job->stall_warning_ns)
        AH_TRY(ah_seconds_from_environment("ACCELHOST_PATIENCE", AH_STALL_WARNING_S, &job->stall_warning_ns));
    job->watch_ns = ah_job_next_watch(job, job->started_ns);
    return 0;
}

int ah_job_start(struct ah_job **out, const struct ah_job_options *options)
{
    int status = 0;
    if (options->ranks < 1 || options->ranks > AH_MAX_RANKS)
        return ah_fail(AH_EINVAL, "expected 1..%d ranks, got %d", AH_MAX_RANKS, options->ranks);
    struct ah_job *job = calloc(1, sizeof *job + (size_t)options->ranks * sizeof job->rank[0]);
    AH_TRY_MEMORY(job, "out of memory");
    job->options = *options;
    job->size = options->ranks;
    job->first = options->hosts ? options->hosts->first[options->hosts->mine] : 0;
    snprintf(job->name, sizeof job->name, "%s", options->name ? options->name : "accelhost launch");
    job->deadline = job->alone_ns = -1;
    job->reaper.socket = -1;
    job->started_ns = ah_now_ns();
    make_mark(job);
    job->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (job->epoll < 0) {
        status = ah_fail(AH_EIO, "cannot watch ranks: %s", strerror(errno));
        goto out;
    }
    AH_TRYGO(read_stall_warning(job), out);
    int ranks = options->hosts ? options->hosts->first[options->hosts->count] : job->size;
    AH_TRYGO(make_room(ranks, options->hosts != NULL, &job->descriptors), out);
    AH_TRYGO(ah_control_create(&job->control, ranks), out);
    if (options->recovers)
        AH_TRYGO(ah_replay_enable(job->control), out);
    if (options->hosts)
        AH_TRYGO(ah_control_place(job->control, options->hosts), out);
    job->control->header->stdout_is_terminal = options->terminal[0];
    job->control->header->stderr_is_terminal = options->terminal[1];
    job->control->header->columns = options->columns;
    job->control->header->reports = true;
    AH_TRYGO(ah_reaper_start(&job->reaper, job->mark), out);
    AH_TRYGO(start_ranks(job, 0, job->size, false), out);
    *out = job;
out:
    if (status < 0)
        ah_job_close(job);
    return status;
}
