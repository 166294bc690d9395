/* Failure attribution: how a job ended, and by which rank. Failures are ordered by the control block's clock; a rank
 * that only lost a peer records that there, and is last. Invariant: a rank that the launcher ended is no failure. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/printable.h"
#include "base/status/status.h"
#include "cli/base/syscalls.h"
#include "cli/job/job_state.h"
#include "comm/control/collective.h"
#include "comm/control/control_block.h"

void ah_job_notice(struct ah_job *job, const char *format, ...)
{
    char text[AH_RANK_TEXT + 4096]; /* a rank's text and additions */
    va_list args;
    if (!job->options.notice)
        return;
    int at = snprintf(text, sizeof text, "%s: ", job->name);
    va_start(args, format);
    vsnprintf(text + at, sizeof text - (size_t)at, format, args);
    va_end(args);
    ah_make_printable(text);
    job->options.notice(job->options.context, text);
}

static bool has_failed(const struct ah_job *job, int rank)
{
    const struct ah_rank_process *process = &job->rank[rank];
    const struct ah_rank_entry *slot = ah_job_slot(job, rank);
    return atomic_load(&slot->state) == AH_RANK_FAILED || ((process->code || process->signal) && !process->killed);
}

/* The rank that failed first, those that only lost a peer last; -1 when none did. */
static int first_failure(const struct ah_job *job)
{
    int first = -1;
    int64_t time = 0;
    for (int victims = 0; victims < 2 && first < 0; victims++) {
        for (int r = 0; r < job->size; r++) {
            struct ah_rank_entry *slot = ah_job_slot(job, r);
            int64_t ended = atomic_load(&slot->ended_ns);
            if (!has_failed(job, r) || (bool)atomic_load(&slot->victim) != (bool)victims)
                continue;
            if (first < 0 || ended < time) {
                first = r;
                time = ended;
            }
        }
    }
    return first;
}

/* The failure that ended the job: none when it was asked to end before. */
static int job_attribution_cause(const struct ah_job *job)
{
    int first = first_failure(job);
    if (first < 0 || !job->signal)
        return first;
    return atomic_load(&ah_job_slot(job, first)->ended_ns) < job->signal_ns ? first : -1;
}

static bool timed_out(const struct ah_job *job, int rank)
{
    return atomic_load(&ah_job_slot(job, rank)->group_status) == AH_ETIMEOUT;
}

/* Every rank ended with 2 before its first collective: the ranks have printed the reason. */
static bool is_usage(const struct ah_job *job)
{
    for (int r = 0; r < job->size; r++)
        if (job->rank[r].code != 2 || ah_control_last_call(job->control, job->first + r, &(uint32_t){0}))
            return false;
    return true;
}

/* Did the reader of the output close it? A single rank writes to the launcher's output itself: the signal that ended it
 * would have ended the launcher. */
static bool lost_its_reader(const struct ah_job *job)
{
    return job->size == 1 && job->rank[0].signal == SIGPIPE;
}

int ah_job_exit_code(const struct ah_job *job)
{
    if (job->signal)
        return 128 + job->signal;
    int first = first_failure(job);
    if (first < 0)
        return 0;
    if (lost_its_reader(job))
        return 128 + SIGPIPE;
    if (is_usage(job))
        return 2;
    return timed_out(job, first) ? 4 : 3;
}

void ah_job_list_ranks(const struct ah_job *job, const bool *listed, char *text, size_t room)
{
    int count = 0, at, size = job->size, first = job->first;
    for (int r = 0; r < size; r++)
        count += listed[r];
    at = snprintf(text, room, count > 1 ? "ranks" : "rank");
    for (int r = 0, some = 0; r < size && (size_t)at + 16 < room; r++) {
        if (!listed[r])
            continue;
        int end = r;
        while (end + 1 < size && listed[end + 1])
            end++;
        if (end < r + 2)
            end = r;
        at += snprintf(text + at, room - (size_t)at, end > r ? "%s%d-%d" : "%s%d", some++ ? ", " : " ", first + r,
                       first + end);
        r = end;
    }
}

void ah_job_last_collective(const struct ah_job *job, int rank, char *text, size_t room)
{
    uint32_t number;
    const struct ah_call_record *record = ah_control_last_call(job->control, job->first + rank, &number);
    text[0] = 0;
    if (record)
        snprintf(text, room, "; its last collective was %s #%u at %.*s", ah_call_record_name(record), number,
                 AH_CALL_WHERE, record->where);
}

/* A line for the ranks of one kind, if there are any. */
static void job_attribution_report(struct ah_job *job, const bool *listed, const char *what, const char *more)
{
    char ranks[1024];
    for (int r = 0; r < job->size; r++) {
        if (!listed[r])
            continue;
        ah_job_list_ranks(job, listed, ranks, sizeof ranks);
        ah_job_notice(job, "%s %s%s\n", ranks, what, more);
        return;
    }
}

