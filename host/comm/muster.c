/* A host's entry in the list is a line of numbers and its name. Entries are read in their order until the hosts are all
 * there; what comes after is too many. */
#include "comm/muster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tell.h"
#include "base/time.h"
#include "comm/board.h"

static const char list[] = "hosts";
static const int64_t slice_ns = 200000000;

struct roll {
    const struct ah_muster *mine;
    struct ah_muster host[AH_HOSTS_MAX];
    int count, ranks, place; /* of the own entry */
    int64_t begin_ns;
    bool told;
};

/* Connecting. */

static void tell_store(const struct ah_store_place *place, const struct ah_muster *mine)
{
    ah_tell("%s (%s) has waited %.3g s for the job's store at %s, port %d, which the first %s serves", mine->what,
            mine->name, (double)mine->patience_ns / 1e9, place->host, place->port, mine->what);
}

int ah_muster_store(struct ah_store **out, const struct ah_store_place *place, const struct ah_muster *mine)
{
    int64_t first = mine->patience_ns < mine->timeout_ns ? mine->patience_ns : mine->timeout_ns;
    int status = ah_store_connect(out, place, first);
    if (status == AH_ETIMEOUT && first < mine->timeout_ns) {
        tell_store(place, mine);
        status = ah_store_connect(out, place, mine->timeout_ns - first);
    }
    if (status == AH_ETIMEOUT)
        return ah_fail_prefix(status, "the first %s did not come within %.3g s", mine->what,
                              (double)mine->timeout_ns / 1e9);
    return status;
}

/* Entries. */

static int write_entry(const struct ah_muster *mine, char *text, size_t room)
{
    return snprintf(text, room, "%zu %d %d %d %d %d %s", sizeof(struct ah_board_slot), mine->number, mine->first,
                    mine->ranks, mine->hosts, mine->size, mine->name);
}

static int read_entry(const char *text, struct ah_muster *out)
{
    size_t version;
    if (sscanf(text, "%zu %d %d %d %d %d %63s", &version, &out->number, &out->first, &out->ranks, &out->hosts,
               &out->size, out->name) != 7)
        return ah_fail(AH_EIO, "the job's store holds '%.80s' where a host should be", text);
    if (out->number >= AH_HOSTS_MAX || out->ranks < 1 || out->ranks > AH_BOARD_MAX_RANKS || out->hosts < 0 ||
        out->hosts > AH_HOSTS_MAX || out->first >= AH_BOARD_MAX_RANKS || out->size > AH_BOARD_MAX_RANKS)
        return ah_fail(AH_EINVAL, "%s: expected at most %d hosts and %d ranks", out->name, AH_HOSTS_MAX,
                       AH_BOARD_MAX_RANKS);
    if (version != sizeof(struct ah_board_slot))
        return ah_fail(AH_EINVAL, "%s runs another version of accelhost", out->name);
    return 0;
}

/* What two entries may not have in common, and what they must. */
static int compare(const struct ah_muster *mine, const struct ah_muster *a, const struct ah_muster *b)
{
    if (a->hosts != b->hosts)
        return ah_fail(AH_EINVAL, "%s says that there are %d %ss, and %s %d", a->name, a->hosts, mine->what, b->name,
                       b->hosts);
    if (a->size && b->size && a->size != b->size)
        return ah_fail(AH_EINVAL, "%s says that the job has %d ranks, and %s %d", a->name, a->size, b->name, b->size);
    if (a->number >= 0 && a->number == b->number)
        return ah_fail(AH_EINVAL, "%s and %s both say that they are %s %d", a->name, b->name, mine->what, a->number);
    if (a->first >= 0 && b->first >= 0 && a->first < b->first + b->ranks && b->first < a->first + a->ranks)
        return ah_fail(AH_EINVAL, "rank %d is on %s and on %s", a->first > b->first ? a->first : b->first, a->name,
                       b->name);
    return 0;
}

static int take_entry(struct roll *roll, const char *text)
{
    struct ah_muster *host = &roll->host[roll->count];
    AH_TRY(read_entry(text, host));
    for (int i = 0; i < roll->count; i++)
        AH_TRY(compare(roll->mine, &roll->host[i], host));
    if (host->hosts && host->number >= host->hosts)
        return ah_fail(AH_EINVAL, "%s says that it is %s %d of %d, which count from 0", host->name, roll->mine->what,
                       host->number, host->hosts);
    roll->count++;
    roll->ranks += host->ranks;
    return 0;
}

static bool is_complete(const struct roll *roll)
{
    return roll->mine->hosts ? roll->count == roll->mine->hosts : roll->ranks >= roll->mine->size;
}

/* Who is missing: "machine 1", "1 of 2 machines", "ranks 2-3". */
static void describe_missing(const struct roll *roll, char *text, size_t room)
{
    const struct ah_muster *mine = roll->mine;
    bool numbered = mine->hosts > 0, here[AH_BOARD_MAX_RANKS] = {false};
    for (int i = 0; i < roll->count; i++) {
        numbered &= roll->host[i].number >= 0;
        for (int r = 0; roll->host[i].first >= 0 && r < roll->host[i].ranks; r++)
            if (roll->host[i].first + r < AH_BOARD_MAX_RANKS)
                here[roll->host[i].first + r] = true;
        if (numbered)
            here[roll->host[i].number] = true;
    }
    int count = mine->hosts ? mine->hosts : mine->size, at = 0;
    int missing = count - (mine->hosts ? roll->count : roll->ranks);
    if (mine->hosts && !numbered) {
        at = snprintf(text, room, "%d of %d %ss", missing, count, mine->what);
    } else {
        at = snprintf(text, room, "%s%s", mine->hosts ? mine->what : "rank", missing > 1 ? "s" : "");
        for (int i = 0, some = 0; i < count && (size_t)at + 16 < room; i++)
            if (!here[i])
                at += snprintf(text + at, room - (size_t)at, "%s%d", some++ ? ", " : " ", i);
    }
}

