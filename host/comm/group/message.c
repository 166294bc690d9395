/* A message is a letter on its sender's channel, which its receiver finds, compares with what it expects, and has the
 * backend fetch. Letters are posted in order, as far as there is room; a list on either side keeps what waits. When the
 * room is full of letters that nobody wants yet and a receiver waits for another, the newest of them makes place. Of
 * the letters of one tag to one rank those that are posted are always the oldest.
 *
 * Each side moves its lists whenever it waits for anything (watch.c), so what one rank owes another is done even while
 * it waits in a collective. */
#include "comm/group/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tell.h"
#include "base/time.h"
#include "comm/group/device_p2p.h"
#include "comm/group/message_place.h"
#include "comm/group/watch.h"

static const int64_t slice_ns = 50 * 1000000, short_slice_ns = 1000000;

const char *ah_message_describe(const struct ah_message_request *mail, char *text, size_t bytes)
{
    char peer[32] = "any rank", tag[40] = "";
    if (mail->message.peer >= 0)
        snprintf(peer, sizeof peer, "rank %d", mail->group->member[mail->message.peer]);
    if (mail->message.tag)
        snprintf(tag, sizeof tag, ", tag %lld,", (long long)mail->message.tag);
    snprintf(text, bytes, "%s %s%s at %s", mail->sends ? "send to" : "recv from", peer, tag, mail->where);
    return text;
}

static void unlist(struct ah_message_request **list, struct ah_message_request *mail)
{
    for (; *list; list = &(*list)->next) {
        if (*list != mail)
            continue;
        *list = mail->next;
        return;
    }
}

static void append(struct ah_message_request **list, struct ah_message_request *mail)
{
    while (*list)
        list = &(*list)->next;
    *list = mail;
}

static void free_mail(struct ah_message_request *mail, bool complete)
{
    if (mail->group->backend->forget)
        mail->group->backend->forget(mail, complete);
    ah_device_p2p_forget(mail);
    if (mail->release)
        mail->release(mail->held);
    free(mail);
}

/* The sender's side. */

static void post(struct ah_message_request *mail, struct ah_message_header *letter)
{
    struct ah_group *group = mail->group;
    const struct ah_message *m = &mail->message;
    atomic_store(&letter->number, mail->number);
    atomic_store(&letter->to, m->peer);
    atomic_store(&letter->member, group->member[m->peer]);
    atomic_store(&letter->tag, m->tag);
    atomic_store(&letter->group, group->identity);
    letter->dtype = (uint8_t)m->dtype;
    letter->ndim = (int8_t)m->ndim;
    letter->count = m->count;
    letter->offset = mail->offset;
    memcpy(letter->size, mail->size, sizeof letter->size);
    memcpy(letter->where, mail->where, sizeof letter->where);
    ah_device_p2p_offer(mail, letter);
    mail->letter = letter;
    atomic_store(&letter->state, AH_MESSAGE_POSTED);
    struct ah_group_block *mine = group->peer[group->rank];
    ah_group_counter_advance(mine, AH_SENT, ah_group_counter(mine, AH_SENT) + 1);
    ah_watch_relax(mail->group);
}

static bool is_wanted(const struct ah_message_request *mail)
{
    struct ah_group_block *channel = mail->group->peer[mail->message.peer];
    int from = atomic_load(&channel->wanted_from);
    return (from == 1 || from == mail->group->rank + 2) && atomic_load(&channel->wanted_tag) == mail->message.tag;
}

/* Letters that came back, and whose place nobody needs any more. */
static void post_returned(struct ah_group *group)
{
    for (struct ah_message_request *mail = group->outgoing; mail; mail = mail->next)
        if (mail->letter && atomic_load(&mail->letter->state) == AH_MESSAGE_EMPTY)
            post(mail, mail->letter);
}

