/* The first machine serves two stores: the launchers' own, at the address that all know, and for each attempt one for
 * its ranks, whose port is told in the first. A verdict of all is drawn from the list alone, by the same rules on each
 * machine: the earliest trouble that is no consequence of another's is to blame. */
#include "cli/machines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "base/tell.h"
#include "base/time.h"
#include "cli/machines_link.h"
#include "comm/address.h"
#include "comm/muster.h"

static const int64_t second_ns = 1000000000;
static const int64_t verdict_ns = 12 * INT64_C(1000000000); /* for another machine to end its ranks, after trouble */
static const int64_t leave_ns = 3 * INT64_C(1000000000);    /* for the others to read the last verdict */

struct ah_machines {
    struct ah_machines_options options;
    struct ah_store_server *server, *ranks; /* on the first machine */
    struct ah_store_place place;
    struct ah_secret secret;
    struct ah_hosts hosts;
    struct ah_machine_link link;
    bool linked, told;
    int attempt, told_trouble;
};

/* Meeting. */

/* Is this the machine that serves? Where nobody said, whoever has the address and comes first. */
static int serve(struct ah_machines *machines)
{
    const struct ah_machines_options *options = &machines->options;
    struct ah_store_place here = machines->place;
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

static int meet(struct ah_machines *machines)
{
    const struct ah_machines_options *options = &machines->options;
    struct ah_store *store;
    machines->place = (struct ah_store_place){
        .host = options->address, .port = options->port, .alive_ns = (int64_t)(options->silence * 1e9),
        .secret = machines->secret.text, .secret_bytes = machines->secret.bytes,
    };
    AH_TRY(serve(machines));
    struct ah_muster mine = {
        .what = "machine", .number = options->number, .first = -1, .ranks = options->ranks, .hosts = options->machines,
        .size = options->size, .timeout_ns = (int64_t)(options->timeout * 1e9),
        .patience_ns = (int64_t)(options->patience * 1e9),
    };
    ah_address_own_name(mine.name, sizeof mine.name);
    AH_TRY(ah_muster_store(&store, &machines->place, &mine));
    int status = ah_muster(store, &mine, &machines->hosts);
    if (status < 0) {
        usleep(machines->server ? 300000 : 0); /* the others read the same first */
        ah_store_close(store);
        return status;
    }
    machines->linked = true;
    return ah_machine_link_open(&machines->link, store, machines->hosts.mine, machines->hosts.count);
}

int ah_machines_meet(struct ah_machines **out, const struct ah_machines_options *options)
{
    int status;
    struct ah_machines *machines = calloc(1, sizeof *machines);
    if (!machines)
        return ah_fail(AH_ENOMEM, "out of memory");
    machines->options = *options;
    machines->link.news = -1;
    machines->hosts.wire = "tcp";
    AH_TRYGO(ah_secret_find(&machines->secret, options->secret_file), failed);
    AH_TRYGO(ah_secret_check(&machines->secret, options->address), failed);
    AH_TRYGO(meet(machines), failed);
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
            all &= link->left[h] || link->gone[h];
        all |= link->lost;
        pthread_mutex_unlock(&link->lock);
        if (all)
            return;
    }
}

void ah_machines_close(struct ah_machines *machines)
{
    if (!machines)
        return;
    if (machines->linked) {
        if (machines->told)
            ah_machine_link_post(&machines->link, "left %d %d ", machines->attempt, machines->hosts.mine);
        if (machines->server)
            await_others(machines);
        ah_machine_link_close(&machines->link);
    }
    ah_store_end(machines->ranks);
    ah_store_end(machines->server);
    free(machines);
}

const struct ah_hosts *ah_machines_hosts(const struct ah_machines *machines)
{
    return &machines->hosts;
}

int ah_machines_fd(const struct ah_machines *machines)
{
    return machines->link.news;
}

/* Attempts. */

static struct ah_machine_round *round_of(struct ah_machines *machines)
{
    return &machines->link.round[machines->attempt % 2];
}

/* Wait for a change, at most so long; with the lock. */
static void wait_a_moment(struct ah_machine_link *link, int64_t limit_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += limit_ns;
    until.tv_sec += until.tv_nsec / second_ns;
    until.tv_nsec %= second_ns;
    pthread_cond_timedwait(&link->change, &link->lock, &until);
}

