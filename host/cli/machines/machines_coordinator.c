/* The member table is closed when all possible machines have arrived, or enough of them and the time of the last call
 * has passed. */
#include "cli/machines/machines_coordinator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "base/status/status.h"
#include "base/trace/time.h"

static const int64_t slice_ns = 100000000;
static const int64_t line_ns = INT64_C(5000000000);   /* for a line that its machine has written */
static const int64_t moment_ns = INT64_C(1000000000); /* for newcomers, once all are here that were there before */
static const int64_t refuse_ns = INT64_C(3000000000); /* for all to read why there is no table */

static int coordinator_set(struct ah_coordinator *coordinator, const char *key, const char *text)
{
    return ah_store_set(coordinator->store, key, text, strlen(text));
}

int ah_coordinator_open(struct ah_coordinator *coordinator, const struct ah_store_options *place,
                        const struct ah_machines_options *options)
{
    char job[AH_MACHINES_JOB];
    coordinator->options = options;
    AH_TRY(ah_store_connect(&coordinator->store, place, line_ns));
    snprintf(job, sizeof job, "%d.%" PRId64, (int)getpid(), ah_now_ns());
    return coordinator_set(coordinator, "job", job);
}

void ah_coordinator_close(struct ah_coordinator *coordinator)
{
    ah_store_close(coordinator->store);
    coordinator->store = NULL;
}

static void say_missing(struct ah_coordinator *coordinator, const char *text)
{
    char key[32];
    snprintf(key, sizeof key, "missing/%d", coordinator->generation);
    coordinator_set(coordinator, key, text);
}

static void report_place(struct ah_coordinator *coordinator, int64_t place, int status, const char *text)
{
    char key[64], answer[1024];
    snprintf(key, sizeof key, "answer/%d/%" PRId64, coordinator->generation, place);
    snprintf(answer, sizeof answer, "%d %s", status, text);
    coordinator_set(coordinator, key, answer);
}

/* Remove the lists of a generation that are no longer read. */
static void coordinator_forget(struct ah_coordinator *coordinator, int generation)
{
    static const char *const lists[] = {"hosts", "events", "answer"};
    for (size_t l = 0; l < sizeof lists / sizeof *lists && generation >= 0; l++) {
        bool was = true;
        for (int i = 0; was; i++) {
            char key[48];
            snprintf(key, sizeof key, "%s/%d/%d", lists[l], generation, i);
            if (ah_store_delete(coordinator->store, key, &was) < 0)
                return;
        }
    }
}

int ah_coordinator_begin(struct ah_coordinator *coordinator, const struct ah_membership *mine, int generation,
                         int expected)
{
    char text[16];
    coordinator->mine = *mine;
    coordinator->member_table = (struct ah_member_table){.mine = &coordinator->mine};
    coordinator->generation = generation;
    coordinator->expected = expected;
    coordinator->heard = 0;
    coordinator->here = 0;
    coordinator->enough_ns = 0;
    coordinator->reported = false;
    coordinator->begin_ns = ah_now_ns();
    coordinator_forget(coordinator, generation - 2);
    snprintf(text, sizeof text, "%d", generation);
    return coordinator_set(coordinator, "generation", text);
}

/* The member table. */

static int fetch_line(struct ah_coordinator *coordinator, int64_t place, char **text)
{
    char key[48];
    size_t bytes;
    snprintf(key, sizeof key, "hosts/%d/%" PRId64, coordinator->generation, place);
    return ah_store_get(coordinator->store, key, text, &bytes, line_ns);
}

/* Add an entry. A contradiction ends the first rendezvous, where neither side is known to be right, and later refuses
 * the newcomer. */
static int coordinator_take(struct ah_coordinator *coordinator, int64_t place)
{
    char *text;
    AH_TRY(fetch_line(coordinator, place, &text));
    int status = ah_member_table_add(&coordinator->member_table, text, place);
    free(text);
    if (status == 0 || !coordinator->generation)
        return status;
    report_place(coordinator, place, status, ah_error_text());
    return 0;
}

/* Return the next event: a machine that has arrived (+1) or left (-1); *place -1: none. */
static int next_event(struct ah_coordinator *coordinator, int *step, int64_t *place)
{
    char key[48], word[16], *line;
    size_t bytes;
    *place = -1;
    snprintf(key, sizeof key, "events/%d/%" PRId64, coordinator->generation, coordinator->heard);
    int status = ah_store_get(coordinator->store, key, &line, &bytes, slice_ns);
    if (status < 0)
        return status == AH_ETIMEOUT && !ah_store_is_closed(coordinator->store) ? 0 : status;
    coordinator->heard++;
    bool read = sscanf(line, "%15s %" SCNd64, word, place) == 2;
    *step = !read ? 0 : !strcmp(word, "here") - !strcmp(word, "gone");
    coordinator->here += *step;
    if (!*step)
        *place = -1;
    free(line);
    return 0;
}

static int coordinator_handle(struct ah_coordinator *coordinator)
{
    int step;
    int64_t place;
    AH_TRY(next_event(coordinator, &step, &place));
    if (place >= 0 && step > 0)
        return coordinator_take(coordinator, place);
    if (place >= 0)
        ah_member_table_drop(&coordinator->member_table, place);
    return 0;
}