/* No room for the mails from `first` on: is a receiver waiting for one of them, and for no letter that is there? */
static void post_wanted(struct ah_group *group, struct ah_message_request *first)
{
    for (struct ah_message_request *mail = first; mail; mail = mail->next) {
        bool present = false;
        if (mail->letter || !is_wanted(mail))
            continue;
        for (struct ah_message_request *other = group->outgoing; other != mail && !present; other = other->next)
            present = other->message.peer == mail->message.peer && other->message.tag == mail->message.tag;
        struct ah_message_header *place = present ? NULL : ah_message_make_place(group);
        if (place)
            post(mail, place);
    }
}

/* What was received is done; false while it is not. */
static bool finish_outgoing(struct ah_message_request *mail)
{
    if (!mail->letter || atomic_load(&mail->letter->state) != AH_MESSAGE_RECEIVED || (mail->far && !mail->moved))
        return false;
    atomic_store(&mail->letter->state, AH_MESSAGE_FREE);
    mail->done = true;
    unlist(&mail->group->outgoing, mail);
    if (mail->abandoned)
        free_mail(mail, true);
    return true;
}

static int move_outgoing(struct ah_group *group)
{
    struct ah_message_request *waiting = NULL;
    bool returning = false;
    for (struct ah_message_request *mail = group->outgoing, *next; mail; mail = next) {
        next = mail->next;
        if (mail->letter && mail->far)
            AH_TRY(ah_device_p2p_serve(mail));
        if (finish_outgoing(mail))
            continue;
        /* What comes behind a letter that is on its way back waits for it: it is posted again. */
        unsigned state = mail->letter ? atomic_load(&mail->letter->state) : AH_MESSAGE_FREE;
        returning |= state == AH_MESSAGE_RECALLED || state == AH_MESSAGE_EMPTY;
        struct ah_message_header *room = mail->letter || waiting || returning ? NULL : ah_message_free_header(group);
        if (room)
            post(mail, room);
        else if (!mail->letter && !waiting)
            waiting = mail;
        if (mail->letter && group->backend->serve && atomic_load(&mail->letter->state) == AH_MESSAGE_TAKEN)
            AH_TRY(group->backend->serve(mail));
    }
    if (waiting)
        post_wanted(group, waiting);
    post_returned(group);
    return 0;
}

/* The receiver's side. */

static bool fits(const struct ah_message_request *mail, const struct ah_message_header *letter, enum ah_message_state state)
{
    return atomic_load(&letter->state) == state && atomic_load(&letter->to) == mail->group->rank &&
           atomic_load(&letter->tag) == mail->message.tag && atomic_load(&letter->group) == mail->group->identity;
}

static struct ah_message_header *first_of(const struct ah_message_request *mail, int from)
{
    struct ah_message_header *letter = mail->group->peer[from]->letter, *first = NULL;
    for (int i = 0; i < AH_GROUP_MESSAGES; i++)
        if (fits(mail, &letter[i], AH_MESSAGE_POSTED) &&
            (!first || !ah_reached(atomic_load(&letter[i].number), atomic_load(&first->number))))
            first = &letter[i];
    return first;
}

/* Take the first of a sender's letters that fits; NULL while one of its letters is being fetched. A look at all letters
 * takes a while, in which two may be posted: the second where we have yet to look, the first where we have looked. But
 * what comes before a letter was posted before it, so a second look sees it. */
static struct ah_message_header *take_of(struct ah_message_request *mail, int from)
{
    for (struct ah_message_request *other = mail->group->incoming; other; other = other->next)
        if (other->letter && other->message.peer == from)
            return NULL;
    struct ah_message_header *first = first_of(mail, from);
    first = first ? first_of(mail, from) : NULL;
    unsigned number = first ? atomic_load(&first->number) : 0;
    if (!first || !atomic_compare_exchange_strong(&first->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_TAKEN))
        return NULL;
    /* It may have been taken back, and another posted in its place. */
    if (fits(mail, first, AH_MESSAGE_TAKEN) && atomic_load(&first->number) == number)
        return first;
    atomic_store(&first->state, AH_MESSAGE_POSTED);
    return NULL;
}

