/* MPI, as the plugin accelhost-mpi.so has it: how the ranks of mpirun or srun learn where rank 0's store is, and the
 * transport `mpi`. The plugin exports its `struct ah_mpi_driver` as `ah_mpi_plugin` and is opened by the first job on
 * several hosts that wants it.
 *
 * Every rank begins MPI, as MPI_Init waits for all that mpirun has started; but only the hosts' leaders talk by it. No
 * call waits without a deadline but MPI_Init itself, which nothing can end: then the process does. */
#pragma once

#include "comm/control/topology.h"
#include "comm/net/transport.h"

enum { AH_MPI_ABI = 2 };

struct ah_mpi_driver {
    unsigned abi; /* AH_MPI_ABI of the headers that the plugin was built with */
    const struct ah_transport_type *transport;
    /* AH_EINVAL when MPI does not have the job's ranks. */
    int (*begin)(const struct ah_topology *topology, int64_t timeout_ns);
    /* Broadcast memory from leader 0 to all leaders. AH_ETIMEOUT. */
    int (*share)(void *memory, size_t bytes, int64_t timeout_ns);
    /* Wait until all ranks are here, and finalize; not at all when something is still under way. */
    void (*end)(int64_t timeout_ns);
};

/* Does the job move its bytes by MPI? As set by ACCELHOST_WIRE; else a job of mpirun without MASTER_ADDR does, if the
 * plugin exists. AH_EINVAL for another name, and where nothing has started the ranks that MPI knows. */
int ah_mpi_choose(const struct ah_topology *topology, bool *chosen);
/* Open the plugin, register its transport, begin MPI. */
int ah_mpi_begin(const struct ah_topology *topology, int64_t timeout_ns);
int ah_mpi_share(void *memory, size_t bytes, int64_t timeout_ns);
/* At the end of a process that ends well. Nothing where MPI was not begun. */
void ah_mpi_end(void);
