/* This process's rank in the job and the job's size, from the environment. */
#pragma once

#include <stddef.h>

/* The launcher whose variables are used. */
enum ah_started_by {
    AH_BY_NOBODY, /* a process by itself */
    AH_BY_RANK,   /* RANK and WORLD_SIZE: our launcher, torchrun, a script */
    AH_BY_OPENMPI,
    AH_BY_PMI, /* MPICH, Intel MPI */
    AH_BY_SLURM,
};

/* Ranks and hosts count from 0. */
struct ah_topology {
    int rank, size, local_rank, local_size;
    int host, hosts; /* this host's number, and their count; -1 and 0 where unknown */
    enum ah_started_by by;
};

/* From RANK, LOCAL_RANK, WORLD_SIZE, ... as the launcher and torchrun set them, else as mpirun or srun do; absent:
 * rank 0 of 1. AH_EINVAL when the variables contradict each other, and when the ranks of this host are known not to be
 * consecutive. */
int ah_topology_from_environment(struct ah_topology *out);
/* Return a sentence with the launcher's option that places ranks host by host: "mpirun --map-by slot ...". */
const char *ah_topology_block_option(enum ah_started_by by);

/* Remove the variables, for child processes that are no ranks. */
void ah_topology_forget(void);

/* Slurm's "2(x3),1": the tasks of a node, and of all before it; AH_EINVAL. */
int ah_slurm_tasks(const char *text, int node, int *before, int *tasks);
/* The first name of a list such as "node[07-12,20],other". */
void ah_slurm_first_node(const char *list, char *name, size_t room);