static const char *shape_text(int ndim, const int64_t *size, int64_t count, char *text, size_t bytes)
{
    char *at = text, *end = text + bytes;
    if (ndim < 0) {
        snprintf(text, bytes, "(%lld,)", (long long)count);
        return text;
    }
    at += snprintf(at, bytes, "(");
    for (int d = 0; d < ndim && at < end; d++)
        at += snprintf(at, (size_t)(end - at), d ? ", %lld" : "%lld", (long long)size[d]);
    if (at < end)
        snprintf(at, (size_t)(end - at), ndim == 1 ? ",)" : ")");
    return text;
}

static int accept(struct ah_message_request *mail, int from, struct ah_message_header *letter)
{
    const struct ah_message *m = &mail->message;
    char own[200], theirs[200], call[200];
    mail->message.peer = from;
    if (letter->dtype != m->dtype || letter->count != m->count)
        return ah_fail(AH_EMISMATCH, "%s: expected %s %s, but rank %d sent %s %s at %s",
                       ah_message_describe(mail, call, sizeof call), ah_dtype_name(m->dtype),
                       shape_text(m->ndim, mail->size, m->count, own, sizeof own), mail->group->member[from],
                       letter->dtype < AH_DTYPE_COUNT ? ah_dtype_name((enum ah_dtype)letter->dtype) : "?",
                       shape_text(letter->ndim, letter->size, letter->count, theirs, sizeof theirs), letter->where);
    mail->letter = letter;
    return ah_device_p2p_answer(mail);
}

static int find(struct ah_message_request *mail)
{
    struct ah_group *group = mail->group;
    int peer = mail->message.peer;
    for (int r = peer < 0 ? 0 : peer; r < group->size && (peer < 0 || r == peer); r++) {
        struct ah_message_header *letter = r == group->rank ? NULL : take_of(mail, r);
        if (letter)
            return accept(mail, r, letter);
    }
    return 0;
}

static int move_incoming(struct ah_group *group)
{
    for (struct ah_message_request *mail = group->incoming, *next; mail; mail = next) {
        next = mail->next;
        if (!mail->letter)
            AH_TRY(find(mail));
        if (!mail->letter)
            continue;
        AH_TRY(ah_device_p2p_fetch(mail));
        if (!mail->done)
            continue;
        atomic_store(&mail->letter->state, AH_MESSAGE_RECEIVED);
        struct ah_group_block *mine = group->peer[group->rank];
        ah_group_counter_advance(mine, AH_RECEIVED, ah_group_counter(mine, AH_RECEIVED) + 1);
        mail->letter = NULL;
        unlist(&group->incoming, mail);
    }
    return 0;
}

int ah_message_progress(struct ah_group *group)
{
    AH_TRY(move_outgoing(group));
    return move_incoming(group);
}

/* Calls. */

static int check(const struct ah_group *group, const struct ah_message *m, const char *name, bool any)
{
    if (!(any && m->peer == AH_ANY_PEER) && (m->peer < 0 || m->peer >= group->size))
        return ah_fail(AH_EINVAL, "%s: expected a rank in 0..%d, got %d", name, group->size - 1, m->peer);
    if (m->peer == group->rank || group->size == 1)
        return ah_fail(AH_EINVAL, "%s: expected another rank than this one, %d", name, group->rank);
    if (m->count < 0 || m->dtype >= AH_DTYPE_COUNT)
        return ah_fail(AH_EINVAL, "%s: expected a count from 0, got %lld", name, (long long)m->count);
    if (group->board->header->recovers)
        return ah_fail(AH_ENOTIMPL, "%s: messages are not kept, so there are none with live recovery (--recover live)",
                       name);
    if (!group->backend->give)
        return ah_fail(AH_ENOTIMPL, "%s: the backend %s has no messages", name, group->backend->name);
    return 0;
}

