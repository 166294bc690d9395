/* If no port of the store is configured, it follows from the identity of the job. */
#include "comm/join/rendezvous_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "comm/control/address.h"
#include "comm/control/secret.h"
#include "comm/join/membership.h"
#include "comm/net/mpi.h"

enum { PORT = 29500, FIRST_PORT = 20000, PORTS = 20000 };
/* mpirun draws it at random for each job, and only its processes have it. Not for ranks that begin MPI: where mpirun
 * has not set it, MPI_Init does, from numbers of the job that other users know. */
static const char mpirun_key[] = "OMPI_MCA_orte_precondition_transports";

/* Of this process; a process is in one job. */
static struct {
    struct ah_secret secret;
    char host[256], job[AH_STORE_JOB];
    struct ah_store_server *server;
} rendezvous_own;

static const char *value_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

static int find_port(const struct ah_topology *topology, int *out)
{
    const char *text = value_of("MASTER_PORT"), *job = value_of("SLURM_JOB_ID"), *space = value_of("PMIX_NAMESPACE");
    const char *agent = value_of("TORCHELASTIC_USE_AGENT_STORE");
    char *end;
    if (text) {
        /* torchrun's own store has that port. */
        long port = strtol(text, &end, 10) + (agent && !strcmp(agent, "True"));
        if (*end || port < 1 || port > 65535)
            return ah_fail(AH_EINVAL, "MASTER_PORT: expected a port, got '%s'", text);
        *out = (int)port;
    } else if (topology->by == AH_BY_SLURM && job) {
        *out = FIRST_PORT + (int)(strtoul(job, NULL, 10) % PORTS);
    } else {
        *out = topology->by == AH_BY_OPENMPI && space ? FIRST_PORT + (int)(hash_of(space) % PORTS) : PORT;
    }
    return 0;
}

static int find_host(const struct ah_topology *topology)
{
    const char *address = value_of("MASTER_ADDR"), *nodes = value_of("SLURM_STEP_NODELIST");
    if (address)
        snprintf(rendezvous_own.host, sizeof rendezvous_own.host, "%s", address);
    else if (topology->by == AH_BY_SLURM && nodes)
        ah_slurm_first_node(nodes, rendezvous_own.host, sizeof rendezvous_own.host);
    else
        return ah_fail(AH_EINVAL, "%d of the %d ranks are on other hosts: MASTER_ADDR has to be the address of "
                       "rank 0's%s", topology->size - topology->local_size, topology->size,
                       topology->by == AH_BY_OPENMPI ? " (mpirun -x MASTER_ADDR=ADDRESS), as there is no "
                       "accelhost-mpi.so" : "");
    return 0;
}

static uint64_t find_generation(void)
{
    static const char *const generations[] = {"ACCELHOST_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT",
                                              "SLURM_RESTART_COUNT"};
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        if (value_of(generations[i]))
            return strtoull(value_of(generations[i]), NULL, 10);
    return 0;
}

/* `launch` sets the first for its ranks. */
static void find_job(void)
{
    const char *name = value_of("ACCELHOST_RDZV_ID");
    if (!name && !value_of("ACCELHOST_HOSTS"))
        name = value_of("TORCHELASTIC_RUN_ID");
    snprintf(rendezvous_own.job, sizeof rendezvous_own.job, "%s", name ? name : "");
}

static void rendezvous_describe(struct ah_store_options *out, int port)
{
    *out = (struct ah_store_options){
        .host = rendezvous_own.host, .port = port, .secret = rendezvous_own.secret.text,
        .secret_bytes = rendezvous_own.secret.bytes,
        .generation = find_generation(), .job = rendezvous_own.job,
    };
}

int ah_rendezvous_store_options(const struct ah_topology *topology, struct ah_store_options *out)
{
    int port = 0;
    AH_TRY(find_host(topology));
    AH_TRY(find_port(topology, &port));
    AH_TRY(ah_secret_find(&rendezvous_own.secret, NULL, mpirun_key));
    AH_TRY(ah_secret_need(&rendezvous_own.secret, rendezvous_own.host));
    find_job();
    rendezvous_describe(out, port);
    return 0;
}

