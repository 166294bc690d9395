/* One mapping of the control block, kept for the whole process; a fork of the process is no rank and reports nothing.
 */
#include "comm/join/rank.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "comm/control/control_block.h"
#include "comm/control/secret.h"
#include "comm/control/topology.h"
#include "comm/join/membership.h"
#include "comm/join/rendezvous.h"
#include "comm/join/rendezvous_hosts.h"
#include "comm/net/mpi.h"
#include "comm/net/replica.h"
#include "comm/recover/recover.h"

static struct ah_control_block *attached;
static struct ah_control_block *rank_alone; /* of a process that is in no job */
static int attached_rank;
static struct ah_hosts rank_hosts; /* of the job; count 0: one */
static pid_t attached_pid; /* a fork of this process is no rank */

static void at_exit(void)
{
    ah_rank_report_end();
}

/* A program that a rank has started inherits the rank's variables, but is no rank: it runs by itself. */
static void forget_parent_rank(void)
{
    if (getenv(AH_JOB_MARK))
        ah_topology_forget();
}

static void take_place(struct ah_control_block *control, int rank)
{
    attached = control;
    attached_rank = rank;
    attached_pid = getpid();
    ah_counters_move(&ah_rank_entry(control, rank)->counters);
    ah_control_close(rank_alone);
    rank_alone = NULL;
    atomic_store(&ah_rank_entry(attached, attached_rank)->pid, (int)attached_pid);
    ah_recovery_join(control, rank);
    atexit(at_exit);
}

int ah_rank_rendezvous(struct ah_control_block **out)
{
    struct ah_topology topology;
    struct ah_control_block *control;
    char mark[32];
    AH_TRY(ah_rank_attach(out));
    AH_TRY(ah_topology_from_environment(&topology));
    if (*out || topology.size == 1)
        return 0;
    AH_TRY(ah_rendezvous_local(&control, &topology, &rank_hosts));
    if (rank_hosts.count > 1) {
        AH_TRY(ah_control_place(control, &rank_hosts));
        ah_secret_forget();
    }
    take_place(control, topology.rank);
    /* Children of this rank inherit its RANK, and are no ranks. */
    snprintf(mark, sizeof mark, "met-%d", (int)attached_pid);
    setenv(AH_JOB_MARK, mark, 1);
    *out = attached;
    return 0;
}

/* Read the launcher's description of the job's hosts, if there are several. */
static int read_hosts(const struct ah_topology *topology)
{
    const char *text = getenv("ACCELHOST_HOSTS");
    bool by_mpi;
    if (!text)
        return 0;
    AH_TRY(ah_hosts_read(&rank_hosts, text));
    AH_TRY(ah_mpi_choose(topology, &by_mpi)); /* a launcher's are no ranks of MPI's */
    return topology->local_rank == 0 ? ah_rendezvous_store_options(topology, &rank_hosts.store) : 0;
}

int ah_rank_attach(struct ah_control_block **out)
{
    struct ah_topology topology;
    const char *text = getenv("ACCELHOST_CONTROL_BLOCK");
    *out = attached;
    if (!attached && !text)
        forget_parent_rank();
    if (attached || !text)
        return 0;
    char *end;
    errno = 0;
    long fd = strtol(text, &end, 10);
    if (errno || end == text || *end || fd < 0 || fd > INT_MAX)
        return ah_fail(AH_EINVAL, "ACCELHOST_CONTROL_BLOCK: expected a descriptor number, got '%s'", text);
    AH_TRY(ah_topology_from_environment(&topology));
    AH_TRY(read_hosts(&topology));
    AH_TRY(ah_control_open(&attached, (int)fd, topology.rank, NULL));
    if (attached->size != topology.size) {
        int size = attached->size;
        ah_control_close(attached);
        attached = NULL;
        return ah_fail(AH_EINVAL, "WORLD_SIZE is %d, but the job's control block has %d ranks", topology.size, size);
    }
    if (rank_hosts.count > 1) {
        AH_TRY(ah_control_place(attached, &rank_hosts));
        ah_secret_forget();
    }
    /* These mean nothing to programs that the script starts. */
    unsetenv("ACCELHOST_CONTROL_BLOCK");
    unsetenv("ACCELHOST_HOSTS");
    take_place(attached, topology.rank);
    *out = attached;
    return 0;
}

void ah_rank_show_alone(void)
{
    if (attached || rank_alone || ah_control_create(&rank_alone, 1) < 0)
        return;
    ah_counters_move(&ah_rank_entry(rank_alone, 0)->counters);
    atomic_store(&ah_rank_entry(rank_alone, 0)->pid, (int)getpid());
}

int ah_rank_control_alone(struct ah_control_block **out)
{
    AH_TRY(ah_rank_attach(out));
    if (*out)
        return 0;
    ah_rank_show_alone();
    *out = rank_alone;
    return rank_alone ? 0 : ah_fail(AH_ENOMEM, "no control block for a job of one process");
}

/* Leave the other hosts, as a leader: they receive the ends of this one's ranks, which may last as long as the
 * ranks. */
static void part_from_hosts(void)
{
    if (!attached->replica)
        return;
    ah_replica_linger(attached->replica);
    ah_replica_part(attached->replica);
}

bool ah_rank_lost_peer(void)
{
    return attached && getpid() == attached_pid &&
           atomic_load(&ah_rank_entry(attached, attached_rank)->group_status) == AH_EPEER;
}

bool ah_rank_report_failure(const char *traceback, bool victim)
{
    if (!attached || getpid() != attached_pid)
        return false;
    ah_control_leave(attached, attached_rank, AH_RANK_FAILED, traceback, victim || ah_rank_lost_peer());
    part_from_hosts();
    return attached->header->reports;
}

bool ah_rank_report_end(void)
{
    if (!attached || getpid() != attached_pid)
        return true;
    struct ah_rank_entry *slot = ah_rank_entry(attached, attached_rank);
    int status = atomic_load(&slot->group_status);
    if (status == 0) {
        ah_control_return(attached, attached_rank); /* a replacement may have had nothing to call */
        ah_control_leave(attached, attached_rank, AH_RANK_ENDED, NULL, false);
        part_from_hosts();
        return true;
    }
    if (atomic_load(&slot->state) == AH_RANK_FAILED)
        return false; /* and has reported the reason */
    char text[sizeof slot->group_text + 96];
    snprintf(text, sizeof text, "a collective failed and the script continued without it (let its error end the "
             "script): %s", slot->group_text);
    if (attached->header->alone)
        ah_notice("%s", text);
    ah_control_leave(attached, attached_rank, AH_RANK_FAILED, text, status == AH_EPEER);
    part_from_hosts();
    return false;
}

void ah_rank_begin_line(int line)
{
    if (attached)
        atomic_store(&ah_rank_entry(attached, attached_rank)->line, line);
}

void ah_rank_end_line(int line)
{
    if (!attached)
        return;
    atomic_store(&ah_rank_entry(attached, attached_rank)->line_done, line);
    ah_control_wake(attached);
}

bool ah_rank_terminal(int fd, int *columns)
{
    if (attached && !attached->header->alone) {
        *columns = attached->header->columns;
        return fd == STDERR_FILENO ? attached->header->stderr_is_terminal : attached->header->stdout_is_terminal;
    }
    struct winsize window = {0};
    bool terminal = isatty(fd);
    *columns = terminal && !ioctl(fd, TIOCGWINSZ, &window) ? window.ws_col : 0;
    return terminal;
}
