/* The message header holds a message's state: accepted, answered (perhaps with a ticket), received; the sender may
 * complete after that. Both ends list their channels in the same order, so that ranks that close them cannot deadlock.
 */
#include "comm/group/device_p2p.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group/device_comm.h"

struct ah_device_p2p {
    struct ah_device_p2p *next; /* ordered by `from`, then `to` */
    int from, to;
    uint32_t accepted, queued; /* messages, by its receiver and, on the device, by its sender */
    struct ah_device_comm *device_comm; /* NULL: not yet */
};

static int p2p_of(struct ah_group *group, int from, int to, struct ah_device_p2p **out)
{
    struct ah_device_p2p **at = &group->p2p;
    while (*at && ((*at)->from < from || ((*at)->from == from && (*at)->to < to)))
        at = &(*at)->next;
    if (!*at || (*at)->from != from || (*at)->to != to) {
        struct ah_device_p2p *made = calloc(1, sizeof *made);
        AH_TRY_MEMORY(made, "a message: out of memory");
        *made = (struct ah_device_p2p){.next = *at, .from = from, .to = to};
        *at = made;
    }
    *out = *at;
    return 0;
}

static int open_p2p(struct ah_device_p2p *p2p, struct ah_message_request *request,
                    const uint8_t ticket[AH_DEVICE_COMM_TICKET])
{
    const struct ah_message *m = &request->message;
    AH_TRY(m->device_comm->open_p2p(request->group, m->device, ticket, request->sends, &p2p->device_comm));
    p2p->device_comm->type = m->device_comm;
    p2p->device_comm->group = request->group;
    p2p->device_comm->device = m->device;
    return 0;
}

/* Wake the peer, which sleeps on this counter. */
static void device_p2p_wake(struct ah_group *group, enum ah_counter which)
{
    struct ah_group_block *mine = group->peer[group->rank];
    ah_group_counter_advance(mine, which, ah_group_counter(mine, which) + 1);
}

void ah_device_p2p_forget(struct ah_message_request *request)
{
    if (request->mark)
        request->message.device_comm->unmark(request);
    request->mark = NULL;
}

/* The message is the host's. */
static int device_p2p_stage(struct ah_message_request *request)
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
    bool wanted = m->device && m->count && request->group->choice != AH_DEVICE_COMM_NONE && m->device_comm &&
                  m->device_comm->move;
    if (request->sends) /* both ends open a channel by their entries in the message header */
        wanted = wanted && ah_control_is_local(request->group->control, request->group->member[m->peer]);
    request->far = wanted && m->device_comm->card(m->device, request->card) == 0;
    return request->far ? m->device_comm->mark(request) : device_p2p_stage(request);
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
    bool far = request->far && header->far;
    bool meets = far && (group->size == 1 || memcmp(header->card, request->card, sizeof request->card) != 0);
    struct ah_device_p2p *p2p = NULL;
    if (meets) {
        AH_TRY(p2p_of(group, request->message.peer, group->rank, &p2p));
        header->turn = p2p->accepted++;
    } else {
        if (far && group->choice == AH_DEVICE_COMM_ONLY)
            return ah_fail(AH_EINVAL, "%s: ranks %d and %d share one card, and each rank needs its own card",
                           request->message.device_comm->moves.name, group->member[request->message.peer],
                           group->member[group->rank]);
        AH_TRY(device_p2p_stage(request));
    }
    if (!header->far)
        return 0;
    atomic_store(&header->way, meets ? AH_WAY_P2P : AH_WAY_HOST);
    device_p2p_wake(group, AH_RECEIVED);
    return 0;
}

static int serve_by_host(struct ah_message_request *request)
{
    AH_TRY(device_p2p_stage(request));
    AH_TRY(request->group->backend->give(request));
    request->header->offset = request->offset;
    atomic_store(&request->header->way, AH_WAY_STAGED);
    device_p2p_wake(request->group, AH_SENT);
    return 0;
}

int ah_device_p2p_serve(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    struct ah_message_header *header = request->header;
    struct ah_device_p2p *p2p = NULL;
    unsigned way = atomic_load(&header->way);
    if (way == AH_WAY_HOST)
        return serve_by_host(request);
    if (way == AH_WAY_OPEN || request->moved)
        return 0;
    AH_TRY(p2p_of(group, group->rank, request->message.peer, &p2p));
    if (p2p->queued != header->turn)
        return 0;
    if (!p2p->device_comm) {
        AH_TRY(request->message.device_comm->invite(request->message.device, header->ticket));
        AH_TRY(open_p2p(p2p, request, header->ticket));
        atomic_store(&header->way, AH_WAY_TICKET);
        device_p2p_wake(group, AH_SENT);
    }
    AH_TRY(p2p->device_comm->type->move(p2p->device_comm, request, &request->moved));
    p2p->queued += request->moved;
    return 0;
}

int ah_device_p2p_fetch(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    struct ah_message_header *header = request->header;
    struct ah_device_p2p *p2p = NULL;
    unsigned way = atomic_load(&header->way);
    if (!header->far || way == AH_WAY_STAGED)
        return group->backend->fetch(request, &request->done);
    if (way == AH_WAY_HOST)
        return 0;
    AH_TRY(p2p_of(group, request->message.peer, group->rank, &p2p));
    if (!p2p->device_comm && way != AH_WAY_TICKET)
        return 0;
    if (!p2p->device_comm)
        AH_TRY(open_p2p(p2p, request, header->ticket));
    return p2p->device_comm->type->move(p2p->device_comm, request, &request->done);
}

int ah_device_p2p_check_all(struct ah_group *group)
{
    for (struct ah_device_p2p *p2p = group->p2p; p2p; p2p = p2p->next)
        if (p2p->device_comm)
            AH_TRY(p2p->device_comm->type->check(p2p->device_comm));
    return 0;
}

int ah_device_p2p_settle_all(struct ah_group *group)
{
    for (struct ah_device_p2p *p2p = group->p2p; p2p; p2p = p2p->next)
        if (p2p->device_comm)
            AH_TRY(p2p->device_comm->type->settle(p2p->device_comm));
    return 0;
}

void ah_device_p2p_close_all(struct ah_group *group)
{
    for (struct ah_device_p2p *p2p = group->p2p, *next; p2p; p2p = next) {
        next = p2p->next;
        if (p2p->device_comm)
            p2p->device_comm->type->close(p2p->device_comm);
        free(p2p);
    }
    group->p2p = NULL;
}
