/* A letter carries a line's message through its states: taken, answered, perhaps with a ticket, received; the sender's
 * part may end behind that. Both ends have a list of their lines, in an order that is the same everywhere, so that
 * ranks that close theirs do not wait for each other in a circle. */
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

static int open_line(struct ah_device_p2p *line, struct ah_message_request *mail, const uint8_t ticket[AH_DEVICE_COMM_TICKET])
{
    const struct ah_message *m = &mail->message;
    AH_TRY(m->lane->open_line(mail->group, m->device, ticket, mail->sends, &line->lane));
    line->lane->type = m->lane;
    line->lane->group = mail->group;
    line->lane->device = m->device;
    return 0;
}

/* Wake the peer, which sleeps on this counter. */
static void wake(struct ah_group *group, enum ah_counter which)
{
    struct ah_group_block *mine = group->peer[group->rank];
    ah_group_counter_advance(mine, which, ah_group_counter(mine, which) + 1);
}

void ah_device_p2p_forget(struct ah_message_request *mail)
{
    if (mail->mark)
        mail->message.lane->unmark(mail);
    mail->mark = NULL;
}

/* The message is the host's. */
static int stage(struct ah_message_request *mail)
{
    struct ah_message *m = &mail->message;
    mail->far = false;
    if (!m->device)
        return 0;
    ah_device_p2p_forget(mail);
    m->device = NULL;
    return m->host(m->context, &m->memory);
}

int ah_device_p2p_begin(struct ah_message_request *mail)
{
    const struct ah_message *m = &mail->message;
    bool wanted = m->device && m->count && mail->group->choice != AH_DEVICE_COMM_NONE && m->lane && m->lane->move;
    if (mail->sends) /* a line opens by what both write on the letter */
        wanted = wanted && ah_control_is_local(mail->group->board, mail->group->member[m->peer]);
    mail->far = wanted && m->lane->card(m->device, mail->card) == 0;
    return mail->far ? m->lane->mark(mail) : stage(mail);
}

void ah_device_p2p_offer(const struct ah_message_request *mail, struct ah_message_header *letter)
{
    letter->far = mail->far;
    atomic_store(&letter->way, AH_WAY_OPEN);
    memcpy(letter->card, mail->card, sizeof letter->card);
}

int ah_device_p2p_answer(struct ah_message_request *mail)
{
    struct ah_group *group = mail->group;
    struct ah_message_header *letter = mail->letter;
    bool meets = mail->far && letter->far && memcmp(letter->card, mail->card, sizeof mail->card) != 0;
    struct ah_device_p2p *line = NULL;
    if (meets) {
        AH_TRY(line_of(group, mail->message.peer, group->rank, &line));
        letter->turn = line->turn++;
    } else {
        if (mail->far && letter->far && group->choice == AH_DEVICE_COMM_ONLY)
            return ah_fail(AH_EINVAL, "%s: ranks %d and %d share one card, and each rank needs a card of its own",
                           mail->message.lane->moves.name, group->member[mail->message.peer],
                           group->member[group->rank]);
        AH_TRY(stage(mail));
    }
    if (!letter->far)
        return 0;
    atomic_store(&letter->way, meets ? AH_WAY_LINE : AH_WAY_HOST);
    wake(group, AH_RECEIVED);
    return 0;
}

static int serve_by_host(struct ah_message_request *mail)
{
    AH_TRY(stage(mail));
    AH_TRY(mail->group->backend->give(mail));
    mail->letter->offset = mail->offset;
    atomic_store(&mail->letter->way, AH_WAY_STAGED);
    wake(mail->group, AH_SENT);
    return 0;
}

int ah_device_p2p_serve(struct ah_message_request *mail)
{
    struct ah_group *group = mail->group;
    struct ah_message_header *letter = mail->letter;
    struct ah_device_p2p *line = NULL;
    unsigned way = atomic_load(&letter->way);
    if (way == AH_WAY_HOST)
        return serve_by_host(mail);
    if (way == AH_WAY_OPEN || mail->moved)
        return 0;
    AH_TRY(line_of(group, group->rank, mail->message.peer, &line));
    if (line->turn != letter->turn)
        return 0;
    if (!line->lane) {
        AH_TRY(mail->message.lane->invite(mail->message.device, letter->ticket));
        AH_TRY(open_line(line, mail, letter->ticket));
        atomic_store(&letter->way, AH_WAY_TICKET);
        wake(group, AH_SENT);
    }
    AH_TRY(line->lane->type->move(line->lane, mail, &mail->moved));
    line->turn += mail->moved;
    return 0;
}

int ah_device_p2p_fetch(struct ah_message_request *mail)
{
    struct ah_group *group = mail->group;
    struct ah_message_header *letter = mail->letter;
    struct ah_device_p2p *line = NULL;
    unsigned way = atomic_load(&letter->way);
    if (!letter->far || way == AH_WAY_STAGED)
        return group->backend->fetch(mail, &mail->done);
    if (way == AH_WAY_HOST)
        return 0;
    AH_TRY(line_of(group, mail->message.peer, group->rank, &line));
    if (!line->lane && way != AH_WAY_TICKET)
        return 0;
    if (!line->lane)
        AH_TRY(open_line(line, mail, letter->ticket));
    return line->lane->type->move(line->lane, mail, &mail->done);
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