static int new_mail(struct ah_message_request **out, struct ah_group *group, const struct ah_message *message, bool sends)
{
    struct ah_message_request *mail = calloc(1, group->backend->mail_bytes);
    if (!mail)
        return ah_fail(AH_ENOMEM, "%s: out of memory", sends ? "send" : "recv");
    size_t length = strlen(message->where);
    mail->group = group;
    mail->era = group->era;
    mail->message = *message;
    mail->sends = sends;
    mail->offset = AH_NO_OFFSET;
    snprintf(mail->where, sizeof mail->where, "%s",
             message->where + (length >= sizeof mail->where ? length - sizeof mail->where + 1 : 0));
    if (message->ndim > AH_CALL_DIMS)
        mail->message.ndim = -1;
    if (mail->message.ndim > 0)
        memcpy(mail->size, message->size, (size_t)message->ndim * sizeof *mail->size);
    mail->message.where = mail->where;
    mail->message.size = mail->size;
    int status = ah_device_p2p_begin(mail);
    if (status < 0)
        free_mail(mail, true);
    else
        *out = mail;
    return status;
}

static void log_start(const struct ah_message_request *mail)
{
    char call[200], shape[200];
    if (mail->group->logs)
        ah_tell("comm: rank %d of %d%s: %s: %s %s", mail->group->rank, mail->group->size,
                mail->group->channel ? " in a part" : "", ah_message_describe(mail, call, sizeof call),
                ah_dtype_name(mail->message.dtype),
                shape_text(mail->message.ndim, mail->size, mail->message.count, shape, sizeof shape));
}

static int begin(struct ah_message_request *mail, struct ah_message_request **list)
{
    append(list, mail);
    log_start(mail);
    int status = ah_group_poison(mail->group, ah_message_progress(mail->group));
    if (status < 0) {
        unlist(list, mail);
        free_mail(mail, false);
    }
    return status;
}

int ah_group_send(struct ah_group *group, struct ah_message message, bool stays, struct ah_message_request **out)
{
    struct ah_message_request *mail;
    AH_TRY(check(group, &message, "send", false));
    AH_TRY(ah_group_check_health(group, "send"));
    AH_TRY(new_mail(&mail, group, &message, true));
    mail->stays = stays;
    int status = mail->far ? 0 : group->backend->give(mail);
    if (status < 0) {
        free_mail(mail, true);
        return ah_group_poison(group, status);
    }
    mail->number = ++group->sent;
    *out = mail;
    return begin(mail, &group->outgoing);
}

int ah_group_receive(struct ah_group *group, struct ah_message message, struct ah_message_request **out)
{
    struct ah_message_request *mail;
    AH_TRY(check(group, &message, "recv", true));
    AH_TRY(ah_group_check_health(group, "recv"));
    AH_TRY(new_mail(&mail, group, &message, false));
    *out = mail;
    return begin(mail, &group->incoming);
}

/* It began before its group began anew. */
static int outlived(const struct ah_message_request *mail)
{
    return ah_fail(AH_EPEER, "%s: a collective failed since it began, and its group has begun anew",
                   mail->sends ? "send" : "recv");
}

void ah_message_forget(struct ah_group *group)
{
    struct ah_message_request **lists[] = {&group->outgoing, &group->incoming};
    for (int i = 0; i < 2; i++) {
        for (struct ah_message_request *mail = *lists[i], *next; mail; mail = next) {
            next = mail->next;
            mail->next = NULL;
            mail->letter = NULL;
            if (mail->abandoned)
                free_mail(mail, true);
        }
        *lists[i] = NULL;
    }
}

int ah_message_test(struct ah_message_request *mail, bool *done)
{
    if (!mail->done && mail->era != mail->group->era)
        return outlived(mail);
    if (!mail->done) {
        AH_TRY(ah_group_check_health(mail->group, mail->sends ? "send" : "recv"));
        AH_TRY(ah_group_poison(mail->group, ah_message_progress(mail->group)));
    }
    *done = mail->done;
    return 0;
}

static struct ah_awaited *own_awaited(struct ah_group *group)
{
    return &ah_rank_entry(group->board, group->member[group->rank])->awaited;
}

