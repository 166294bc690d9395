/* The first machine serves two stores: the launchers' own, at the address that all know, and one for the ranks of each
 * attempt, whose port it tells in the meeting. A verdict of all is drawn from the list alone, by the same rules on each
 * machine: the earliest trouble that is no consequence of another's is to blame. */
#include "cli/machines.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "base/tell.h"
#include "base/time.h"
#include "cli/machines_desk.h"
#include "cli/machines_link.h"
#include "comm/address.h"

static const int64_t second_ns = 1000000000;
static const int64_t verdict_ns = 12 * INT64_C(1000000000); /* for another machine to end its ranks, after trouble */
static const int64_t leave_ns = 3 * INT64_C(1000000000);    /* for the others to read the last verdict */

struct ah_machines {
    struct ah_machines_options options;
    struct ah_store_server *server, *ranks; /* on the first machine */
    struct ah_desk desk;                    /* likewise */
    struct ah_store_place place;
    struct ah_secret secret;
    struct ah_hosts hosts;
    struct ah_machine_link link;
    bool linked, told;
    char job[AH_MACHINES_JOB];
    bool claims; /* its number, whatever it was before */
    int generation, restarts, told_trouble;
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

int ah_machines_open(struct ah_machines **out, const struct ah_machines_options *options)
{
    int status;
    struct ah_machines *machines = calloc(1, sizeof *machines);
    if (!machines)
        return ah_fail(AH_ENOMEM, "out of memory");
    machines->options = *options;
    machines->claims = options->number >= 0;
    machines->link.news = -1;
    machines->generation = -1;
    machines->hosts.wire = "tcp";
    AH_TRYGO(ah_secret_find(&machines->secret, options->secret_file), failed);
    AH_TRYGO(ah_secret_check(&machines->secret, options->address), failed);
    machines->place = (struct ah_store_place){
        .host = options->address, .port = options->port, .alive_ns = (int64_t)(options->silence * 1e9),
        .secret = machines->secret.text, .secret_bytes = machines->secret.bytes,
    };
    AH_TRYGO(serve(machines), failed);
    if (machines->server)
        AH_TRYGO(ah_desk_open(&machines->desk, &machines->place, &machines->options), failed);
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
            all &= link->machine[h].left || link->machine[h].gone;
        all |= link->lost;
        pthread_mutex_unlock(&link->lock);
        if (all)
            return;
    }
}

static int64_t own_place(const struct ah_machines *machines)
{
    return machines->link.places[machines->hosts.mine];
}

static void unlink_machines(struct ah_machines *machines)
{
    if (!machines->linked)
        return;
    ah_machine_link_close(&machines->link, !machines->told);
    machines->linked = false;
    machines->link.news = -1;
}

void ah_machines_close(struct ah_machines *machines)
{
    if (!machines)
        return;
    if (machines->linked && machines->told)
        ah_machine_link_post(&machines->link, "left %" PRId64 " ", own_place(machines));
    if (machines->linked && machines->server)
        await_others(machines);
    unlink_machines(machines);
    ah_desk_close(&machines->desk);
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
    return machines->link.news;
}

/* Attempts. */

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

static int serve_ranks(struct ah_machines *machines, struct ah_meeting *meeting)
{
    struct ah_store_place place = machines->place;
    ah_store_end(machines->ranks);
    machines->ranks = NULL;
    place.host = ah_address_to_listen(machines->options.address);
    place.port = 0;
    place.generation = (uint64_t)meeting->generation;
    AH_TRY(ah_store_serve(&machines->ranks, &place));
    meeting->port = ah_store_port(machines->ranks);
    return 0;
}

/* The first machine's part. */
static int call_others(struct ah_machines *machines, struct ah_meeting *meeting, bool (*stop)(void *context),
                       void *context)
{
    int status;
    AH_TRYGO(ah_desk_call(&machines->desk, stop, context), refused);
    AH_TRYGO(serve_ranks(machines, meeting), refused);
    AH_TRYGO(ah_desk_answer(&machines->desk, meeting), refused);
    return 0;
refused:
    ah_desk_refuse(&machines->desk, status);
    usleep(300000); /* the others read the same first */
    return status;
}

static struct ah_muster describe(const struct ah_machines *machines)
{
    const struct ah_machines_options *options = &machines->options;
    bool before = machines->generation >= 0 && !machines->claims;
    struct ah_muster mine = {
        .what = "machine", .number = before ? machines->hosts.mine : options->number, .first = -1,
        .ranks = options->ranks, .hosts = options->machines, .size = options->size,
        .timeout_ns = (int64_t)(options->timeout * 1e9), .patience_ns = (int64_t)(options->patience * 1e9),
    };
    ah_address_own_name(mine.name, sizeof mine.name);
    return mine;
}

