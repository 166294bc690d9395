/* The first family of variables that has a rank and a size wins; other families must not contradict it. Half a family
 * is an error, not a guess, unless a whole one has the same values. */
#include "comm/control/topology.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"

static int read_integer(const char *name, int *out)
{
    const char *text = getenv(name);
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > 1 << 24)
        return ah_fail(AH_EINVAL, "%s: expected a number from 0, got '%s'", name, text);
    *out = (int)value;
    return 0;
}

/* Slurm's variables alone mean a batch shell; a step has an id. */
static const struct family {
    const char *rank, *size, *local_rank, *local_size, *host, *hosts, *only_with, *block_option;
} families[] = {
    [AH_BY_RANK] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", NULL,
                    "RANK is LOCAL_RANK plus the ranks of the hosts before"},
    [AH_BY_OPENMPI] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                       "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, NULL, "mpirun --map-by slot places them so"},
    [AH_BY_PMI] = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL, NULL,
                   "mpiexec -ppn N places them so"},
    [AH_BY_SLURM] = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_NODEID", "SLURM_STEP_NUM_NODES",
                     "SLURM_STEP_ID", "srun --distribution=block places them so"},
};
enum { FAMILIES = sizeof families / sizeof *families };

static bool is_set(const char *name)
{
    return name && getenv(name);
}

/* Both of rank and size, one, or none. */
static int parts_of(const struct family *family)
{
    if (!family->rank || (family->only_with && !getenv(family->only_with)))
        return 0;
    return is_set(family->rank) + is_set(family->size);
}

static int read_pair(const struct family *family, int *rank, int *size)
{
    AH_TRY(read_integer(family->rank, rank));
    AH_TRY(read_integer(family->size, size));
    if (*size < 1 || *rank >= *size)
        return ah_fail(AH_EINVAL, "%s is %d but %s is %d", family->rank, *rank, family->size, *size);
    return 0;
}

/* A lone variable must equal that of the chosen family. */
static int check_half(const struct family *half, const struct ah_topology *topology)
{
    const char *given = is_set(half->rank) ? half->rank : half->size;
    const char *missing = given == half->rank ? half->size : half->rank;
    int value = 0;
    AH_TRY(read_integer(given, &value));
    if (topology->by == AH_BY_NOBODY)
        return ah_fail(AH_EINVAL, "%s is set but %s is not", given, missing);
    if (value == (given == half->rank ? topology->rank : topology->size))
        return 0;
    const struct family *whole = &families[topology->by];
    return ah_fail(AH_EINVAL, "%s is %d, but %s is %d", given, value, given == half->rank ? whole->rank : whole->size,
                   given == half->rank ? topology->rank : topology->size);
}

/* Check another whole family against the chosen one. A launcher inside another's process has its own ranks; Slurm's
 * variables, of the process that started them, are ignored then. */
static int check_other(const struct family *other, const struct ah_topology *topology)
{
    const struct family *own = &families[topology->by];
    bool slurm = other == &families[AH_BY_SLURM];
    int rank = 0, size = 1;
    if (topology->by != AH_BY_RANK || getenv("TORCHELASTIC_RUN_ID") || getenv("ACCELHOST_JOB"))
        return 0;
    AH_TRY(read_pair(other, &rank, &size));
    if ((rank == topology->rank && size == topology->size) || (slurm && size != topology->size))
        return 0;
    return ah_fail(AH_EINVAL, "%s is %d of %d, but %s is %d of %d: unset the one that is not meant", own->rank,
                   topology->rank, topology->size, other->rank, rank, size);
}

/* Check for an MPI library and srun that do not support each other: each task is then a job of one. */
static int check_lonely(const struct ah_topology *topology)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (topology->by != AH_BY_PMI || topology->size != 1 || !getenv("SLURM_STEP_ID") || !tasks ||
        strtol(tasks, NULL, 10) < 2)
        return 0;
    return ah_fail(AH_EINVAL, "PMI_SIZE is 1, but srun has started %s tasks: its plugin for MPI does not suit "
                  "(srun --mpi=list prints the available ones)", tasks);
}

static int read_local(struct ah_topology *topology)
{
    const struct family *family = &families[topology->by];
    topology->local_rank = topology->rank;
    topology->local_size = topology->size;
    if (is_set(family->local_rank))
        AH_TRY(read_integer(family->local_rank, &topology->local_rank));
    if (is_set(family->local_size))
        AH_TRY(read_integer(family->local_size, &topology->local_size));
    if (is_set(family->host))
        AH_TRY(read_integer(family->host, &topology->host));
    if (is_set(family->hosts))
        AH_TRY(read_integer(family->hosts, &topology->hosts));
    return 0;
}

