/* Lines are read in their order until all hosts have joined; later ones are too many. */
#include "comm/join/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/notice.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "comm/control/control_block.h"
#include "comm/join/membership_table.h"

static const char membership_list[] = "hosts";
static const int64_t slice_ns = 200000000;

struct call {
    struct ah_member_table member_table;
    int64_t begin_ns;
    bool reported;
};

/* Connecting. */

static void report_store(const struct ah_store_options *place, const struct ah_membership *mine)
{
    ah_notice("%s (%s) has waited %.3g s for the job's store at %s, port %d, which the first %s serves: that has not "
              "begun, or the job is over (%s)",
              mine->what, mine->name, (double)mine->stall_warning_ns / 1e9, place->host, place->port, mine->what,
              ah_error_text());
}

int ah_membership_store(struct ah_store **out, const struct ah_store_options *place, const struct ah_membership *mine)
{
    int64_t first = mine->stall_warning_ns < mine->timeout_ns ? mine->stall_warning_ns : mine->timeout_ns;
    int status = ah_store_connect(out, place, first);
    if (status == AH_ETIMEOUT && first < mine->timeout_ns) {
        report_store(place, mine);
        status = ah_store_connect(out, place, mine->timeout_ns - first);
    }
    if (status == AH_ETIMEOUT)
        return ah_fail_prefix(status, "the first %s did not arrive within %.3g s", mine->what,
                              (double)mine->timeout_ns / 1e9);
    return status;
}

/* The member table. */

static bool is_complete(const struct ah_member_table *member_table)
{
    return member_table->mine->hosts ? member_table->count == member_table->mine->hosts
                                     : member_table->ranks >= member_table->mine->size;
}

static int look_at_clock(struct call *call)
{
    const struct ah_membership *mine = call->member_table.mine;
    char missing[512];
    int64_t waited = ah_now_ns() - call->begin_ns;
    if (waited <= mine->stall_warning_ns && waited <= mine->timeout_ns)
        return 0;
    ah_member_table_missing(&call->member_table, missing, sizeof missing);
    if (waited > mine->timeout_ns)
        return ah_fail(AH_ETIMEOUT, "%s: did not arrive within %.3g s: %s", mine->name, (double)mine->timeout_ns / 1e9,
                       missing);
    if (!call->reported)
        ah_notice("%s (%s) has waited %.3g s for %s", mine->what, mine->name, (double)mine->stall_warning_ns / 1e9,
                  missing);
    call->reported = true;
    return 0;
}

static int read_members(struct ah_store *store, struct call *call)
{
    char key[32], *text;
    size_t bytes;
    while (!is_complete(&call->member_table)) {
        snprintf(key, sizeof key, "%s/%d", membership_list, call->member_table.count);
        int status = ah_store_get(store, key, &text, &bytes, slice_ns);
        if (status == 0) {
            status = ah_member_table_add(&call->member_table, text, call->member_table.count);
            free(text);
        } else if (status == AH_ETIMEOUT) {
            status = look_at_clock(call);
        }
        AH_TRY(status);
    }
    return 0;
}

int ah_membership(struct ah_store *store, const struct ah_membership *mine, struct ah_hosts *out)
{
    struct call call = {.member_table.mine = mine, .begin_ns = ah_now_ns()};
    char text[AH_MEMBER_TEXT];
    int order[AH_HOSTS_MAX];
    int64_t place;
    int bytes = ah_member_table_write(mine, text, sizeof text);
    AH_TRY(ah_store_append(store, membership_list, text, (size_t)bytes, &place));
    AH_TRY(read_members(store, &call));
    if (place >= call.member_table.count)
        return ah_fail(AH_EINVAL, "the job has its %d %ss already, the first of them %s", call.member_table.count,
                       mine->what, call.member_table.host[0].name);
    ah_member_table_order(&call.member_table, order);
    out->mine = 0;
    for (int h = 0; h < call.member_table.count; h++)
        if (order[h] == (int)place)
            out->mine = h;
    AH_TRY(ah_member_table_make(&call.member_table, order, out));
    return ah_membership_check(mine, out);
}

int ah_membership_check(const struct ah_membership *mine, const struct ah_hosts *hosts)
{
    int first = hosts->first[hosts->mine], ranks = hosts->first[hosts->mine + 1] - first;
    if (ranks == mine->ranks && (mine->first < 0 || mine->first == first))
        return 0;
    return ah_fail(AH_EINVAL, "%s has %d ranks, but in the table of %ss its %d start at %d", mine->name,
                   mine->ranks, mine->what, ranks, first);
}

/* As a text: MINE/FIRST:NAME,FIRST:NAME/SIZE. */

void ah_hosts_write(const struct ah_hosts *hosts, char *text, size_t room)
{
    int at = snprintf(text, room, "%d/", hosts->mine);
    for (int h = 0; h < hosts->count && (size_t)at < room; h++)
        at += snprintf(text + at, room - (size_t)at, "%s%d:%s", h ? "," : "", hosts->first[h], hosts->name[h]);
    if ((size_t)at < room)
        snprintf(text + at, room - (size_t)at, "/%d", hosts->first[hosts->count]);
}

int ah_hosts_read(struct ah_hosts *hosts, const char *text)
{
    int at = 0, used = 0;
    hosts->count = 0;
    bool good = sscanf(text, "%d/%n", &hosts->mine, &at) == 1 && at > 0;
    for (const char *from = text + at; good; from = text + at) {
        int h = hosts->count;
        used = 0;
        good = h < AH_HOSTS_MAX && sscanf(from, "%d:%63[^,/]%n", &hosts->first[h], hosts->name[h], &used) == 2 && used;
        good = good && ah_host_is_name(hosts->name[h]) &&
               (h ? hosts->first[h] > hosts->first[h - 1] : hosts->first[h] == 0);
        hosts->count++;
        at += used + 1;
        if (good && text[at - 1] == '/')
            break;
        good = good && text[at - 1] == ',';
    }
    good = good && sscanf(text + at, "%d%n", &hosts->first[hosts->count], &used) == 1 && !text[at + used] &&
           hosts->first[hosts->count] > hosts->first[hosts->count - 1] &&
           hosts->first[hosts->count] <= AH_MAX_RANKS && hosts->mine >= 0 && hosts->mine < hosts->count;
    return good ? 0 : ah_fail(AH_EINVAL, "ACCELHOST_HOSTS: '%.80s' is no table of hosts", text);
}