static bool is_complete(struct ah_coordinator *coordinator)
{
    const struct ah_machines_options *options = coordinator->options;
    int64_t now = ah_now_ns(), last_call_ns = (int64_t)(options->last_call * 1e9);
    if (coordinator->member_table.count < options->least)
        coordinator->enough_ns = 0;
    else if (!coordinator->enough_ns)
        coordinator->enough_ns = now;
    if (coordinator->member_table.count == options->machines)
        return true;
    if (coordinator->expected && coordinator->member_table.count >= coordinator->expected && last_call_ns > moment_ns)
        last_call_ns = moment_ns;
    return coordinator->enough_ns && now >= coordinator->enough_ns + last_call_ns;
}

static int look_at_clock(struct ah_coordinator *coordinator)
{
    const struct ah_membership *mine = &coordinator->mine;
    int64_t waited = ah_now_ns() - coordinator->begin_ns;
    int least = coordinator->options->least, more = least - coordinator->member_table.count;
    char missing[512];
    if (more <= 0 || (waited <= mine->stall_warning_ns && waited <= mine->timeout_ns))
        return 0;
    if (least < coordinator->options->machines)
        snprintf(missing, sizeof missing, "%d more of at least %d machines", more, least);
    else
        ah_member_table_missing(&coordinator->member_table, missing, sizeof missing);
    if (waited > mine->timeout_ns)
        return ah_fail(AH_ETIMEOUT, "%s: did not arrive within %.3g s: %s", mine->name, (double)mine->timeout_ns / 1e9,
                       missing);
    if (!coordinator->reported)
        ah_notice("machine (%s) has waited %.3g s for %s", mine->name, (double)mine->stall_warning_ns / 1e9, missing);
    coordinator->reported = true;
    say_missing(coordinator, missing);
    return 0;
}

int ah_coordinator_call(struct ah_coordinator *coordinator, bool (*stop)(void *context), void *context)
{
    while (!is_complete(coordinator)) {
        AH_TRY(coordinator_handle(coordinator));
        AH_TRY(look_at_clock(coordinator));
        if (stop && stop(context))
            return ah_fail(AH_EPEER, "asked to end during the rendezvous of the machines");
    }
    return 0;
}

/* If the number of machines varies, their configured ranks are only an order. */
static void coordinator_renumber(struct ah_member_table *member_table)
{
    int number[AH_HOSTS_MAX];
    for (int i = 0; i < member_table->count; i++) {
        int own = member_table->host[i].number;
        number[i] = 0;
        for (int j = 0; j < member_table->count; j++) {
            int other = member_table->host[j].number;
            bool before = own < 0 ? other >= 0 || j < i : other >= 0 && other < own;
            number[i] += before;
        }
    }
    for (int i = 0; i < member_table->count; i++)
        member_table->host[i].number = number[i];
}

int ah_coordinator_answer(struct ah_coordinator *coordinator, const struct ah_rendezvous *rendezvous)
{
    static char text[AH_MACHINES_ANSWER];
    struct ah_rendezvous answer = {.restarts = rendezvous->restarts, .port = rendezvous->port};
    struct ah_member_table ordered = coordinator->member_table;
    struct ah_hosts hosts;
    int order[AH_HOSTS_MAX];
    char key[64];
    if (coordinator->options->least < coordinator->options->machines)
        coordinator_renumber(&ordered);
    ah_member_table_order(&ordered, order);
    AH_TRY(ah_member_table_make(&ordered, order, &hosts));
    for (int h = 0; h < hosts.count; h++)
        answer.places[h] = ordered.place[order[h]];
    snprintf(text, sizeof text, "a place among the job's %d machines", coordinator->options->machines);
    say_missing(coordinator, text);
    for (hosts.mine = 0; hosts.mine < hosts.count; hosts.mine++) {
        snprintf(key, sizeof key, "answer/%d/%" PRId64, coordinator->generation, answer.places[hosts.mine]);
        int bytes = ah_rendezvous_write(&answer, &hosts, text, sizeof text);
        AH_TRY(ah_store_set(coordinator->store, key, text, (size_t)bytes));
    }
    return 0;
}

/* Until only this machine's own launcher is left. */
static void await_leaving(struct ah_coordinator *coordinator)
{
    int step;
    int64_t place, until = ah_now_ns() + refuse_ns;
    while (next_event(coordinator, &step, &place) == 0 && ah_now_ns() < until)
        if (place < 0 && coordinator->here <= 1)
            return;
}

int ah_coordinator_refuse(struct ah_coordinator *coordinator, int status)
{
    char reason[768];
    snprintf(reason, sizeof reason, "%s", ah_error_text());
    for (int64_t place = 0; place < coordinator->heard + AH_HOSTS_MAX; place++)
        report_place(coordinator, place, status, reason);
    await_leaving(coordinator);
    return ah_fail(status, "%s", reason);
}

bool ah_coordinator_knock(struct ah_coordinator *coordinator, int64_t place, bool last, char name[AH_HOST_NAME])
{
    struct ah_member_table member_table = coordinator->member_table;
    char *text, reason[160];
    if (member_table.count == coordinator->options->machines) {
        snprintf(reason, sizeof reason, "the job has its %d machines already, the first of them %s", member_table.count,
                 coordinator->mine.name);
        if (last)
            report_place(coordinator, place, AH_EINVAL, reason);
        return false;
    }
    if (fetch_line(coordinator, place, &text) < 0)
        return false;
    for (int i = 0; i < member_table.count; i++)
        member_table.host[i].number = -1; /* the machine with its number may have left without a report yet */
    int status = ah_member_table_add(&member_table, text, place);
    free(text);
    if (status < 0) {
        report_place(coordinator, place, status, ah_error_text());
        return false;
    }
    memcpy(name, member_table.host[member_table.count - 1].name, AH_HOST_NAME);
    return true;
}
