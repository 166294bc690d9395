/* Read off the board, and asked of the rank where it runs here. */
#include "comm/group/status_text.h"

#include <stdio.h>
#include <string.h>

#include "comm/control/rank_status.h"

const char *ah_whereabouts_host(struct ah_group *group, int rank, char text[AH_WHEREABOUTS_HOST])
{
    const struct ah_hosts *hosts = group->board->hosts;
    text[0] = 0;
    if (hosts)
        snprintf(text, AH_WHEREABOUTS_HOST, ", on %s", hosts->name[ah_hosts_of(hosts, group->member[rank])]);
    return text;
}

const char *ah_whereabouts(struct ah_group *group, int rank, char *text, size_t bytes)
{
    char place[AH_WHEREABOUTS_HOST];
    ah_whereabouts_host(group, rank, place);
    uint32_t posted = ah_channel_counter(group->peer[rank], AH_POSTED);
    const struct ah_post *post = ah_group_post(group, rank, posted);
    int from = atomic_load(&group->peer[rank]->wanted_from);
    if (from > 1 && from - 2 < group->size)
        snprintf(text, bytes, "rank %d waits for a message from rank %d%s", group->member[rank],
                 group->member[from - 2], place);
    else if (from == 1)
        snprintf(text, bytes, "rank %d waits for a message from any rank%s", group->member[rank], place);
    else if (posted == group->base)
        snprintf(text, bytes, "rank %d has not come to its first collective%s", group->member[rank], place);
    else
        snprintf(text, bytes, "rank %d %s %s, %s #%u%s", group->member[rank],
                 ah_reached(group->posted, posted + 1) ? "was last seen at" : "is at", post->where,
                 ah_post_name(post), posted - group->base, place);
    return text;
}

enum { ANSWER_MS = 400 }; /* for a rank to say where it is */

const char *ah_whereabouts_now(struct ah_group *group, int rank, char *text, size_t bytes)
{
    char doing[AH_PULSE_TEXT];
    ah_whereabouts(group, rank, text, bytes);
    ah_doing(ah_board_slot(group->board, group->member[rank]), ANSWER_MS, doing, sizeof doing);
    size_t length = strlen(text);
    if (doing[0])
        snprintf(text + length, bytes - length, "; now it %s", doing);
    return text;
}
