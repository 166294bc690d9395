/* Read off the control block, and asked of the rank where it runs here. */
#include "comm/group/status_text.h"

#include <stdio.h>
#include <string.h>

#include "comm/control/rank_status.h"

const char *ah_status_text_host(struct ah_group *group, int rank, char text[AH_STATUS_TEXT_HOST])
{
    const struct ah_hosts *hosts = group->control->hosts;
    text[0] = 0;
    if (hosts)
        snprintf(text, AH_STATUS_TEXT_HOST, ", on %s", hosts->name[ah_hosts_of(hosts, group->member[rank])]);
    return text;
}

const char *ah_status_text(struct ah_group *group, int rank, char *text, size_t bytes)
{
    char place[AH_STATUS_TEXT_HOST];
    ah_status_text_host(group, rank, place);
    uint32_t issued = ah_group_counter(group->peer[rank], AH_ISSUED);
    const struct ah_call_record *record = ah_group_call_record(group, rank, issued);
    int from = atomic_load(&group->peer[rank]->wanted_from);
    if (from > 1 && from - 2 < group->size)
        snprintf(text, bytes, "rank %d waits for a message from rank %d%s", group->member[rank],
                 group->member[from - 2], place);
    else if (from == 1)
        snprintf(text, bytes, "rank %d waits for a message from any rank%s", group->member[rank], place);
    else if (issued == group->base)
        snprintf(text, bytes, "rank %d has not reached its first collective%s", group->member[rank], place);
    else
        snprintf(text, bytes, "rank %d %s %s, %s #%u%s", group->member[rank],
                 ah_reached(group->issued, issued + 1) ? "was last seen at" : "is at", record->where,
                 ah_call_record_name(record), issued - group->base, place);
    return text;
}

enum { ANSWER_MS = 400 }; /* for a rank to report its place */

const char *ah_status_text_now(struct ah_group *group, int rank, char *text, size_t bytes)
{
    char status[AH_COUNTERS_TEXT];
    ah_status_text(group, rank, text, bytes);
    ah_rank_status(ah_rank_entry(group->control, group->member[rank]), ANSWER_MS, status, sizeof status);
    size_t length = strlen(text);
    if (status[0])
        snprintf(text + length, bytes - length, "; now it %s", status);
    return text;
}