/* Do two ranks' words begin with the same line? */
static bool failed_alike(const struct ah_rank_entry *a, const struct ah_rank_entry *b)
{
    size_t bytes = strcspn(a->text, "\n");
    return bytes > 0 && bytes == strcspn(b->text, "\n") && !memcmp(a->text, b->text, bytes);
}

/* Report the other ranks: those that did not end in time, those with another failure or the same one, those that were
 * ended. */
static void report_others(struct ah_job *job, int first)
{
    bool own[AH_MAX_RANKS] = {false}, alike[AH_MAX_RANKS] = {false}, taken[AH_MAX_RANKS] = {false};
    int blamed = atomic_load(&ah_job_slot(job, first)->blamed), here = blamed - job->first;
    bool stopped = here >= 0 && here < job->size && job->rank[here].stopped;
    char line[1024] = "";
    for (int r = job->size; r-- > 0;) {
        struct ah_rank_entry *slot = ah_job_slot(job, r);
        if (r == first || r == here || !(has_failed(job, r) || job->rank[r].killed))
            continue;
        own[r] = atomic_load(&slot->state) == AH_RANK_FAILED && !atomic_load(&slot->victim);
        taken[r] = !own[r];
        alike[r] = own[r] && failed_alike(slot, ah_job_slot(job, first));
        own[r] = own[r] && !alike[r];
        if (own[r])
            snprintf(line, sizeof line, "%.*s", (int)strcspn(slot->text, "\n"), slot->text);
    }
    if (blamed >= 0)
        ah_job_notice(job, "rank %d %s\n", blamed, stopped ? "had been stopped by a signal and was killed"
                                                           : "did not arrive and was killed");
    job_attribution_report(job, alike, "failed in the same way", "");
    job_attribution_report(job, own, "failed too: ", line);
    job_attribution_report(job, taken, "ended because of it", "");
}

bool ah_job_failed(const struct ah_job *job, struct ah_job_failure *failure)
{
    int first = job_attribution_cause(job);
    if (first < 0)
        return false;
    const struct ah_rank_process *process = &job->rank[first];
    struct ah_rank_entry *slot = ah_job_slot(job, first);
    bool failed = atomic_load(&slot->state) == AH_RANK_FAILED;
    *failure = (struct ah_job_failure){
        .rank = job->first + first, .victim = atomic_load(&slot->victim), .code = process->code,
        .signal = process->signal, .timed_out = timed_out(job, first),
        .most_bytes = (int64_t)process->most_kib * 1024, .text = failed ? slot->text : "",
    };
    return true;
}

/* Ctrl-C: report the collective that the job was in. */
static void report_interrupt(struct ah_job *job)
{
    char last[192];
    for (int r = 0; r < job->size; r++) {
        ah_job_last_collective(job, r, last, sizeof last);
        if (!last[0])
            continue;
        ah_job_notice(job, "interrupted; rank %d's%s\n", job->first + r, last + strlen("; its"));
        return;
    }
    ah_job_notice(job, "interrupted\n");
}

void ah_job_report(struct ah_job *job)
{
    int first = job_attribution_cause(job);
    if (first < 0 && job->signal == SIGINT)
        report_interrupt(job);
    if (first < 0 || lost_its_reader(job) || is_usage(job))
        return;
    const struct ah_rank_process *process = &job->rank[first];
    struct ah_rank_entry *slot = ah_job_slot(job, first);
    char last[192];
    int number = job->first + first;
    ah_job_last_collective(job, first, last, sizeof last);
    if (atomic_load(&slot->state) == AH_RANK_FAILED) {
        size_t bytes = strnlen(slot->text, sizeof slot->text);
        bool ended = bytes && slot->text[bytes - 1] == '\n';
        ah_job_notice(job, "rank %d failed: %.*s%s", number, (int)bytes, slot->text,
                      ended ? "" : "\n");
    } else if (process->signal == SIGKILL) {
        ah_job_notice(job, "rank %d was killed by SIGKILL (out of memory, or kill -9; it had %.0f MB)"
                      "%s\n", number, (double)process->most_kib / 1024, last);
    } else if (process->signal) {
        const char *name = ah_signal_name(process->signal);
        ah_job_notice(job, "rank %d was killed by %s%s\n", number, name ? name : "a signal", last);
    } else {
        ah_job_notice(job, "rank %d exited with code %d%s\n", number, process->code, last);
    }
    report_others(job, first);
    if (job->replaced)
        ah_job_notice(job, "ranks had been replaced %d time%s, of at most %d (--max_restarts)\n", job->replaced,
                      job->replaced == 1 ? "" : "s", job->options.replacements);
}
