/* The end of an attempt on all machines. The attribution is drawn from the list alone, by the same rules on each
 * machine: the earliest trouble that is no consequence of another's is to blame. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/status/notice.h"
#include "base/trace/time.h"
#include "cli/machines/machines_state.h"

static const int64_t second_ns = 1000000000;
static const int64_t attribution_ns =
    12 * INT64_C(1000000000); /* for another machine to end its ranks, after trouble */

int ah_machines_staying(const struct ah_machine_link *link)
{
    int count = 0;
    for (int h = 0; h < link->count; h++)
        count += !link->machine[h].lost && !link->machine[h].signal;
    return count;
}

bool ah_machines_leaves(const struct ah_machines *machines, int h)
{
    const struct ah_machines_options *options = &machines->options;
    return machines->link.machine[h].signal && options->least < options->machines && h > 0 &&
           !machines->link.machine[0].signal && ah_machines_staying(&machines->link) >= options->least;
}

/* The following functions are called with the lock. */

/* Wait for a change, at most until `limit_ns`. */
static void wait_a_moment(struct ah_machine_link *link, int64_t limit_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += limit_ns;
    until.tv_sec += until.tv_nsec / second_ns;
    until.tv_nsec %= second_ns;
    pthread_cond_timedwait(&link->change, &link->lock, &until);
}

static bool has_ended(const struct ah_machine_link *link, int h)
{
    return link->machine[h].concluded || link->machine[h].lost || link->lost; /* then no more news of it arrives */
}

static bool is_trouble(const struct ah_machine_link *link)
{
    for (int h = 0; h < link->count; h++)
        if (link->machine[h].order || link->machine[h].lost)
            return true;
    return link->joined;
}

/* Return the first machine that has not reported its outcome, -1: all have. */
static int first_running(const struct ah_machine_link *link)
{
    for (int h = 0; h < link->count; h++)
        if (!has_ended(link, h))
            return h;
    return -1;
}

static void report_waiting(struct ah_machines *machines)
{
    const struct ah_hosts *hosts = &machines->hosts;
    char names[512] = "";
    int at = 0;
    for (int h = 0; h < hosts->count && at + 80 < (int)sizeof names; h++)
        if (!has_ended(&machines->link, h))
            at += snprintf(names + at, sizeof names - (size_t)at, "%s%s (machine %d)", at ? ", " : "", hosts->name[h],
                           h);
    ah_notice("the ranks of this machine have ended; waiting for those of %s", names);
}

static int order_of(const struct ah_machine *machine)
{
    return machine->concluded || machine->signal ? machine->order : machine->lost_order;
}

/* Return the machine with the first event that no other caused; -1: none. Consequences of a request to end may be
 * received before the request, also by the launcher that was asked. */
static int find_blamed(const struct ah_machine_link *link)
{
    int blamed = -1, first = 0;
    for (int victims = 0; victims < 2 && blamed < 0; victims++)
        for (int h = 0; h < link->count; h++) {
            const struct ah_machine *machine = &link->machine[h];
            int order = order_of(machine);
            bool victim = machine->concluded && machine->victim && !machine->signal;
            if (!order || victim != (bool)victims || (machine->concluded && !machine->code) ||
                (blamed >= 0 && order > first))
                continue;
            blamed = h;
            first = order;
        }
    return blamed;
}

static void describe_lost(struct ah_machines *machines, int h, char *text, size_t room)
{
    const struct ah_hosts *hosts = &machines->hosts;
    const struct ah_machine *machine = &machines->link.machine[h];
    const char *reason = machine->lost ? machine->reason : "it does not answer";
    int first = hosts->first[h], last = hosts->first[h + 1] - 1;
    if (last > first)
        snprintf(text, room, "machine %d, with ranks %d-%d, is gone: %s\n", h, first, last, reason);
    else
        snprintf(text, room, "machine %d, with rank %d, is gone: %s\n", h, first, reason);
}

/* Return the exit code of all: 2 only if all ended with it. */
static int code_of_all(const struct ah_machine_link *link, int blamed)
{
    bool usage = true;
    for (int h = 0; h < link->count; h++)
        usage &= link->machine[h].concluded && link->machine[h].code == 2;
    const struct ah_machine *machine = &link->machine[blamed];
    int code = machine->concluded ? machine->code : machine->signal ? 128 + machine->signal : 3;
    return code == 2 && !usage ? 3 : code;
}

/* Describe the machines that joined or left without a failure; NULL: that did not end the attempt. */
static const char *describe_change(struct ah_machines *machines, int blamed)
{
    static char text[sizeof machines->link.newcomers + 64];
    const struct ah_machine_link *link = &machines->link;
    for (int h = 0; h < link->count; h++)
        if (link->machine[h].signal && !ah_machines_leaves(machines, h))
            return NULL; /* the job is to end */
    if (link->joined && (blamed < 0 || link->joined < order_of(&link->machine[blamed])))
        snprintf(text, sizeof text, "%s joined", link->newcomers);
    else if (blamed >= 0 && ah_machines_leaves(machines, blamed))
        snprintf(text, sizeof text, "%s was asked to end", machines->hosts.name[blamed]);
    else
        return NULL;
    return text;
}

static void attribution_judge(struct ah_machines *machines, int late, struct ah_machine_attribution *all, int *blamed)
{
    static char lost[256];
    const struct ah_machine_link *link = &machines->link;
    int own_signal = link->machine[link->mine].signal;
    *all = (struct ah_machine_attribution){.text = "", .final = link->lost || link->machine[0].lost || own_signal};
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
        all->final |= link->machine[h].signal && !ah_machines_leaves(machines, h);
    all->final |= machine->final;
    describe_lost(machines, *blamed, lost, sizeof lost);
    if (machine->concluded || machine->signal)
        all->text = machine->text ? machine->text : "";
    else
        all->text = lost;
}

void ah_machines_conclude(struct ah_machines *machines, const struct ah_machine_attribution *mine,
                          bool (*stop)(void *context), void *context, struct ah_machine_attribution *all, int *blamed)
{
    struct ah_machine_link *link = &machines->link;
    int64_t begin = ah_now_ns(), trouble = 0, stall_warning_ns = (int64_t)(machines->options.stall_warning * 1e9);
    bool reported = false;
    int late;
    ah_machine_link_post(link, "outcome %" PRId64 " %d %d %d\n%s", ah_machines_place(machines), mine->code,
                         mine->victim, mine->final, mine->text);
    machines->reported = true;
    pthread_mutex_lock(&link->lock);
    while ((late = first_running(link)) >= 0) {
        int64_t now = ah_now_ns();
        trouble = trouble || !(mine->code || is_trouble(link)) ? trouble : now;
        bool stopped = stop(context);
        if (stopped || (trouble && now > trouble + attribution_ns)) {
            late = stopped ? -1 : late;
            break;
        }
        if (!reported && now > begin + stall_warning_ns) {
            report_waiting(machines);
            reported = true;
        }
        wait_a_moment(link, second_ns / 5);
    }
    attribution_judge(machines, late, all, blamed);
    pthread_mutex_unlock(&link->lock);
}