static int look_at_clock(struct roll *roll)
{
    const struct ah_muster *mine = roll->mine;
    char missing[512];
    int64_t waited = ah_now_ns() - roll->begin_ns;
    if (waited <= mine->patience_ns && waited <= mine->timeout_ns)
        return 0;
    describe_missing(roll, missing, sizeof missing);
    if (waited > mine->timeout_ns)
        return ah_fail(AH_ETIMEOUT, "%s: did not come within %.3g s: %s", mine->name, (double)mine->timeout_ns / 1e9,
                       missing);
    if (!roll->told)
        ah_tell("%s (%s) has waited %.3g s for %s", mine->what, mine->name, (double)mine->patience_ns / 1e9, missing);
    roll->told = true;
    return 0;
}

static int call_roll(struct ah_store *store, struct roll *roll)
{
    char key[32], *text;
    size_t bytes;
    while (!is_complete(roll)) {
        if (roll->count == AH_HOSTS_MAX)
            return ah_fail(AH_EINVAL, "expected at most %d hosts", AH_HOSTS_MAX);
        snprintf(key, sizeof key, "%s/%d", list, roll->count);
        int status = ah_store_get(store, key, &text, &bytes, slice_ns);
        if (status == 0) {
            status = take_entry(roll, text);
            free(text);
        } else if (status == AH_ETIMEOUT) {
            status = look_at_clock(roll);
        }
        AH_TRY(status);
    }
    return 0;
}

/* The table. */

/* By what was told, then by first ranks, then by the order of coming: the place of host h's entry, -1 for none. */
static void number_hosts(const struct roll *roll, int place[AH_HOSTS_MAX])
{
    bool placed[AH_HOSTS_MAX] = {false};
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        place[h] = -1;
    for (int i = 0; i < roll->count; i++) {
        int number = roll->host[i].number;
        placed[i] = number >= 0 && number < roll->count;
        if (placed[i])
            place[number] = i;
    }
    for (int h = 0; h < roll->count; h++) {
        if (place[h] >= 0)
            continue;
        for (int i = 0; i < roll->count; i++)
            if (!placed[i] && (place[h] < 0 || roll->host[i].first < roll->host[place[h]].first))
                place[h] = i;
        placed[place[h]] = true;
    }
}

static int draw_up(const struct roll *roll, struct ah_hosts *out)
{
    int place[AH_HOSTS_MAX];
    number_hosts(roll, place);
    out->count = roll->count;
    out->first[0] = 0;
    for (int h = 0; h < roll->count; h++) {
        const struct ah_muster *host = &roll->host[place[h]];
        if (host->first >= 0 && host->first != out->first[h])
            return ah_fail(AH_EINVAL, "rank %d is the first one of %s, and rank %d is nowhere", host->first, host->name,
                           out->first[h]);
        memcpy(out->name[h], host->name, sizeof out->name[h]);
        out->first[h + 1] = out->first[h] + host->ranks;
        if (place[h] == roll->place)
            out->mine = h;
    }
    for (int i = 0; i < roll->count; i++)
        if (roll->host[i].size && out->first[out->count] != roll->host[i].size)
            return ah_fail(AH_EINVAL, "the job is to have %d ranks, and its %d %ss have %d", roll->host[i].size,
                           out->count, roll->mine->what, out->first[out->count]);
    if (out->first[out->count] > AH_BOARD_MAX_RANKS)
        return ah_fail(AH_EINVAL, "%d ranks come together, expected at most %d", out->first[out->count],
                       AH_BOARD_MAX_RANKS);
    return 0;
}

int ah_muster(struct ah_store *store, const struct ah_muster *mine, struct ah_hosts *out)
{
    struct roll roll = {.mine = mine, .begin_ns = ah_now_ns()};
    char text[256];
    int64_t place;
    int bytes = write_entry(mine, text, sizeof text);
    AH_TRY(ah_store_append(store, list, text, (size_t)bytes, &place));
    roll.place = (int)place;
    AH_TRY(call_roll(store, &roll));
    if (place >= roll.count)
        return ah_fail(AH_EINVAL, "the job has its %d %ss already, the first of them %s", roll.count, mine->what,
                       roll.host[0].name);
    return draw_up(&roll, out);
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
        good = good && (h ? hosts->first[h] > hosts->first[h - 1] : hosts->first[h] == 0);
        hosts->count++;
        at += used + 1;
        if (good && text[at - 1] == '/')
            break;
        good = good && text[at - 1] == ',';
    }
    good = good && sscanf(text + at, "%d%n", &hosts->first[hosts->count], &used) == 1 && !text[at + used] &&
           hosts->first[hosts->count] > hosts->first[hosts->count - 1] &&
           hosts->first[hosts->count] <= AH_BOARD_MAX_RANKS && hosts->mine >= 0 && hosts->mine < hosts->count;
    return good ? 0 : ah_fail(AH_EINVAL, "ACCELHOST_HOSTS: '%.80s' is no table of hosts", text);
}