static int rendezvous_serve(const struct ah_store_options *place)
{
    struct ah_store_options here = *place;
    if (!ah_address_is_here(place->host))
        return ah_fail(AH_EINVAL, "MASTER_ADDR is %s, which is no address of rank 0's host", place->host);
    here.host = ah_address_to_listen(place->host);
    int status = ah_store_serve(&rendezvous_own.server, &here);
    return status < 0 ? ah_fail_prefix(status, "rank 0 (MASTER_ADDR %s, MASTER_PORT %d)", place->host, place->port) : 0;
}

/* By MPI: rank 0 broadcasts the address of its store and the secret, or why there is none. */

struct message {
    int32_t status, port;
    char text[512], host[sizeof rendezvous_own.host], job[sizeof rendezvous_own.job];
    struct ah_secret secret;
};

static int rendezvous_prepare(const struct ah_topology *topology, struct ah_store_options *out)
{
    const char *address = value_of("MASTER_ADDR");
    int port = 0;
    if (address)
        snprintf(rendezvous_own.host, sizeof rendezvous_own.host, "%s", address);
    else
        AH_TRY(ah_address_own(rendezvous_own.host, sizeof rendezvous_own.host));
    AH_TRY(find_port(topology, &port));
    AH_TRY(ah_secret_find(&rendezvous_own.secret, NULL, NULL));
    if (!rendezvous_own.secret.bytes && !rendezvous_own.secret.open)
        AH_TRY(ah_secret_draw(&rendezvous_own.secret));
    find_job();
    rendezvous_describe(out, port);
    return rendezvous_serve(out);
}

static int share_place(const struct ah_topology *topology, int64_t timeout_ns, struct ah_store_options *out)
{
    struct message message = {0};
    if (topology->rank == 0) {
        message.status = rendezvous_prepare(topology, out);
        message.port = out->port;
        message.secret = rendezvous_own.secret;
        memcpy(message.host, rendezvous_own.host, sizeof message.host);
        memcpy(message.job, rendezvous_own.job, sizeof message.job);
        snprintf(message.text, sizeof message.text, "%s", message.status < 0 ? ah_error_text() : "");
    }
    AH_TRY(ah_mpi_share(&message, sizeof message, timeout_ns));
    if (message.status < 0)
        return ah_fail(message.status, "%.*s", (int)sizeof message.text - 1, message.text);
    if (message.port < 1 || message.port > 65535 || message.secret.bytes >= sizeof message.secret.text ||
        !memchr(message.host, 0, sizeof message.host) || !memchr(message.job, 0, sizeof message.job))
        return ah_fail(AH_EINVAL, "rank 0 sent by MPI an invalid address of its store");
    rendezvous_own.secret = message.secret;
    memcpy(rendezvous_own.host, message.host, sizeof rendezvous_own.host);
    memcpy(rendezvous_own.job, message.job, sizeof rendezvous_own.job);
    rendezvous_describe(out, message.port);
    return 0;
}

static int find_place(const struct ah_topology *topology, int64_t timeout_ns, struct ah_hosts *out)
{
    bool by_mpi = false;
    AH_TRY(ah_mpi_choose(topology, &by_mpi));
    out->transport = by_mpi ? "mpi" : "tcp";
    if (by_mpi)
        return share_place(topology, timeout_ns, &out->store);
    AH_TRY(ah_rendezvous_store_options(topology, &out->store));
    return topology->rank == 0 ? rendezvous_serve(&out->store) : 0;
}

int ah_rendezvous_hosts(const struct ah_topology *topology, int64_t timeout_ns, int64_t stall_warning_ns,
                        struct ah_hosts *out)
{
    struct ah_store *store = NULL;
    struct ah_membership mine = {
        .what = "host", .number = -1, .first = topology->rank, .ranks = topology->local_size, .size = topology->size,
        .timeout_ns = timeout_ns, .stall_warning_ns = stall_warning_ns,
    };
    ah_address_own_name(mine.name, sizeof mine.name);
    AH_TRY(find_place(topology, timeout_ns, out));
    AH_TRY(ah_membership_store(&store, &out->store, &mine));
    int status = ah_membership(store, &mine, out);
    ah_store_close(store);
    return status;
}
