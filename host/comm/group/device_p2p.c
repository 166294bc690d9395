/* A message header carries a line's message through its states: taken, answered, perhaps with a ticket, received; the
 * sender's part may end behind that. Both ends have a list of their lines, in an order that is the same everywhere, so
 * that ranks that close theirs do not wait for each other in a circle. */
#include "comm/group/device_p2p.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group/device_comm.h"

struct ah_device_p2p {
    struct ah_device_p2p *next; /* ordered by `from`, then `to` */
    int from, to;
    uint32_t turn;        /* messages that its receiver has taken; that its sender has given to the device */
    struct ah_device_comm *lane; /* NULL: not yet */
};

static int line_of(struct ah_group *group, int from, int to, struct ah_device_p2p **out)
{
    struct ah_device_p2p **at = &group->lines;
    while (*at && ((*at)->from < from || ((*at)->from == from && (*at)->to < to)))
        at = &(*at)->next;
    if (!*at || (*at)->from != from || (*at)->to != to) {
        struct ah_device_p2p *made = calloc(1, sizeof *made);
        if (!made)
            return ah_fail(AH_ENOMEM, "a message: out of memory");
        *made = (struct ah_device_p2p){.next = *at, .from = from, .to = to};
        *at = made;
    }
    *out = *at;
    return 0;
}

static int open_line(struct ah_device_p2p *line, struct ah_message_request *request,
                     const uint8_t ticket[AH_DEVICE_COMM_TICKET])
{
    const struct ah_message *m = &request->message;
    AH_TRY(m->lane->open_line(request->group, m->device, ticket, request->sends, &line->lane));
    line->lane->type = m->lane;
    line->lane->group = request->group;
    line->lane->device = m->device;
    return 0;
}

/* Wake the peer, which sleeps on this counter. */
static void wake(struct ah_group *group, enum ah_counter which)
{
    struct ah_group_block *mine = group->peer[group->rank];
    ah_group_counter_advance(mine, which, ah_group_counter(mine, which) + 1);
}

void ah_device_p2p_forget(struct ah_message_request *request)
{
    if (request->mark)
        request->message.lane->unmark(request);
    request->mark = NULL;
}

/* The message is the host's. */
static int stage(struct ah_message_request *request)
{
    struct ah_message *m = &request->message;
    request->far = false;
    if (!m->device)
        return 0;
    ah_device_p2p_forget(request);
    m->device = NULL;
    return m->host(m->context, &m->memory);
}

int ah_device_p2p_begin(struct ah_message_request *request)
{
    const struct ah_message *m = &request->message;
    bool wanted = m->device && m->count && request->group->choice != AH_DEVICE_COMM_NONE && m->lane && m->lane->move;
    if (request->sends) /* a line opens by what both write on the message header */
        wanted = wanted && ah_control_is_local(request->group->control, request->group->member[m->peer]);
    request->far = wanted && m->lane->card(m->device, request->card) == 0;
    return request->far ? m->lane->mark(request) : stage(request);
}

void ah_device_p2p_offer(const struct ah_message_request *request, struct ah_message_header *header)
{
    header->far = request->far;
    atomic_store(&header->way, AH_WAY_OPEN);
    memcpy(header->card, request->card, sizeof header->card);
}

int ah_device_p2p_answer(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    struct ah_message_header *header = request->header;
    bool meets = request->far && header->far && memcmp(header->card, request->card, sizeof request->card) != 0;
    struct ah_device_p2p *line = NULL;
    if (meets) {
        AH_TRY(line_of(group, request->message.peer, group->rank, &line));
        header->turn = line->turn++;
    } else {
        if (request->far && header->far && group->choice == AH_DEVICE_COMM_ONLY)
            return ah_fail(AH_EINVAL, "%s: ranks %d and %d share one card, and each rank needs a card of its own",
                           request->message.lane->moves.name, group->member[request->message.peer],
                           group->member[group->rank]);
        AH_TRY(stage(request));
    }
    if (!header->far)
        return 0;
    atomic_store(&header->way, meets ? AH_WAY_LINE : AH_WAY_HOST);
    wake(group, AH_RECEIVED);
    return 0;
}

static int serve_by_host(struct ah_message_request *request)
{
    AH_TRY(stage(request));
    AH_TRY(request->group->backend->give(request));
    request->header->offset = request->offset;
    atomic_store(&request->header->way, AH_WAY_STAGED);
    wake(request->group, AH_SENT);
    return 0;
}

int ah_device_p2p_serve(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    struct ah_message_header *header = request->header;
    struct ah_device_p2p *line = NULL;
    unsigned way = atomic_load(&header->way);
    if (way == AH_WAY_HOST)
        return serve_by_host(request);
    if (way == AH_WAY_OPEN || request->moved)
        return 0;
    AH_TRY(line_of(group, group->rank, request->message.peer, &line));
    if (line->turn != header->turn)
        return 0;
    if (!line->lane) {
        AH_TRY(request->message.lane->invite(request->message.device, header->ticket));
        AH_TRY(open_line(line, request, header->ticket));
        atomic_store(&header->way, AH_WAY_TICKET);
        wake(group, AH_SENT);
    }
    AH_TRY(line->lane->type->move(line->lane, request, &request->moved));
    line->turn += request->moved;
    return 0;
}

int ah_device_p2p_fetch(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    struct ah_message_header *header = request->header;
    struct ah_device_p2p *line = NULL;
    unsigned way = atomic_load(&header->way);
    if (!header->far || way == AH_WAY_STAGED)
        return group->backend->fetch(request, &request->done);
    if (way == AH_WAY_HOST)
        return 0;
    AH_TRY(line_of(group, request->message.peer, group->rank, &line));
    if (!line->lane && way != AH_WAY_TICKET)
        return 0;
    if (!line->lane)
        AH_TRY(open_line(line, request, header->ticket));
    return line->lane->type->move(line->lane, request, &request->done);
}

int ah_device_p2p_check_all(struct ah_group *group)
{
    for (struct ah_device_p2p *line = group->lines; line; line = line->next)
        if (line->lane)
            AH_TRY(line->lane->type->check(line->lane));
    return 0;
}

int ah_device_p2p_settle_all(struct ah_group *group)
{
    for (struct ah_device_p2p *line = group->lines; line; line = line->next)
        if (line->lane)
            AH_TRY(line->lane->type->settle(line->lane));
    return 0;
}

void ah_device_p2p_close_all(struct ah_group *group)
{
    for (struct ah_device_p2p *line = group->lines, *next; line; line = next) {
        next = line->next;
        if (line->lane)
            line->lane->type->close(line->lane);
        free(line);
    }
    group->lines = NULL;
}
