/* The rendezvous of the leaders of a job's hosts, in the store that rank 0's host serves. */
#pragma once

#include "comm/control/hosts.h"
#include "comm/control/topology.h"

/* Find the address of the store in the environment: MASTER_ADDR and MASTER_PORT, or the variables of Slurm and Open
 * MPI; the secret (secret.h) and the generation. AH_EINVAL names a missing variable. The texts it points to live as
 * long as the process. */
int ah_rendezvous_store_options(const struct ah_topology *topology, struct ah_store_options *out);

/* Meet the leaders of the other hosts. Rank 0 serves the store, until its process ends. */
int ah_rendezvous_hosts(const struct ah_topology *topology, int64_t timeout_ns, int64_t stall_warning_ns,
                        struct ah_hosts *out);
