/* A control block may be open in several processes (loader workers are forks): its inode identifies it. */
#include "comm/control/jobs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/process.h"

int ah_jobs_pid(const struct ah_seen_job *job, int rank)
{
    int pid = atomic_load(&ah_rank_entry(job->control, rank)->pid);
    return pid ? ah_process_pid_here(job->holder, pid) : 0;
}

/* The launcher starts rank 0; a script that runs alone is rank 0. */
static int pid_of(const struct ah_seen_job *job)
{
    struct ah_process process;
    struct ah_control_block *control = job->control;
    for (int r = 0; r < control->size; r++) {
        int pid = ah_jobs_pid(job, r);
        if (pid && !control->header->reports)
            return pid;
        if (pid && ah_process_look(pid, &process) && process.state != 'Z')
            return process.parent;
    }
    return 0;
}

enum { MOST = 256 };

struct search {
    struct ah_seen_job *jobs;
    int count, most;
    ino_t inode[MOST];
};

static bool is_known(const struct search *search, ino_t inode)
{
    for (int i = 0; i < search->count; i++)
        if (search->inode[i] == inode)
            return true;
    return false;
}

static void look_behind(struct search *search, int holder, const char *name)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d/fd/%.16s", holder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (search->count < search->most && search->count < MOST && !fstat(fd, &info) &&
        !is_known(search, info.st_ino)) {
        struct ah_seen_job *job = &search->jobs[search->count];
        ah_control_look(&job->control, fd);
        if (job->control) {
            job->holder = holder;
            job->pid = pid_of(job);
            job->pid = job->pid ? job->pid : holder;
            search->inode[search->count++] = info.st_ino;
        }
    }
    close(fd);
}

static void search_process(struct search *search, int pid)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        if (!strncmp(target, "/memfd:" AH_CONTROL_NAME " ", sizeof "/memfd:" AH_CONTROL_NAME))
            look_behind(search, pid, entry->d_name);
    }
    closedir(folder);
}

static int by_pid(const void *a, const void *b)
{
    return ((const struct ah_seen_job *)a)->pid - ((const struct ah_seen_job *)b)->pid;
}

int ah_jobs_see(struct ah_seen_job *jobs, int most)
{
    struct search search = {.jobs = jobs, .most = most};
    struct stat info;
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0]) && !fstatat(dirfd(proc), entry->d_name, &info, 0) &&
            info.st_uid == geteuid())
            search_process(&search, (int)strtol(entry->d_name, NULL, 10));
    closedir(proc);
    qsort(jobs, (size_t)search.count, sizeof *jobs, by_pid);
    return search.count;
}

static struct ah_group_block *latest_group(const struct ah_control_block *control, int rank)
{
    struct ah_rank_entry *slot = &control->header->slot[rank];
    int latest = atomic_load(&slot->latest);
    return &slot->block[latest >= 0 && latest < AH_MAX_GROUPS ? latest : 0];
}

bool ah_jobs_waits(const struct ah_control_block *control, int rank)
{
    struct ah_rank_entry *slot = &control->header->slot[rank];
    struct ah_group_block *block = latest_group(control, rank);
    return atomic_load(&slot->counters.waits) &&
           !ah_reached(ah_group_counter(block, AH_DONE), ah_group_counter(block, AH_ISSUED));
}

const struct ah_awaited *ah_jobs_awaited(const struct ah_control_block *control, int rank)
{
    const struct ah_awaited *awaited = &control->header->slot[rank].awaited;
    int what = atomic_load(&awaited->what);
    return what == AH_AWAITS_MESSAGE || what == AH_AWAITS_RECEIVER ? awaited : NULL;
}

int ah_jobs_members(const struct ah_control_block *control, int rank, int *member)
{
    struct ah_group_block *block = latest_group(control, rank);
    int count = 0;
    for (int r = 0; r < control->size; r++)
        if (atomic_load(&block->members[r / 64]) >> r % 64 & 1)
            member[count++] = r;
    return count;
}

/* List the members of a group that have not reached the call that this one has issued. */
static int jobs_missing(const struct ah_control_block *control, int rank, int *waited)
{
    int member[AH_MAX_RANKS], count = 0, members = ah_jobs_members(control, rank, member);
    struct ah_group_block *mine = latest_group(control, rank);
    ptrdiff_t which = mine - control->header->slot[rank].block;
    uint32_t issued = ah_group_counter(mine, AH_ISSUED);
    for (int i = 0; i < members; i++) {
        struct ah_group_block *theirs = &control->header->slot[member[i]].block[which];
        if (member[i] != rank && !ah_reached(ah_group_counter(theirs, AH_ISSUED), issued))
            waited[count++] = member[i];
    }
    return count;
}

int ah_jobs_waited(const struct ah_control_block *control, int rank, int *waited)
{
    const struct ah_awaited *awaited = ah_jobs_awaited(control, rank);
    int peer = awaited ? atomic_load(&awaited->peer) : -1;
    if (awaited && peer >= 0 && peer < control->size)
        waited[0] = peer;
    if (awaited)
        return peer >= 0 && peer < control->size;
    return ah_jobs_waits(control, rank) ? jobs_missing(control, rank, waited) : 0;
}
