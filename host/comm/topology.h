/* Who this process is among the job's, as the environment tells. */
#ifndef AH_COMM_TOPOLOGY_H
#define AH_COMM_TOPOLOGY_H

/* Ranks count from 0. */
struct ah_topology {
    int rank, size, local_rank, local_size;
};

/* From RANK, LOCAL_RANK, WORLD_SIZE, ... as the launcher and torchrun set them, else as mpirun or srun do; absent:
 * rank 0 of 1. AH_EINVAL when the variables contradict each other. */
int ah_topology_from_environment(struct ah_topology *out);

#endif
