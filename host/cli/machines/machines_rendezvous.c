/* A machine that arrives while the ranks run has its line in a generation that began without it: it waits. */
#include "cli/machines/machines_rendezvous.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/notice.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "comm/join/membership_table.h"

static const int64_t slice_ns = 200000000;
static const int64_t answer_ns = INT64_C(10000000000); /* for the coordinator, whose time is up first */

/* The number that a key holds, `none` before there is one. */
static int read_number(struct ah_store *store, const char *key, int none)
{
    AH_FREED char *text = NULL;
    size_t bytes;
    if (ah_store_get(store, key, &text, &bytes, 0) < 0)
        return none;
    int number = (int)strtol(text, NULL, 10);
    return number;
}

/* The store's will reports this machine as lost, from the moment the coordinator has read its line. */
static int write_line(struct ah_rendezvous *rendezvous)
{
    char line[AH_MEMBER_TEXT], list[32], key[32];
    int bytes = ah_member_table_write(&rendezvous->mine, line, sizeof line);
    snprintf(list, sizeof list, "hosts/%d", rendezvous->generation);
    AH_TRY(ah_store_append(rendezvous->store, list, line, (size_t)bytes, &rendezvous->place));
    snprintf(key, sizeof key, "events/%d", rendezvous->generation);
    bytes = snprintf(line, sizeof line, "gone %" PRId64 " ", rendezvous->place);
    AH_TRY(ah_store_will(rendezvous->store, key, line, (size_t)bytes));
    bytes = snprintf(line, sizeof line, "here %" PRId64 " ", rendezvous->place);
    return ah_store_append(rendezvous->store, key, line, (size_t)bytes, NULL);
}

/* Compare the job's name: a machine whose first machine has ended may find another job of the same user at its
 * address. */
static int compare_jobs(struct ah_rendezvous *rendezvous)
{
    AH_FREED char *job = NULL;
    size_t bytes;
    AH_TRY(ah_store_get(rendezvous->store, "job", &job, &bytes, answer_ns));
    bool other = rendezvous->job[0] && strcmp(job, rendezvous->job);
    snprintf(rendezvous->job, sizeof rendezvous->job, "%s", job);
    return other ? ah_fail(AH_EPEER, "the first machine was gone, and has begun another job") : 0;
}

int ah_rendezvous_enter(struct ah_rendezvous *rendezvous, const struct ah_store_options *place, int generation)
{
    struct ah_membership mine = rendezvous->mine;
    if (generation && mine.timeout_ns > answer_ns)
        mine.timeout_ns = answer_ns; /* it has been there */
    AH_TRY(ah_membership_store(&rendezvous->store, place, &mine));
    AH_TRY(compare_jobs(rendezvous));
    rendezvous->begin_ns = ah_now_ns();
    rendezvous->generation = read_number(rendezvous->store, "generation", generation);
    if (rendezvous->generation < generation)
        rendezvous->generation = generation;
    return write_line(rendezvous);
}

void ah_rendezvous_leave(struct ah_rendezvous *rendezvous)
{
    ah_store_close(rendezvous->store);
    rendezvous->store = NULL;
}

/* The answer. */

int ah_rendezvous_write(const struct ah_rendezvous *rendezvous, const struct ah_hosts *hosts, char *text, size_t room)
{
    int at = snprintf(text, room, "0 %d %d ", rendezvous->restarts, rendezvous->port);
    for (int h = 0; h < hosts->count; h++)
        at += snprintf(text + at, room - (size_t)at, "%" PRId64 "%s", rendezvous->places[h],
                       h + 1 < hosts->count ? "," : " ");
    ah_hosts_write(hosts, text + at, room - (size_t)at);
    return (int)strlen(text);
}

static int read_answer(struct ah_rendezvous *rendezvous, const char *text, struct ah_hosts *out)
{
    int status = 0, at = 0, count = 0, used;
    bool more = true;
    if (sscanf(text, "%d %n", &status, &at) == 1 && status < 0)
        return ah_fail(status, "%s", text + at);
    bool good = sscanf(text, "0 %d %d %n", &rendezvous->restarts, &rendezvous->port, &at) == 2;
    for (; good && more; at += used + 1) {
        used = 0;
        good = count < AH_HOSTS_MAX && sscanf(text + at, "%" SCNd64 "%n", &rendezvous->places[count++], &used) == 1 &&
               (text[at + used] == ',' || text[at + used] == ' ');
        more = good && text[at + used] == ',';
    }
    good = good && rendezvous->port > 0 && rendezvous->port < 65536 && rendezvous->restarts >= 0;
    if (!good || ah_hosts_read(out, text + at) < 0 || out->count != count || out->mine >= count)
        return ah_fail(AH_EIO, "expected a table of machines from the first machine, got '%.80s'", text);
    return ah_membership_check(&rendezvous->mine, out);
}

static int look_at_clock(struct ah_rendezvous *rendezvous)
{
    const struct ah_membership *mine = &rendezvous->mine;
    int64_t waited = ah_now_ns() - rendezvous->begin_ns;
    char key[32], *missing;
    size_t bytes;
    if (waited > mine->timeout_ns + answer_ns)
        return ah_fail(AH_ETIMEOUT, "%s: the first machine has not answered within %.3g s", mine->name,
                       (double)(mine->timeout_ns + answer_ns) / 1e9);
    snprintf(key, sizeof key, "missing/%d", rendezvous->generation);
    if (waited <= mine->stall_warning_ns || rendezvous->reported ||
        ah_store_get(rendezvous->store, key, &missing, &bytes, 0) < 0)
        return 0;
    ah_notice("machine (%s) has waited %.3g s for %s", mine->name, (double)mine->stall_warning_ns / 1e9, missing);
    free(missing);
    rendezvous->reported = true;
    return 0;
}

/* Without an answer yet: has another generation been opened, or is there no reason to wait any more? */
static int wait_on(struct ah_rendezvous *rendezvous)
{
    int newest = read_number(rendezvous->store, "generation", 0);
    if (newest > rendezvous->generation) {
        rendezvous->generation = newest;
        AH_TRY(write_line(rendezvous));
    }
    return look_at_clock(rendezvous);
}

int ah_rendezvous_await(struct ah_rendezvous *rendezvous, bool (*stop)(void *context), void *context,
                        struct ah_hosts *out)
{
    char key[64], *text;
    size_t bytes;
    for (int status = AH_ETIMEOUT;;) {
        snprintf(key, sizeof key, "answer/%d/%" PRId64, rendezvous->generation, rendezvous->place);
        status = ah_store_get(rendezvous->store, key, &text, &bytes, slice_ns);
        if (status == 0)
            break;
        if (stop && stop(context))
            return ah_fail(AH_EPEER, "asked to end during the rendezvous of the machines");
        if (status == AH_ETIMEOUT && !ah_store_is_closed(rendezvous->store))
            status = wait_on(rendezvous);
        if (ah_store_is_closed(rendezvous->store))
            return ah_fail(AH_EPEER, "the first machine, which all meet at, has ended or is gone");
        AH_TRY(status);
    }
    int status = read_answer(rendezvous, text, out);
    free(text);
    return status;
}