static int serve_ranks(struct ah_machines *machines)
{
    struct ah_store_place place = machines->place;
    ah_store_end(machines->ranks);
    machines->ranks = NULL;
    place.host = ah_address_to_listen(machines->options.address);
    place.port = 0;
    place.generation = (uint64_t)machines->attempt;
    AH_TRY(ah_store_serve(&machines->ranks, &place));
    ah_machine_link_post(&machines->link, "store %d 0 %d", machines->attempt, ah_store_port(machines->ranks));
    return 0;
}

/* The first machine that is not here or is here no more, -1: all are; with the lock. */
static int first_missing(const struct ah_machine_link *link)
{
    int h = link->lost ? 0 : -1;
    for (int i = 0; i < link->count && h < 0; i++)
        if (!link->here[i] || link->gone[i])
            h = i;
    return h;
}

int ah_machines_begin(struct ah_machines *machines, int attempt)
{
    struct ah_machine_link *link = &machines->link;
    int port = 0, missing = 0;
    if (attempt)
        ah_machine_link_clear(link, attempt - 1);
    machines->attempt = attempt;
    machines->told = false;
    machines->told_trouble = 0;
    if (machines->server)
        AH_TRY(serve_ranks(machines));
    if (!attempt)
        ah_machine_link_post(link, "here 0 %d ", machines->hosts.mine);
    pthread_mutex_lock(&link->lock);
    for (int64_t until = ah_now_ns() + verdict_ns; ah_now_ns() < until;) {
        port = round_of(machines)->port;
        missing = first_missing(link);
        if ((port && missing < 0) || (missing >= 0 && link->gone[missing]))
            break;
        wait_a_moment(link, second_ns / 5);
    }
    pthread_mutex_unlock(&link->lock);
    if (!port || missing >= 0)
        return ah_fail(AH_EPEER, "machine %d (%s) has come and is gone", missing < 0 ? 0 : missing,
                       machines->hosts.name[missing < 0 ? 0 : missing]);
    machines->hosts.store = machines->place;
    machines->hosts.store.port = port;
    machines->hosts.store.generation = (uint64_t)attempt;
    return 0;
}

bool ah_machines_trouble(struct ah_machines *machines, int *signal)
{
    struct ah_machine_link *link = &machines->link;
    uint64_t count;
    int first = 0, order = 0;
    while (read(link->news, &count, sizeof count) > 0)
        continue;
    pthread_mutex_lock(&link->lock);
    for (int h = 0; h < link->count; h++) {
        const struct ah_machine *machine = &round_of(machines)->machine[h];
        int when = machine->order ? machine->order : link->gone[h] ? link->gone_order[h] : 0;
        if (h == link->mine || !when || (first && when > first))
            continue;
        first = when;
        order = machine->signal;
    }
    pthread_mutex_unlock(&link->lock);
    *signal = order;
    bool news = first && !machines->told_trouble;
    machines->told_trouble |= first != 0;
    return news;
}

void ah_machines_tell(struct ah_machines *machines, int signal)
{
    if (signal)
        ah_machine_link_post(&machines->link, "signal %d %d %d", machines->attempt, machines->hosts.mine, signal);
    else
        ah_machine_link_post(&machines->link, "failing %d %d ", machines->attempt, machines->hosts.mine);
}

/* The end of an attempt, with the lock. */

static bool has_ended(const struct ah_machine_link *link, const struct ah_machine_round *round, int h)
{
    return round->machine[h].concluded || link->gone[h] || (h == link->mine && link->lost);
}

static bool is_trouble(struct ah_machines *machines)
{
    for (int h = 0; h < machines->link.count; h++)
        if (round_of(machines)->machine[h].order || machines->link.gone[h])
            return true;
    return false;
}

/* The first machine that has not told how it ended, -1: all have. */
static int first_running(struct ah_machines *machines)
{
    for (int h = 0; h < machines->link.count; h++)
        if (!has_ended(&machines->link, round_of(machines), h))
            return h;
    return -1;
}

