/* The identity of a process, from the environment. */
#include <stdlib.h>

#include "comm/control/topology.h"
#include "test.h"

static const char *const names[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
    "ACCELHOST_JOB", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID",
    "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS",
};
enum { NAMES = sizeof names / sizeof *names };

static char *saved[NAMES];

static void topology_clear(void)
{
    for (int i = 0; i < NAMES; i++)
        unsetenv(names[i]);
}

/* "RANK=1 WORLD_SIZE=4" and nothing else. */
static void set_variables(const char *variables)
{
    char text[512], *rest = text;
    topology_clear();
    snprintf(text, sizeof text, "%s", variables);
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        char *value = strchr(word, '=');
        *value = 0;
        setenv(word, value + 1, 1);
    }
}

static void topology_keep(void)
{
    for (int i = 0; i < NAMES; i++)
        saved[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
}

static void topology_restore(void)
{
    topology_clear();
    for (int i = 0; i < NAMES; i++) {
        if (saved[i])
            setenv(names[i], saved[i], 1);
        free(saved[i]);
    }
}

static struct ah_topology topology_read(const char *variables)
{
    struct ah_topology topology = {0};
    set_variables(variables);
    CHECK_OK(ah_topology_from_environment(&topology));
    return topology;
}

static void topology_refuse(const char *variables, const char *text)
{
    struct ah_topology topology;
    set_variables(variables);
    CHECK_FAILS(ah_topology_from_environment(&topology), AH_EINVAL, text);
}

#define CHECK_TOPOLOGY(variables, r, s, lr, ls, h, hs)                                                          \
    do {                                                                                                        \
        struct ah_topology found = topology_read(variables);                                                    \
        CHECK(found.rank == (r) && found.size == (s) && found.local_rank == (lr) && found.local_size == (ls) && \
              found.host == (h) && found.hosts == (hs));                                                        \
    } while (0)

AH_TEST(topology_is_read_from_the_environment)
{
    topology_keep();
    CHECK_TOPOLOGY("", 0, 1, 0, 1, -1, 0);
    CHECK_TOPOLOGY("RANK=1 WORLD_SIZE=4", 1, 4, 1, 4, -1, 0);
    CHECK_TOPOLOGY("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2", 3, 4, 1, 2, 1,
                   2);
    CHECK_TOPOLOGY(
        "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2", 2, 4,
        0, 2, -1, 0);
    CHECK_TOPOLOGY("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", 1, 2, 0, 1, -1, 0);
    CHECK_TOPOLOGY("SLURM_PROCID=2 SLURM_NTASKS=3", 0, 1, 0, 1, -1, 0); /* a batch shell, not a step */
    CHECK_TOPOLOGY("SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_STEP_ID=0", 2, 3, 2, 3, -1, 0);
    CHECK_TOPOLOGY(
        "SLURM_PROCID=3 SLURM_NTASKS=5 SLURM_STEP_ID=0 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=3 "
        "SLURM_STEP_TASKS_PER_NODE=2(x2),1",
        3, 5, 1, 2, 1, 3);
    CHECK_TOPOLOGY(
        "SLURM_PROCID=4 SLURM_NTASKS=5 SLURM_STEP_ID=0 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_STEP_NUM_NODES=3 "
        "SLURM_STEP_TASKS_PER_NODE=2(x2),1",
        4, 5, 0, 1, 2, 3);
    topology_restore();
}

AH_TEST(topology_uses_the_first_complete_family)
{
    topology_keep();
    /* A batch script that sets the size for its ranks, as for PyTorch. */
    CHECK_TOPOLOGY("WORLD_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0", 1, 2, 1, 2, -1, 0);
    CHECK_TOPOLOGY("RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 1, 2, 1, 2, -1, 0);
    CHECK_TOPOLOGY("RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0", 1, 2, 1, 2, -1, 0);
    CHECK_TOPOLOGY("RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", 1, 2, 1,
                   2, -1, 0);
    CHECK_TOPOLOGY("RANK=1 WORLD_SIZE=2 ACCELHOST_JOB=1/ OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", 1, 2, 1, 2, -1,
                   0);
    CHECK_TOPOLOGY("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", 1, 2,
                   1, 2, -1, 0);
    topology_restore();
}

AH_TEST(topology_refuses_what_contradicts)
{
    topology_keep();
    topology_refuse("RANK=1", "RANK is set but WORLD_SIZE is not");
    topology_refuse("RANK=1 WORLD_SIZE=1", "RANK is 1 but WORLD_SIZE is 1");
    topology_refuse("RANK=1 WORLD_SIZE=x", "WORLD_SIZE: expected a number from 0, got 'x'");
    topology_refuse("WORLD_SIZE=3 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0",
                    "WORLD_SIZE is 3, but SLURM_NTASKS is 2");
    topology_refuse("RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2",
                    "RANK is 1 of 2, but OMPI_COMM_WORLD_RANK is 0 of 2");
    topology_refuse("RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0",
                    "RANK is 1 of 2, but SLURM_PROCID is 0");
    topology_refuse("PMI_RANK=0 PMI_SIZE=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4",
                    "PMI_SIZE is 1, but srun has started 4 tasks: its plugin for MPI does not suit");
    topology_refuse("RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is 2 with 2 local ranks of 4");
    topology_refuse("RANK=0 WORLD_SIZE=2 GROUP_RANK=2 GROUP_WORLD_SIZE=2", "GROUP_RANK is 2 but GROUP_WORLD_SIZE is 2");
    topology_refuse("SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_NODEID=4 SLURM_STEP_TASKS_PER_NODE=2(x2)",
                    "SLURM_STEP_TASKS_PER_NODE is '2(x2)', which has no entry for this node");
    topology_restore();
}

AH_TEST(topology_refuses_ranks_that_are_not_consecutive)
{
    topology_keep();
    topology_refuse("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
                    "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                    "rank 0 of 4 is number 1 of 2 here: mpirun --map-by slot places them so");
    topology_refuse("SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_LOCALID=1 SLURM_NODEID=0 "
                    "SLURM_STEP_TASKS_PER_NODE=2(x2)",
                    "rank 2 is number 1 of the host after 0 others: srun --distribution=block");
    topology_restore();
}

AH_TEST(slurm_s_lists_are_read)
{
    char name[32];
    int before, tasks;
    CHECK_OK(ah_slurm_tasks("3,2(x2),1", 2, &before, &tasks));
    CHECK(before == 5 && tasks == 2);
    CHECK_FAILS(ah_slurm_tasks("2(x", 0, &before, &tasks), AH_EINVAL, "has no entry for this node");
    CHECK_FAILS(ah_slurm_tasks("", 0, &before, &tasks), AH_EINVAL, "has no entry for this node");
    static const char *const lists[][2] = {
        {"alone", "alone"}, {"a,b", "a"}, {"node[1-3]", "node1"}, {"node[07,9]x,z", "node07x"},
        {"r[0-1]n[4-5]", "r0n4"}, {"broken[1-", "broken1"}, {"", ""},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        ah_slurm_first_node(lists[i][0], name, sizeof name);
        CHECK(!strcmp(name, lists[i][1]));
    }
}
