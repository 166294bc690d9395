/* A host's line is numbers and its name. */
#include "comm/join/membership_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/status/status.h"
#include "comm/control/control_block.h"

bool ah_host_is_name(const char *name)
{
    size_t at = 0;
    while (isgraph((unsigned char)name[at]) && name[at] != ',' && name[at] != '/')
        at++;
    return at && at < AH_HOST_NAME && !name[at];
}

int ah_member_table_write(const struct ah_membership *host, char *text, size_t room)
{
    return snprintf(text, room, "%zu %d %d %d %d %d %d %d %s", sizeof(struct ah_rank_entry), host->number, host->first,
                    host->ranks, host->hosts, host->size, host->least, host->restarts, host->name);
}

static int read_line(const char *text, struct ah_membership *out)
{
    size_t version;
    if (sscanf(text, "%zu %d %d %d %d %d %d %d %63s", &version, &out->number, &out->first, &out->ranks, &out->hosts,
               &out->size, &out->least, &out->restarts, out->name) != 9 || !ah_host_is_name(out->name))
        return ah_fail(AH_EIO, "the job's store holds '%.80s' where a host should be", text);
    if (out->number >= AH_HOSTS_MAX || out->ranks < 1 || out->ranks > AH_MAX_RANKS || out->hosts < 0 ||
        out->hosts > AH_HOSTS_MAX || out->first >= AH_MAX_RANKS || out->size > AH_MAX_RANKS)
        return ah_fail(AH_EINVAL, "%s: expected at most %d hosts and %d ranks", out->name, AH_HOSTS_MAX,
                       AH_MAX_RANKS);
    if (version != sizeof(struct ah_rank_entry))
        return ah_fail(AH_EINVAL, "%s runs another version of accelhost", out->name);
    return 0;
}

/* Compare two hosts: some fields must differ, others must be equal. */
static int membership_compare(const struct ah_membership *mine, const struct ah_membership *a,
                              const struct ah_membership *b)
{
    if (a->hosts != b->hosts)
        return ah_fail(AH_EINVAL, "%s is configured for %d %ss, and %s for %d", a->name, a->hosts, mine->what, b->name,
                       b->hosts);
    if (a->least != b->least)
        return ah_fail(AH_EINVAL, "%s is configured for at least %d of its %d %ss, and %s for %d", a->name, a->least,
                       a->hosts, mine->what, b->name, b->least);
    if (a->restarts != b->restarts)
        return ah_fail(AH_EINVAL, "%s is configured for at most %d restarts of all ranks (max_restarts), and %s for %d",
                       a->name, a->restarts, b->name, b->restarts);
    if (a->size && b->size && a->size != b->size)
        return ah_fail(AH_EINVAL, "%s is configured for %d ranks, and %s for %d", a->name, a->size, b->name, b->size);
    if (a->number >= 0 && a->number == b->number)
        return ah_fail(AH_EINVAL, "%s and %s are both configured as %s %d", a->name, b->name, mine->what, a->number);
    if (a->first >= 0 && b->first >= 0 && a->first < b->first + b->ranks && b->first < a->first + a->ranks)
        return ah_fail(AH_EINVAL, "rank %d is on %s and on %s", a->first > b->first ? a->first : b->first, a->name,
                       b->name);
    return 0;
}

/* Does `a` come before `b` in the job, as far as their own numbers say? */
static bool membership_precedes(const struct ah_membership *a, const struct ah_membership *b)
{
    if (a->number >= 0 && b->number >= 0)
        return a->number < b->number;
    return a->first >= 0 && (b->first < 0 || a->first < b->first);
}

/* Compare a host with those of the table. The contradiction names the first host of the job that has one, which does
 * not depend on the order of arrival. */
static int check_against_all(const struct ah_member_table *member_table, const struct ah_membership *host)
{
    const struct ah_membership *against = NULL;
    for (int i = 0; i < member_table->count; i++) {
        const struct ah_membership *other = &member_table->host[i];
        if (membership_compare(member_table->mine, other, host) < 0 &&
            (!against || membership_precedes(other, against)))
            against = other;
    }
    return against ? membership_compare(member_table->mine, against, host) : 0;
}

