/* The first family of variables that has a rank and a size wins; half a family is an error, not a guess. */
#include "comm/topology.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/status.h"

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
    const char *rank, *size, *local_rank, *local_size, *only_with;
} families[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID"},
};

int ah_topology_from_environment(struct ah_topology *out)
{
    *out = (struct ah_topology){0, 1, 0, 1};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        if (f->only_with && !getenv(f->only_with))
            continue;
        bool rank = getenv(f->rank), size = getenv(f->size);
        if (!rank && !size)
            continue;
        if (rank != size)
            return ah_fail(AH_EINVAL, "%s is set but %s is not", rank ? f->rank : f->size, rank ? f->size : f->rank);
        AH_TRY(read_integer(f->rank, &out->rank));
        AH_TRY(read_integer(f->size, &out->size));
        if (out->size < 1 || out->rank >= out->size)
            return ah_fail(AH_EINVAL, "%s is %d but %s is %d", f->rank, out->rank, f->size, out->size);
        out->local_rank = out->rank;
        out->local_size = out->size;
        if (f->local_rank && getenv(f->local_rank))
            AH_TRY(read_integer(f->local_rank, &out->local_rank));
        if (f->local_size && getenv(f->local_size))
            AH_TRY(read_integer(f->local_size, &out->local_size));
        if (out->local_size < 1 || out->local_size > out->size || out->local_rank >= out->local_size)
            return ah_fail(AH_EINVAL, "%s is %d with %d local ranks of %d", f->local_rank, out->local_rank,
                           out->local_size, out->size);
        return 0;
    }
    return 0;
}