/* What this rank goes to sleep over. */
static void tell_awaited(const struct ah_message_request *mail)
{
    struct ah_awaited *awaited = own_awaited(mail->group);
    if (atomic_load_explicit(&awaited->what, memory_order_relaxed))
        return;
    atomic_store(&awaited->peer, mail->message.peer < 0 ? -1 : mail->group->member[mail->message.peer]);
    atomic_store(&awaited->tag, mail->message.tag);
    atomic_store(&awaited->since_ns, ah_now_ns());
    memcpy(awaited->where, mail->where, sizeof awaited->where);
    atomic_store(&awaited->what, mail->sends ? AH_AWAITS_RECEIVER : AH_AWAITS_MESSAGE);
    ah_group_notify(mail->group->peer[mail->group->rank], AH_REPLICA); /* a sender on another host may make place */
}

/* The counter that moves when the peer has done its part; of any peer, one of them stands for all. */
static int await(struct ah_message_request *mail)
{
    struct ah_group *group = mail->group;
    struct ah_watch watch = {0};
    char call[200];
    bool any = mail->message.peer < 0, full = false;
    struct ah_group_block *channel = group->peer[any ? (group->rank + 1) % group->size : mail->message.peer];
    enum ah_counter which = mail->sends ? AH_RECEIVED : AH_SENT;
    for (struct ah_spin spin = {.left = group->spins};;) {
        uint32_t seen = ah_group_counter(channel, which);
        AH_TRY(ah_message_progress(group));
        if (mail->done)
            return 0;
        if (ah_watch_spin(group, &spin))
            continue;
        ah_watch_leave(group);
        tell_awaited(mail);
        int status = ah_watch_peer(&watch, group, mail->message.peer, ah_message_describe(mail, call, sizeof call));
        if (status < 0) { /* what it did last may have been this */
            AH_TRY(ah_message_progress(group));
            return mail->done ? 0 : status;
        }
        /* What does not move the counter that we sleep on comes soon. */
        for (struct ah_message_request *other = group->outgoing; other && !full; other = other->next)
            full = !other->letter;
        bool moving = mail->letter && (group->backend->serve || mail->letter->far);
        ah_group_sleep(channel, which, seen, any || moving || full ? short_slice_ns : slice_ns);
    }
}

int ah_message_wait(struct ah_message_request *mail, int *peer)
{
    struct ah_group *group = mail->group;
    struct ah_group_block *mine = group->peer[group->rank];
    bool old = mail->era != group->era;
    int status = mail->done ? 0 : old ? outlived(mail) : ah_group_check_health(group, mail->sends ? "send" : "recv");
    if (!mail->sends) {
        atomic_store(&mine->wanted_tag, mail->message.tag);
        atomic_store(&mine->wanted_from, mail->message.peer + 2);
    }
    if (status == 0 && !mail->done) {
        status = ah_group_poison(group, await(mail));
        atomic_store_explicit(&own_awaited(group)->what, AH_AWAITS_NONE, memory_order_relaxed);
    }
    atomic_store(&mine->wanted_from, 0);
    if (peer)
        *peer = mail->message.peer;
    unlist(mail->sends ? &group->outgoing : &group->incoming, mail);
    free_mail(mail, mail->done || old);
    return status;
}

void ah_message_abandon(struct ah_message_request *mail, void (*release)(void *held), void *held)
{
    struct ah_group *group = mail->group;
    mail->release = release;
    mail->held = held;
    if (mail->era != group->era) {
        unlist(mail->sends ? &group->outgoing : &group->incoming, mail);
        free_mail(mail, true);
        return;
    }
    bool under_way = !mail->done && mail->letter;
    if (!mail->done && mail->sends && !group->poison) {
        mail->abandoned = true;
    } else if (under_way && !group->poison) {
        ah_message_wait(mail, NULL); /* half of it is in the caller's memory */
    } else {
        unlist(mail->sends ? &group->outgoing : &group->incoming, mail);
        free_mail(mail, mail->done);
    }
}

void ah_message_drop_all(struct ah_group *group)
{
    struct ah_message_request *lists[] = {group->outgoing, group->incoming};
    for (int i = 0; i < 2; i++)
        for (struct ah_message_request *mail = lists[i], *next; mail; mail = next) {
            next = mail->next;
            free_mail(mail, false);
        }
    group->outgoing = group->incoming = NULL;
}