int ah_member_table_add(struct ah_member_table *member_table, const char *text, int64_t place)
{
    struct ah_membership host = {0};
    if (member_table->count == AH_HOSTS_MAX)
        return ah_fail(AH_EINVAL, "expected at most %d hosts", AH_HOSTS_MAX);
    AH_TRY(read_line(text, &host));
    AH_TRY(check_against_all(member_table, &host));
    if (host.hosts && host.number >= host.hosts)
        return ah_fail(AH_EINVAL, "%s is configured as %s %d of %d, which count from 0", host.name,
                       member_table->mine->what, host.number, host.hosts);
    member_table->host[member_table->count] = host;
    member_table->place[member_table->count++] = place;
    member_table->ranks += host.ranks;
    return 0;
}

void ah_member_table_drop(struct ah_member_table *member_table, int64_t place)
{
    int at = 0;
    while (at < member_table->count && member_table->place[at] != place)
        at++;
    if (at == member_table->count)
        return;
    member_table->ranks -= member_table->host[at].ranks;
    member_table->count--;
    memmove(&member_table->host[at], &member_table->host[at + 1],
            (size_t)(member_table->count - at) * sizeof member_table->host[0]);
    memmove(&member_table->place[at], &member_table->place[at + 1],
            (size_t)(member_table->count - at) * sizeof member_table->place[0]);
}

void ah_member_table_missing(const struct ah_member_table *member_table, char *text, size_t room)
{
    const struct ah_membership *mine = member_table->mine;
    bool numbered = mine->hosts > 0, here[AH_MAX_RANKS] = {false};
    for (int i = 0; i < member_table->count; i++) {
        numbered &= member_table->host[i].number >= 0;
        for (int r = 0; member_table->host[i].first >= 0 && r < member_table->host[i].ranks; r++)
            if (member_table->host[i].first + r < AH_MAX_RANKS)
                here[member_table->host[i].first + r] = true;
        if (numbered)
            here[member_table->host[i].number] = true;
    }
    int count = mine->hosts ? mine->hosts : mine->size, at = 0;
    int missing = count - (mine->hosts ? member_table->count : member_table->ranks);
    if (mine->hosts && !numbered) {
        at = snprintf(text, room, "%d of %d %ss", missing, count, mine->what);
    } else {
        at = snprintf(text, room, "%s%s", mine->hosts ? mine->what : "rank", missing > 1 ? "s" : "");
        for (int i = 0, some = 0; i < count && (size_t)at + 16 < room; i++)
            if (!here[i])
                at += snprintf(text + at, room - (size_t)at, "%s%d", some++ ? ", " : " ", i);
    }
}

void ah_member_table_order(const struct ah_member_table *member_table, int order[AH_HOSTS_MAX])
{
    bool placed[AH_HOSTS_MAX] = {false};
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        order[h] = -1;
    for (int i = 0; i < member_table->count; i++) {
        int number = member_table->host[i].number;
        placed[i] = number >= 0 && number < member_table->count;
        if (placed[i])
            order[number] = i;
    }
    for (int h = 0; h < member_table->count; h++) {
        if (order[h] >= 0)
            continue;
        for (int i = 0; i < member_table->count; i++)
            if (!placed[i] && (order[h] < 0 || member_table->host[i].first < member_table->host[order[h]].first))
                order[h] = i;
        placed[order[h]] = true;
    }
}

int ah_member_table_make(const struct ah_member_table *member_table, const int order[AH_HOSTS_MAX],
                         struct ah_hosts *out)
{
    out->count = member_table->count;
    out->first[0] = 0;
    for (int h = 0; h < member_table->count; h++) {
        const struct ah_membership *host = &member_table->host[order[h]];
        if (host->first >= 0 && host->first != out->first[h])
            return ah_fail(AH_EINVAL, "rank %d is the first one of %s, and rank %d is nowhere", host->first, host->name,
                           out->first[h]);
        memcpy(out->name[h], host->name, sizeof out->name[h]);
        out->first[h + 1] = out->first[h] + host->ranks;
    }
    for (int i = 0; i < member_table->count; i++)
        if (member_table->host[i].size && out->first[out->count] != member_table->host[i].size)
            return ah_fail(AH_EINVAL, "the job is to have %d ranks, and its %d %ss have %d", member_table->host[i].size,
                           out->count, member_table->mine->what, out->first[out->count]);
    if (out->first[out->count] > AH_MAX_RANKS)
        return ah_fail(AH_EINVAL, "%d ranks join, expected at most %d", out->first[out->count],
                       AH_MAX_RANKS);
    return 0;
}