/* How many machines are here and stay, with the lock. */
static int count_staying(const struct ah_machine_link *link)
{
    int count = 0;
    for (int h = 0; h < link->count; h++)
        count += !link->machine[h].gone && !link->machine[h].signal;
    return count;
}

/* How many will meet again, newcomers included. */
static int count_expected(struct ah_machines *machines)
{
    struct ah_machine_link *link = &machines->link;
    if (!machines->linked)
        return 0;
    pthread_mutex_lock(&link->lock);
    int count = count_staying(link) + link->arrivals;
    pthread_mutex_unlock(&link->lock);
    return count;
}

int ah_machines_begin(struct ah_machines *machines, bool counts, bool (*stop)(void *context), void *context)
{
    int status, next = machines->generation + 1, expected = count_expected(machines);
    struct ah_meeting meeting = {.mine = describe(machines), .restarts = machines->restarts + counts};
    memcpy(meeting.job, machines->job, sizeof meeting.job);
    unlink_machines(machines);
    if (machines->server)
        AH_TRY(ah_desk_begin(&machines->desk, &meeting.mine, next, expected));
    AH_TRYGO(ah_meeting_enter(&meeting, &machines->place, next), failed);
    if (machines->server)
        AH_TRYGO(call_others(machines, &meeting, stop, context), failed);
    AH_TRYGO(ah_meeting_await(&meeting, stop, context, &machines->hosts), failed);
    memcpy(machines->job, meeting.job, sizeof machines->job);
    machines->generation = meeting.generation;
    machines->restarts = meeting.restarts;
    machines->told = false;
    machines->told_trouble = 0;
    machines->hosts.store = machines->place;
    machines->hosts.store.port = meeting.port;
    machines->hosts.store.generation = (uint64_t)meeting.generation;
    AH_TRYGO(ah_machine_link_open(&machines->link, &meeting, machines->hosts.mine, machines->hosts.count), failed);
    machines->linked = true;
    return 0;
failed:
    ah_meeting_leave(&meeting);
    return status;
}

bool ah_machines_is_lost(struct ah_machines *machines)
{
    struct ah_machine_link *link = &machines->link;
    pthread_mutex_lock(&link->lock);
    bool lost = link->lost || link->machine[0].gone;
    pthread_mutex_unlock(&link->lock);
    return lost;
}

/* Those that came since, on the first machine. */
static void open_door(struct ah_machines *machines)
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
        if (ah_desk_knock(&machines->desk, knock[i], machines->restarts >= machines->options.restarts, name))
            ah_machine_link_post(link, "join %" PRId64 " %s", knock[i], name);
}

/* Does a machine leave the job to the others? With the lock. */
static bool leaves(const struct ah_machines *machines, int h)
{
    const struct ah_machines_options *options = &machines->options;
    return machines->link.machine[h].signal && options->least < options->machines && h > 0 &&
           !machines->link.machine[0].signal && count_staying(&machines->link) >= options->least;
}