/* Slurm's variables describe all nodes. */
static int read_slurm(struct ah_topology *topology)
{
    const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");
    int before;
    if (topology->by != AH_BY_SLURM || (!tasks && topology->hosts < 2) || topology->host < 0)
        return 0;
    if (!tasks)
        return ah_fail(AH_EINVAL, "SLURM_STEP_NUM_NODES is %d, but SLURM_STEP_TASKS_PER_NODE is not set",
                       topology->hosts);
    AH_TRY(ah_slurm_tasks(tasks, topology->host, &before, &topology->local_size));
    if (topology->rank == before + topology->local_rank)
        return 0;
    return ah_fail(AH_EINVAL, "the ranks of a host have to be consecutive, and rank %d is number %d of the host after "
                   "%d others: %s", topology->rank, topology->local_rank, before, families[AH_BY_SLURM].block_option);
}

static int check_local(const struct ah_topology *topology)
{
    const struct family *family = &families[topology->by];
    int size = topology->size, rank = topology->rank, local = topology->local_rank, locals = topology->local_size;
    if (locals < 1 || locals > size || local >= locals)
        return ah_fail(AH_EINVAL, "%s is %d with %d local ranks of %d", family->local_rank, local, locals, size);
    if (rank < local || rank - local + locals > size)
        return ah_fail(AH_EINVAL, "the ranks of a host have to be consecutive, and rank %d of %d is number %d of %d "
                       "here: %s", rank, size, local, locals, family->block_option);
    if (topology->hosts && topology->host >= topology->hosts)
        return ah_fail(AH_EINVAL, "%s is %d but %s is %d", family->host, topology->host, family->hosts,
                       topology->hosts);
    return 0;
}

int ah_topology_from_environment(struct ah_topology *out)
{
    *out = (struct ah_topology){.size = 1, .local_size = 1, .host = -1};
    for (int i = 0; i < FAMILIES && out->by == AH_BY_NOBODY; i++)
        if (parts_of(&families[i]) == 2)
            out->by = (enum ah_started_by)i;
    if (out->by != AH_BY_NOBODY)
        AH_TRY(read_pair(&families[out->by], &out->rank, &out->size));
    for (int i = 0; i < FAMILIES; i++) {
        int parts = i == (int)out->by ? 0 : parts_of(&families[i]);
        if (parts == 1 && (out->by == AH_BY_NOBODY || i < (int)out->by))
            AH_TRY(check_half(&families[i], out));
        if (parts == 2)
            AH_TRY(check_other(&families[i], out));
    }
    if (out->by == AH_BY_NOBODY)
        return 0;
    AH_TRY(check_lonely(out));
    AH_TRY(read_local(out));
    AH_TRY(read_slurm(out));
    return check_local(out);
}

const char *ah_topology_block_option(enum ah_started_by by)
{
    return families[by].block_option;
}

void ah_topology_forget(void)
{
    static const char *const more[] = {"MASTER_ADDR", "MASTER_PORT"};
    for (int i = 0; i < FAMILIES; i++) {
        const struct family *f = &families[i];
        const char *const names[] = {f->rank, f->size, f->local_rank, f->local_size, f->host, f->hosts};
        for (size_t j = 0; f->rank && j < sizeof names / sizeof *names; j++)
            if (names[j])
                unsetenv(names[j]);
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        unsetenv(more[i]);
}

/* Slurm's lists. */

int ah_slurm_tasks(const char *text, int node, int *before, int *tasks)
{
    *before = 0;
    for (const char *at = text; *at;) {
        char *end;
        long count = strtol(at, &end, 10), times = 1;
        if (end == at || count < 1 || count > 1 << 20)
            break;
        if (!strncmp(end, "(x", 2)) {
            at = end + 2;
            times = strtol(at, &end, 10);
            if (end == at || *end != ')' || times < 1)
                break;
            end++;
        }
        if (node < times) {
            *before += (int)count * node;
            *tasks = (int)count;
            return 0;
        }
        node -= (int)times;
        *before += (int)(count * times);
        at = end + (*end == ',');
    }
    return ah_fail(AH_EINVAL, "SLURM_STEP_TASKS_PER_NODE is '%s', which has no entry for this node", text);
}

void ah_slurm_first_node(const char *list, char *name, size_t room)
{
    size_t bytes = 0;
    for (const char *at = list; *at && *at != ',' && bytes + 1 < room; at++) {
        if (*at != '[') {
            name[bytes++] = *at;
            continue;
        }
        size_t first = strcspn(at + 1, "-,]");
        for (size_t i = 0; i < first && bytes + 1 < room; i++)
            name[bytes++] = at[1 + i];
        at += strcspn(at, "]");
        if (!*at)
            break;
    }
    name[bytes] = 0;
}
