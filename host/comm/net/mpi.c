/* The entry point to MPI: opens the plugin once. */
#include "comm/net/mpi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process/plugin.h"
#include "base/status/status.h"

static const struct ah_mpi_driver *driver;
static int64_t limit_ns; /* 0: MPI was not begun */
static pid_t begun_by;

static int find_driver(void)
{
    const void *found = NULL;
    if (driver)
        return 0;
    AH_TRY(ah_plugin_open("mpi", "ah_mpi_plugin", AH_MPI_ABI,
                          "transport mpi is Open MPI's (Debian: openmpi-bin; to build: libopenmpi-dev)", &found));
    AH_TRY(ah_transport_register(((const struct ah_mpi_driver *)found)->transport));
    driver = found;
    return 0;
}

int ah_mpi_choose(const struct ah_topology *topology, bool *chosen)
{
    const char *transport = getenv("ACCELHOST_WIRE"), *address = getenv("MASTER_ADDR");
    char path[4096];
    bool silent = !transport || !*transport;
    *chosen = !silent && !strcmp(transport, "mpi");
    if (!silent && !*chosen && strcmp(transport, "tcp") != 0)
        return ah_fail(AH_EINVAL, "ACCELHOST_WIRE: expected tcp or mpi, got '%s'", transport);
    if (*chosen && topology->by == AH_BY_RANK)
        return ah_fail(AH_EINVAL, "ACCELHOST_WIRE: mpi is for ranks that mpirun or srun has started; RANK and "
                       "WORLD_SIZE are no business of theirs");
    /* MPI_Init would end the process with a page of advice. */
    if (*chosen && topology->by == AH_BY_SLURM && !getenv("PMIX_RANK") && !getenv("PMI_RANK") && !getenv("PMI_FD"))
        return ah_fail(AH_EINVAL, "ACCELHOST_WIRE: mpi needs srun --mpi=pmix, or another plugin that suits it (srun "
                      "--mpi=list prints the available ones); tcp needs none");
    if (silent && topology->by == AH_BY_OPENMPI && !(address && *address))
        *chosen = ah_plugin_find("mpi", path, sizeof path);
    return 0;
}

int ah_mpi_begin(const struct ah_topology *topology, int64_t timeout_ns)
{
    AH_TRY(find_driver());
    AH_TRY(driver->begin(topology, timeout_ns));
    limit_ns = timeout_ns;
    begun_by = getpid();
    return 0;
}

int ah_mpi_share(void *memory, size_t bytes, int64_t timeout_ns)
{
    return driver->share(memory, bytes, timeout_ns);
}

void ah_mpi_end(void)
{
    if (limit_ns && begun_by == getpid())
        driver->end(limit_ns);
    limit_ns = 0;
}