static void tell_waiting(struct ah_machines *machines)
{
    const struct ah_hosts *hosts = &machines->hosts;
    char names[512] = "";
    int at = 0;
    for (int h = 0; h < hosts->count && at + 80 < (int)sizeof names; h++)
        if (!has_ended(&machines->link, round_of(machines), h))
            at += snprintf(names + at, sizeof names - (size_t)at, "%s%s (machine %d)", at ? ", " : "", hosts->name[h],
                           h);
    ah_tell("the ranks of this machine have ended; waiting for those of %s", names);
}

/* The machine whose trouble came first and follows from no other's. */
static int find_blamed(struct ah_machines *machines)
{
    const struct ah_machine_link *link = &machines->link;
    int blamed = -1, first = 0;
    for (int victims = 0; victims < 2 && blamed < 0; victims++)
        for (int h = 0; h < link->count; h++) {
            const struct ah_machine *machine = &round_of(machines)->machine[h];
            int order = machine->concluded ? machine->order : link->gone[h] ? link->gone_order[h] : 0;
            bool victim = machine->concluded && machine->victim;
            if (!order || victim != (bool)victims || (machine->concluded && !machine->code) ||
                (blamed >= 0 && order > first))
                continue;
            blamed = h;
            first = order;
        }
    return blamed;
}

static void describe_gone(struct ah_machines *machines, int h, char *text, size_t room)
{
    const struct ah_hosts *hosts = &machines->hosts;
    const char *reason = machines->link.gone[h] ? machines->link.reason[h] : "it does not answer";
    int first = hosts->first[h], last = hosts->first[h + 1] - 1;
    if (last > first)
        snprintf(text, room, "machine %d, with ranks %d-%d, is gone: %s\n", h, first, last, reason);
    else
        snprintf(text, room, "machine %d, with rank %d, is gone: %s\n", h, first, reason);
}

/* 2 only where all say so. */
static int code_of_all(struct ah_machines *machines, int blamed)
{
    bool usage = true;
    for (int h = 0; h < machines->link.count; h++)
        usage &= round_of(machines)->machine[h].concluded && round_of(machines)->machine[h].code == 2;
    const struct ah_machine *machine = &round_of(machines)->machine[blamed];
    int code = machine->concluded ? machine->code : 3;
    return code == 2 && !usage ? 3 : code;
}

static int judge(struct ah_machines *machines, int late, struct ah_machine_verdict *all, int *blamed)
{
    static char gone[256];
    *all = (struct ah_machine_verdict){.text = ""};
    *blamed = find_blamed(machines);
    if (*blamed < 0)
        *blamed = late;
    if (*blamed < 0)
        return 0;
    const struct ah_machine *machine = &round_of(machines)->machine[*blamed];
    all->code = code_of_all(machines, *blamed);
    all->final = machine->final;
    for (int h = 0; h < machines->link.count; h++)
        all->final |= machines->link.gone[h];
    describe_gone(machines, *blamed, gone, sizeof gone);
    all->text = machine->concluded ? machine->text ? machine->text : "" : gone;
    return 0;
}

int ah_machines_conclude(struct ah_machines *machines, const struct ah_machine_verdict *mine,
                         bool (*stop)(void *context), void *context, struct ah_machine_verdict *all, int *blamed)
{
    struct ah_machine_link *link = &machines->link;
    int64_t begin = ah_now_ns(), trouble = 0, patience_ns = (int64_t)(machines->options.patience * 1e9);
    bool told = false;
    int late;
    ah_machine_link_post(link, "verdict %d %d %d %d %d\n%s", machines->attempt, machines->hosts.mine, mine->code,
                         mine->victim, mine->final, mine->text);
    machines->told = true;
    pthread_mutex_lock(&link->lock);
    while ((late = first_running(machines)) >= 0) {
        int64_t now = ah_now_ns();
        trouble = trouble || !(mine->code || is_trouble(machines)) ? trouble : now;
        bool stopped = stop(context);
        if (stopped || (trouble && now > trouble + verdict_ns)) {
            late = stopped ? -1 : late;
            break;
        }
        if (!told && now > begin + patience_ns) {
            tell_waiting(machines);
            told = true;
        }
        wait_a_moment(link, second_ns / 5);
    }
    int status = judge(machines, late, all, blamed);
    pthread_mutex_unlock(&link->lock);
    return status;
}
