/* Ranks without a common launcher: started by torchrun, by mpirun, by hand, they find each other on their host.
 *
 * The first rank of a host creates its control block and waits at an abstract socket, named by the user and by the
 * job's identity (MASTER_PORT, a run's id); the host's others connect there and receive its descriptors. The first
 * ranks of several hosts meet over TCP (rendezvous_hosts.h). Nothing has a name in the file system, and nothing is
 * left. No launcher monitors such a job: its ranks detect for themselves which ranks have died (ah_control_lost). */
#pragma once

#include "comm/control/control_block.h"
#include "comm/control/hosts.h"
#include "comm/control/topology.h"

/* The control block of this host, with rank entries for all ranks of the job, this process one of them; of a job on
 * several hosts also their table: its numbers and names, and for the first rank of a host the store's place. Waits as
 * long as a collective may (ACCELHOST_TIMEOUT): the first rank for all others, those for the first. Errors name the
 * contradiction: another number of ranks, a duplicate rank, ranks that are not consecutive, missing ranks
 * (AH_ETIMEOUT). */
int ah_rendezvous_local(struct ah_control_block **out, const struct ah_topology *topology, struct ah_hosts *hosts);
