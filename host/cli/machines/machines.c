/* The first machine serves two stores: the launchers' own, at the address that all know, and one for the ranks of each
 * attempt, whose port is part of the rendezvous. */
#include "cli/machines/machines.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status/status.h"
#include "base/trace/time.h"
#include "cli/machines/machines_state.h"
#include "comm/control/address.h"

static const int64_t leave_ns = 3 * INT64_C(1000000000); /* for the others to read the last outcome */

/* Meeting. */

/* Serve the store if this is machine 0; without a configured rank, if it is the first that can bind the address. */
static int machines_serve(struct ah_machines *machines)
{
    const struct ah_machines_options *options = &machines->options;
    struct ah_store_options here = machines->place;
    bool first = options->number == 0;
    if (options->number > 0)
        return 0;
    if (!ah_address_is_here(options->address))
        return first ? ah_fail(AH_EINVAL, "main_process_ip is %s, which is no address of this machine, and it is to be "
                               "number 0 (machine_rank)", options->address) : 0;
    here.host = ah_address_to_listen(options->address);
    int status = ah_store_serve(&machines->server, &here);
    if (status < 0 && first)
        return ah_fail_prefix(status, "main_process_port %d", options->port);
    if (status == 0)
        machines->options.number = 0;
    return 0;
}

int ah_machines_open(struct ah_machines **out, const struct ah_machines_options *options)
{
    int status;
    struct ah_machines *machines = calloc(1, sizeof *machines);
    AH_TRY_MEMORY(machines, "out of memory");
    machines->options = *options;
    machines->claims = options->number >= 0;
    machines->link.notification = -1;
    machines->generation = -1;
    machines->hosts.transport = "tcp";
    AH_TRYGO(ah_secret_find(&machines->secret, options->secret_file, NULL), failed);
    AH_TRYGO(ah_secret_need(&machines->secret, options->address), failed);
    machines->place = (struct ah_store_options){
        .host = options->address, .port = options->port, .alive_ns = (int64_t)(options->heartbeat_timeout * 1e9),
        .secret = machines->secret.text, .secret_bytes = machines->secret.bytes, .job = options->job,
    };
    AH_TRYGO(machines_serve(machines), failed);
    if (machines->server)
        AH_TRYGO(ah_coordinator_open(&machines->coordinator, &machines->place, &machines->options), failed);
    *out = machines;
    return 0;
failed:
    ah_machines_close(machines);
    return status;
}

/* The server goes last. */
static void await_others(struct ah_machines *machines)
{
    struct ah_machine_link *link = &machines->link;
    for (int64_t until = ah_now_ns() + leave_ns; ah_now_ns() < until; usleep(10000)) {
        bool all = true;
        pthread_mutex_lock(&link->lock);
        for (int h = 1; h < link->count; h++)
            all &= link->machine[h].left || link->machine[h].lost;
        all |= link->lost;
        pthread_mutex_unlock(&link->lock);
        if (all)
            return;
    }
}

static void unlink_machines(struct ah_machines *machines)
{
    if (!machines->linked)
        return;
    ah_machine_link_close(&machines->link, !machines->reported);
    machines->linked = false;
    machines->link.notification = -1;
}

void ah_machines_close(struct ah_machines *machines)
{
    if (!machines)
        return;
    if (machines->linked && machines->reported)
        ah_machine_link_post(&machines->link, "left %" PRId64 " ", ah_machines_place(machines));
    if (machines->linked && machines->server)
        await_others(machines);
    unlink_machines(machines);
    ah_coordinator_close(&machines->coordinator);
    ah_store_end(machines->ranks);
    ah_store_end(machines->server);
    free(machines);
}

const struct ah_hosts *ah_machines_hosts(const struct ah_machines *machines)
{
    return &machines->hosts;
}

int ah_machines_generation(const struct ah_machines *machines)
{
    return machines->generation;
}

int ah_machines_restarts(const struct ah_machines *machines)
{
    return machines->restarts;
}

int ah_machines_fd(const struct ah_machines *machines)
{
    return machines->link.notification;
}

/* Attempts. */

static int serve_ranks(struct ah_machines *machines, struct ah_rendezvous *rendezvous)
{
    struct ah_store_options place = machines->place;
    ah_store_end(machines->ranks);
    machines->ranks = NULL;
    place.host = ah_address_to_listen(machines->options.address);
    place.port = 0;
    place.generation = (uint64_t)rendezvous->generation;
    AH_TRY(ah_store_serve(&machines->ranks, &place));
    rendezvous->port = ah_store_port(machines->ranks);
    return 0;
}

/* The first machine's part. */
static int call_others(struct ah_machines *machines, struct ah_rendezvous *rendezvous, bool (*stop)(void *context),
                       void *context)
{
    int status;
    AH_TRYGO(ah_coordinator_call(&machines->coordinator, stop, context), refused);
    AH_TRYGO(serve_ranks(machines, rendezvous), refused);
    AH_TRYGO(ah_coordinator_answer(&machines->coordinator, rendezvous), refused);
    return 0;
refused:
    return ah_coordinator_refuse(&machines->coordinator, status);
}