bool ah_machines_trouble(struct ah_machines *machines, int *signal)
{
    struct ah_machine_link *link = &machines->link;
    uint64_t count;
    int first, order;
    while (read(link->news, &count, sizeof count) > 0)
        continue;
    open_door(machines);
    pthread_mutex_lock(&link->lock);
    first = link->joined;
    order = link->joined ? SIGTERM : 0;
    for (int h = 0; h < link->count; h++) {
        const struct ah_machine *machine = &link->machine[h];
        int when = machine->order ? machine->order : machine->gone_order;
        if (h == link->mine || !when || (first && when > first))
            continue;
        first = when;
        order = leaves(machines, h) ? SIGTERM : machine->signal;
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
        ah_machine_link_post(&machines->link, "signal %" PRId64 " %d", own_place(machines), signal);
    else
        ah_machine_link_post(&machines->link, "failing %" PRId64 " ", own_place(machines));
}

/* The end of an attempt, with the lock. */

static bool has_ended(const struct ah_machine_link *link, int h)
{
    return link->machine[h].concluded || link->machine[h].gone || (h == link->mine && link->lost);
}

static bool is_trouble(const struct ah_machine_link *link)
{
    for (int h = 0; h < link->count; h++)
        if (link->machine[h].order || link->machine[h].gone)
            return true;
    return link->joined;
}

/* The first machine that has not told how it ended, -1: all have. */
static int first_running(const struct ah_machine_link *link)
{
    for (int h = 0; h < link->count; h++)
        if (!has_ended(link, h))
            return h;
    return -1;
}

static void tell_waiting(struct ah_machines *machines)
{
    const struct ah_hosts *hosts = &machines->hosts;
    char names[512] = "";
    int at = 0;
    for (int h = 0; h < hosts->count && at + 80 < (int)sizeof names; h++)
        if (!has_ended(&machines->link, h))
            at += snprintf(names + at, sizeof names - (size_t)at, "%s%s (machine %d)", at ? ", " : "", hosts->name[h],
                           h);
    ah_tell("the ranks of this machine have ended; waiting for those of %s", names);
}

static int order_of(const struct ah_machine *machine)
{
    return machine->concluded ? machine->order : machine->gone_order;
}

/* The machine whose trouble came first and follows from no other's; -1: none. */
static int find_blamed(const struct ah_machine_link *link)
{
    int blamed = -1, first = 0;
    for (int victims = 0; victims < 2 && blamed < 0; victims++)
        for (int h = 0; h < link->count; h++) {
            const struct ah_machine *machine = &link->machine[h];
            int order = order_of(machine);
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
    const struct ah_machine *machine = &machines->link.machine[h];
    const char *reason = machine->gone ? machine->reason : "it does not answer";
    int first = hosts->first[h], last = hosts->first[h + 1] - 1;
    if (last > first)
        snprintf(text, room, "machine %d, with ranks %d-%d, is gone: %s\n", h, first, last, reason);
    else
        snprintf(text, room, "machine %d, with rank %d, is gone: %s\n", h, first, reason);
}

/* 2 only where all say so. */
static int code_of_all(const struct ah_machine_link *link, int blamed)
{
    bool usage = true;
    for (int h = 0; h < link->count; h++)
        usage &= link->machine[h].concluded && link->machine[h].code == 2;
    const struct ah_machine *machine = &link->machine[blamed];
    int code = machine->concluded ? machine->code : 3;
    return code == 2 && !usage ? 3 : code;
}

/* Who came or went without a failure, with the lock; NULL: that is not what ended the attempt. */
static const char *describe_change(struct ah_machines *machines, int blamed)
{
    static char text[sizeof machines->link.newcomers + 64];
    const struct ah_machine_link *link = &machines->link;
    for (int h = 0; h < link->count; h++)
        if (link->machine[h].signal && !leaves(machines, h))
            return NULL; /* the job is to end */
    if (link->joined && (blamed < 0 || link->joined < order_of(&link->machine[blamed])))
        snprintf(text, sizeof text, "%s came", link->newcomers);
    else if (blamed >= 0 && leaves(machines, blamed))
        snprintf(text, sizeof text, "%s was asked to end", machines->hosts.name[blamed]);
    else
        return NULL;
    return text;
}

static void judge(struct ah_machines *machines, int late, struct ah_machine_verdict *all, int *blamed)
{
    static char gone[256];
    const struct ah_machine_link *link = &machines->link;
    int own_signal = link->machine[link->mine].signal;
    *all = (struct ah_machine_verdict){.text = "", .final = link->lost || link->machine[0].gone || own_signal};
    *blamed = find_blamed(link);
    const char *change = all->final && !own_signal ? NULL : describe_change(machines, *blamed);
    if (change) {
        *blamed = own_signal ? link->mine : -1;
        all->code = own_signal ? 128 + own_signal : 0;
        all->change = own_signal ? NULL : change;
        return;
    }
    if (*blamed < 0)
        *blamed = late;
    if (*blamed < 0)
        return;
    const struct ah_machine *machine = &link->machine[*blamed];
    all->code = code_of_all(link, *blamed);
    for (int h = 0; h < link->count; h++)
        all->final |= link->machine[h].signal && !leaves(machines, h);
    all->final |= machine->final;
    describe_gone(machines, *blamed, gone, sizeof gone);
    all->text = machine->concluded ? machine->text ? machine->text : "" : gone;
}

void ah_machines_conclude(struct ah_machines *machines, const struct ah_machine_verdict *mine,
                          bool (*stop)(void *context), void *context, struct ah_machine_verdict *all, int *blamed)
{
    struct ah_machine_link *link = &machines->link;
    int64_t begin = ah_now_ns(), trouble = 0, patience_ns = (int64_t)(machines->options.patience * 1e9);
    bool told = false;
    int late;
    ah_machine_link_post(link, "verdict %" PRId64 " %d %d %d\n%s", own_place(machines), mine->code, mine->victim,
                         mine->final, mine->text);
    machines->told = true;
    pthread_mutex_lock(&link->lock);
    while ((late = first_running(link)) >= 0) {
        int64_t now = ah_now_ns();
        trouble = trouble || !(mine->code || is_trouble(link)) ? trouble : now;
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
    judge(machines, late, all, blamed);
    pthread_mutex_unlock(&link->lock);
}
