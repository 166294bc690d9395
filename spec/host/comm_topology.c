/* Who a process is, from the environment. */
#include <stdlib.h>

#include "comm/topology.h"
#include "test.h"

AH_TEST(topology_comes_from_the_environment)
{
    struct ah_topology who;
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID",
                                        "SLURM_NTASKS", "SLURM_STEP_ID"};
    char *saved[7];
    for (int i = 0; i < 7; i++) {
        saved[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
        unsetenv(names[i]);
    }
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.rank == 0 && who.size == 1 && who.local_size == 1);
    setenv("RANK", "1", 1);
    CHECK_FAILS(ah_topology_from_environment(&who), AH_EINVAL, "RANK is set but WORLD_SIZE is not");
    setenv("WORLD_SIZE", "1", 1);
    CHECK_FAILS(ah_topology_from_environment(&who), AH_EINVAL, "RANK is 1 but WORLD_SIZE is 1");
    setenv("WORLD_SIZE", "x", 1);
    CHECK_FAILS(ah_topology_from_environment(&who), AH_EINVAL, "WORLD_SIZE: expected a number from 0, got 'x'");
    setenv("WORLD_SIZE", "4", 1);
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.rank == 1 && who.size == 4 && who.local_rank == 1 && who.local_size == 4);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    setenv("SLURM_PROCID", "2", 1);
    setenv("SLURM_NTASKS", "3", 1);
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.size == 1); /* a batch shell, not a step */
    setenv("SLURM_STEP_ID", "0", 1);
    CHECK_OK(ah_topology_from_environment(&who));
    CHECK(who.rank == 2 && who.size == 3);
    for (int i = 0; i < 7; i++) {
        if (saved[i])
            setenv(names[i], saved[i], 1);
        else
            unsetenv(names[i]);
        free(saved[i]);
    }
}