static struct ah_membership machines_describe(const struct ah_machines *machines)
{
    const struct ah_machines_options *options = &machines->options;
    bool before = machines->generation >= 0 && !machines->claims;
    struct ah_membership mine = {
        .what = "machine", .number = before ? machines->hosts.mine : options->number, .first = -1,
        .ranks = options->ranks, .hosts = options->machines, .size = options->size, .least = options->least,
        .restarts = options->restarts,
        .timeout_ns = (int64_t)(options->timeout * 1e9), .stall_warning_ns = (int64_t)(options->stall_warning * 1e9),
    };
    ah_address_own_name(mine.name, sizeof mine.name);
    return mine;
}

/* Count the machines of the next rendezvous, newcomers included. */
static int count_expected(struct ah_machines *machines)
{
    struct ah_machine_link *link = &machines->link;
    if (!machines->linked)
        return 0;
    AH_LOCK_SCOPE(&link->lock);
    return ah_machines_staying(link) + link->arrivals;
}

int ah_machines_begin(struct ah_machines *machines, bool counts, bool (*stop)(void *context), void *context)
{
    int status, next = machines->generation + 1, expected = count_expected(machines);
    struct ah_rendezvous rendezvous = {.mine = machines_describe(machines), .restarts = machines->restarts + counts};
    memcpy(rendezvous.job, machines->job, sizeof rendezvous.job);
    unlink_machines(machines);
    if (machines->server)
        AH_TRY(ah_coordinator_begin(&machines->coordinator, &rendezvous.mine, next, expected));
    AH_TRYGO(ah_rendezvous_enter(&rendezvous, &machines->place, next), failed);
    if (machines->server)
        AH_TRYGO(call_others(machines, &rendezvous, stop, context), failed);
    AH_TRYGO(ah_rendezvous_await(&rendezvous, stop, context, &machines->hosts), failed);
    memcpy(machines->job, rendezvous.job, sizeof machines->job);
    machines->generation = rendezvous.generation;
    machines->restarts = rendezvous.restarts;
    machines->reported = false;
    machines->reported_trouble = 0;
    machines->hosts.store = machines->place;
    machines->hosts.store.port = rendezvous.port;
    machines->hosts.store.generation = (uint64_t)rendezvous.generation;
    machines->linked = true;
    return ah_machine_link_open(&machines->link, &rendezvous, machines->hosts.mine, machines->hosts.count);
failed:
    ah_rendezvous_leave(&rendezvous);
    return status;
}

bool ah_machines_is_lost(struct ah_machines *machines)
{
    struct ah_machine_link *link = &machines->link;
    AH_LOCK_SCOPE(&link->lock);
    return link->lost || link->machine[0].lost;
}

/* Admit machines that arrived since, on the first machine. */
static void admit_newcomers(struct ah_machines *machines)
{
    struct ah_machine_link *link = &machines->link;
    int64_t knock[AH_HOSTS_MAX];
    char name[AH_HOST_NAME];
    pthread_mutex_lock(&link->lock);
    int count = link->knocks;
    memcpy(knock, link->knock, sizeof knock);
    link->knocks = 0;
    pthread_mutex_unlock(&link->lock);
    for (int i = 0; i < count && machines->server; i++)
        if (ah_coordinator_knock(&machines->coordinator, knock[i], machines->restarts >= machines->options.restarts,
                                 name))
            ah_machine_link_post(link, "join %" PRId64 " %s", knock[i], name);
}

bool ah_machines_trouble(struct ah_machines *machines, int *signal)
{
    struct ah_machine_link *link = &machines->link;
    uint64_t count;
    int first, order;
    while (read(link->notification, &count, sizeof count) > 0)
        continue;
    admit_newcomers(machines);
    pthread_mutex_lock(&link->lock);
    first = link->joined;
    order = link->joined ? SIGTERM : 0;
    for (int h = 0; h < link->count; h++) {
        const struct ah_machine *machine = &link->machine[h];
        int when = machine->order ? machine->order : machine->lost_order;
        if (h == link->mine || !when || (first && when > first))
            continue;
        first = when;
        order = ah_machines_leaves(machines, h) ? SIGTERM : machine->signal;
    }
    pthread_mutex_unlock(&link->lock);
    *signal = order;
    bool notification = first && !machines->reported_trouble;
    machines->reported_trouble |= first != 0;
    return notification;
}

void ah_machines_report(struct ah_machines *machines, int signal)
{
    if (signal)
        ah_machine_link_post(&machines->link, "signal %" PRId64 " %d", ah_machines_place(machines), signal);
    else
        ah_machine_link_post(&machines->link, "failing %" PRId64 " ", ah_machines_place(machines));
}
