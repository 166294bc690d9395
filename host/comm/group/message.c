/* A message is a message header on its sender's group block, which its receiver finds, compares with its own arguments,
 * and has the backend fetch. Messages are posted in order, as far as there is room; a list on either side keeps the
 * waiting ones. When the room is full of message headers that are not received yet and a receiver waits for another,
 * the newest of them is withdrawn. Of the message headers of one tag to one rank those that are posted are always the
 * oldest.
 *
 * Each side advances its lists whenever it waits for anything (watch.c), so a rank does its part of messages even while
 * it waits in a collective. */
#include "comm/group/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm/group/device_p2p.h"
#include "comm/group/message_place.h"
#include "comm/group/watch.h"

static const int64_t slice_ns = 50 * 1000000, short_slice_ns = 1000000;

const char *ah_message_describe(const struct ah_message_request *request, char *text, size_t bytes)
{
    char peer[32] = "any rank", tag[40] = "";
    if (request->message.peer >= 0)
        snprintf(peer, sizeof peer, "rank %d", request->group->member[request->message.peer]);
    if (request->message.tag)
        snprintf(tag, sizeof tag, ", tag %lld,", (long long)request->message.tag);
    snprintf(text, bytes, "%s %s%s at %s", request->sends ? "send to" : "recv from", peer, tag, request->where);
    return text;
}

static void message_unlist(struct ah_message_request **list, struct ah_message_request *request)
{
    for (; *list; list = &(*list)->next) {
        if (*list != request)
            continue;
        *list = request->next;
        return;
    }
}

static void message_append(struct ah_message_request **list, struct ah_message_request *request)
{
    while (*list)
        list = &(*list)->next;
    *list = request;
}

static void free_message(struct ah_message_request *request, bool complete)
{
    if (request->group->backend->forget)
        request->group->backend->forget(request, complete);
    ah_device_p2p_forget(request);
    if (request->release)
        request->release(request->held);
    free(request);
}

/* The sender's side. */

static void message_post(struct ah_message_request *request, struct ah_message_header *header)
{
    struct ah_group *group = request->group;
    const struct ah_message *m = &request->message;
    atomic_store(&header->number, request->number);
    atomic_store(&header->to, m->peer);
    atomic_store(&header->member, group->member[m->peer]);
    atomic_store(&header->tag, m->tag);
    atomic_store(&header->group, group->identity);
    header->dtype = (uint8_t)m->dtype;
    header->ndim = (int8_t)m->ndim;
    header->count = m->count;
    header->offset = request->offset;
    memcpy(header->size, request->size, sizeof header->size);
    memcpy(header->where, request->where, sizeof header->where);
    ah_device_p2p_offer(request, header);
    request->header = header;
    atomic_store(&header->state, AH_MESSAGE_POSTED);
    struct ah_group_block *mine = group->peer[group->rank];
    ah_group_counter_advance(mine, AH_SENT, ah_group_counter(mine, AH_SENT) + 1);
    ah_watch_relax(request->group);
}

static bool is_wanted(const struct ah_message_request *request)
{
    struct ah_group_block *block = request->group->peer[request->message.peer];
    int from = atomic_load(&block->wanted_from);
    return (from == 1 || from == request->group->rank + 2) && atomic_load(&block->wanted_tag) == request->message.tag;
}

/* Free returned message headers that are no longer needed. */
static void post_returned(struct ah_group *group)
{
    for (struct ah_message_request *request = group->outgoing; request; request = request->next)
        if (request->header && atomic_load(&request->header->state) == AH_MESSAGE_EMPTY)
            message_post(request, request->header);
}

/* No room for the message requests from `first` on: is a receiver waiting for one of them, and for no message header
 * that is there? */
static void post_wanted(struct ah_group *group, struct ah_message_request *first)
{
    for (struct ah_message_request *request = first; request; request = request->next) {
        bool present = false;
        if (request->header || !is_wanted(request))
            continue;
        for (struct ah_message_request *other = group->outgoing; other != request && !present; other = other->next)
            present = other->message.peer == request->message.peer && other->message.tag == request->message.tag;
        struct ah_message_header *place = present ? NULL : ah_message_make_place(group);
        if (place)
            message_post(request, place);
    }
}

/* Complete a send that was received; false while it is not. */
static bool finish_outgoing(struct ah_message_request *request)
{
    if (!request->header || atomic_load(&request->header->state) != AH_MESSAGE_RECEIVED ||
        (request->far && !request->moved))
        return false;
    atomic_store(&request->header->state, AH_MESSAGE_FREE);
    request->done = true;
    message_unlist(&request->group->outgoing, request);
    if (request->abandoned)
        free_message(request, true);
    return true;
}

static int move_outgoing(struct ah_group *group)
{
    struct ah_message_request *waiting = NULL;
    bool returning = false;
    for (struct ah_message_request *request = group->outgoing, *next; request; request = next) {
        next = request->next;
        if (request->header && request->far)
            AH_TRY(ah_device_p2p_serve(request));
        if (finish_outgoing(request))
            continue;
        /* Messages after a message header that is being recalled wait for it: it is posted again. */
        unsigned state = request->header ? atomic_load(&request->header->state) : AH_MESSAGE_FREE;
        returning |= state == AH_MESSAGE_RECALLED || state == AH_MESSAGE_EMPTY;
        struct ah_message_header *room = request->header || waiting || returning ? NULL : ah_message_free_header(group);
        if (room)
            message_post(request, room);
        else if (!request->header && !waiting)
            waiting = request;
        if (request->header && group->backend->serve && atomic_load(&request->header->state) == AH_MESSAGE_TAKEN)
            AH_TRY(group->backend->serve(request));
    }
    if (waiting)
        post_wanted(group, waiting);
    post_returned(group);
    return 0;
}

/* The receiver's side. */

static bool message_fits(const struct ah_message_request *request, const struct ah_message_header *header,
                         enum ah_message_state state)
{
    return atomic_load(&header->state) == state && atomic_load(&header->to) == request->group->rank &&
           atomic_load(&header->tag) == request->message.tag && atomic_load(&header->group) == request->group->identity;
}

static struct ah_message_header *first_of(const struct ah_message_request *request, int from)
{
    struct ah_message_header *header = request->group->peer[from]->header, *first = NULL;
    for (int i = 0; i < AH_GROUP_MESSAGES; i++)
        if (message_fits(request, &header[i], AH_MESSAGE_POSTED) &&
            (!first || !ah_reached(atomic_load(&header[i].number), atomic_load(&first->number))))
            first = &header[i];
    return first;
}

/* Receive the first matching message header of a sender; NULL while one of its message headers is being fetched. A scan
 * of all message headers lasts long enough for two to be posted meanwhile: the second ahead of the scan, the first
 * behind it. But an earlier message header is posted earlier, so a second scan finds it. */
static struct ah_message_header *take_of(struct ah_message_request *request, int from)
{
    for (struct ah_message_request *other = request->group->incoming; other; other = other->next)
        if (other->header && other->message.peer == from)
            return NULL;
    struct ah_message_header *first = first_of(request, from);
    first = first ? first_of(request, from) : NULL;
    unsigned number = first ? atomic_load(&first->number) : 0;
    if (!first || !atomic_compare_exchange_strong(&first->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_TAKEN))
        return NULL;
    /* It may have been withdrawn, and another posted in its place. */
    if (message_fits(request, first, AH_MESSAGE_TAKEN) && atomic_load(&first->number) == number)
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

static int message_accept(struct ah_message_request *request, int from, struct ah_message_header *header)
{
    const struct ah_message *m = &request->message;
    char own[200], theirs[200], call[200];
    request->message.peer = from;
    if (header->dtype != m->dtype || header->count != m->count)
        return ah_fail(AH_EMISMATCH, "%s: expected %s %s, but rank %d sent %s %s at %s",
                       ah_message_describe(request, call, sizeof call), ah_dtype_name(m->dtype),
                       shape_text(m->ndim, request->size, m->count, own, sizeof own), request->group->member[from],
                       header->dtype < AH_DTYPE_COUNT ? ah_dtype_name((enum ah_dtype)header->dtype) : "?",
                       shape_text(header->ndim, header->size, header->count, theirs, sizeof theirs), header->where);
    request->header = header;
    return ah_device_p2p_answer(request);
}

static int message_find(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    int peer = request->message.peer;
    for (int r = peer < 0 ? 0 : peer; r < group->size && (peer < 0 || r == peer); r++) {
        struct ah_message_header *header = r == group->rank && group->size > 1 ? NULL : take_of(request, r);
        if (header)
            return message_accept(request, r, header);
    }
    return 0;
}

static int move_incoming(struct ah_group *group)
{
    for (struct ah_message_request *request = group->incoming, *next; request; request = next) {
        next = request->next;
        if (!request->header)
            AH_TRY(message_find(request));
        if (!request->header)
            continue;
        AH_TRY(ah_device_p2p_fetch(request));
        if (!request->done)
            continue;
        atomic_store(&request->header->state, AH_MESSAGE_RECEIVED);
        struct ah_group_block *mine = group->peer[group->rank];
        ah_group_counter_advance(mine, AH_RECEIVED, ah_group_counter(mine, AH_RECEIVED) + 1);
        request->header = NULL;
        message_unlist(&group->incoming, request);
    }
    return 0;
}

int ah_message_progress(struct ah_group *group)
{
    AH_TRY(move_outgoing(group));
    return move_incoming(group);
}

/* Calls. */

static int message_check(const struct ah_group *group, const struct ah_message *m, const char *name, bool any)
{
    if (!(any && m->peer == AH_ANY_PEER) && (m->peer < 0 || m->peer >= group->size))
        return ah_fail(AH_EINVAL, "%s: expected a rank in 0..%d, got %d", name, group->size - 1, m->peer);
    bool looped = group->size == 1 && group->control && m->device;
    if ((m->peer == group->rank || group->size == 1) && !looped)
        return ah_fail(AH_EINVAL, "%s: expected another rank than this one, %d", name, group->rank);
    if (m->count < 0 || m->dtype >= AH_DTYPE_COUNT)
        return ah_fail(AH_EINVAL, "%s: expected a count from 0, got %lld", name, (long long)m->count);
    if (group->control->header->recovers)
        return ah_fail(AH_ENOTIMPL, "%s: messages are not kept, so there are none with live recovery (--recover live)",
                       name);
    if (!group->backend->give && !looped)
        return ah_fail(AH_ENOTIMPL, "%s: the backend %s has no messages", name, group->backend->name);
    return 0;
}

static int new_message(struct ah_message_request **out, struct ah_group *group, const struct ah_message *message,
                    bool sends)
{
    struct ah_message_request *request = calloc(1, group->backend->message_bytes);
    if (!request)
        return ah_fail(AH_ENOMEM, "%s: out of memory", sends ? "send" : "recv");
    size_t length = strlen(message->where);
    request->group = group;
    request->epoch = group->epoch;
    request->message = *message;
    request->sends = sends;
    request->offset = AH_NO_OFFSET;
    snprintf(request->where, sizeof request->where, "%s",
             message->where + (length >= sizeof request->where ? length - sizeof request->where + 1 : 0));
    if (message->ndim > AH_CALL_DIMS)
        request->message.ndim = -1;
    if (request->message.ndim > 0)
        memcpy(request->size, message->size, (size_t)message->ndim * sizeof *request->size);
    request->message.where = request->where;
    request->message.size = request->size;
    int status = ah_device_p2p_begin(request);
    if (status < 0)
        free_message(request, true);
    else
        *out = request;
    return status;
}

static void log_start(const struct ah_message_request *request)
{
    char call[200], shape[200];
    if (request->group->logs)
        ah_notice("comm: rank %d of %d%s: %s: %s %s", request->group->rank, request->group->size,
                  request->group->block ? " in a part" : "", ah_message_describe(request, call, sizeof call),
                  ah_dtype_name(request->message.dtype),
                  shape_text(request->message.ndim, request->size, request->message.count, shape, sizeof shape));
}

static int message_begin(struct ah_message_request *request, struct ah_message_request **list)
{
    message_append(list, request);
    log_start(request);
    int status = ah_group_poison(request->group, ah_message_progress(request->group));
    if (status < 0) {
        message_unlist(list, request);
        free_message(request, false);
    }
    return status;
}

int ah_group_send(struct ah_group *group, struct ah_message message, bool stays, struct ah_message_request **out)
{
    struct ah_message_request *request;
    AH_TRY(message_check(group, &message, "send", false));
    AH_TRY(ah_group_check_health(group, "send"));
    AH_TRY(new_message(&request, group, &message, true));
    request->stays = stays;
    int status = request->far        ? 0
                 : group->size > 1 ? group->backend->give(request)
                                   : ah_fail(AH_EINVAL, "send: expected elements of a device, for this rank itself");
    if (status < 0) {
        free_message(request, true);
        return ah_group_poison(group, status);
    }
    request->number = ++group->sent;
    *out = request;
    return message_begin(request, &group->outgoing);
}

int ah_group_receive(struct ah_group *group, struct ah_message message, struct ah_message_request **out)
{
    struct ah_message_request *request;
    AH_TRY(message_check(group, &message, "recv", true));
    AH_TRY(ah_group_check_health(group, "recv"));
    AH_TRY(new_message(&request, group, &message, false));
    *out = request;
    return message_begin(request, &group->incoming);
}

/* Fail for a request that began before its group was restarted. */
static int message_outlived(const struct ah_message_request *request)
{
    return ah_fail(AH_EPEER, "%s: a collective failed since it began, and its group was restarted",
                   request->sends ? "send" : "recv");
}

void ah_message_forget(struct ah_group *group)
{
    struct ah_message_request **lists[] = {&group->outgoing, &group->incoming};
    for (int i = 0; i < 2; i++) {
        for (struct ah_message_request *request = *lists[i], *next; request; request = next) {
            next = request->next;
            request->next = NULL;
            request->header = NULL;
            if (request->abandoned)
                free_message(request, true);
        }
        *lists[i] = NULL;
    }
}

int ah_message_test(struct ah_message_request *request, bool *done)
{
    if (!request->done && request->epoch != request->group->epoch)
        return message_outlived(request);
    if (!request->done) {
        AH_TRY(ah_group_check_health(request->group, request->sends ? "send" : "recv"));
        AH_TRY(ah_group_poison(request->group, ah_message_progress(request->group)));
    }
    *done = request->done;
    return 0;
}

static struct ah_awaited *own_awaited(struct ah_group *group)
{
    return &ah_rank_entry(group->control, group->member[group->rank])->awaited;
}

/* Publish the messages for which this rank sleeps. */
static void report_awaited(const struct ah_message_request *request)
{
    struct ah_awaited *awaited = own_awaited(request->group);
    if (atomic_load_explicit(&awaited->what, memory_order_relaxed)) /* this rank is its only writer */
        return;
    atomic_store(&awaited->peer, request->message.peer < 0 ? -1 : request->group->member[request->message.peer]);
    atomic_store(&awaited->tag, request->message.tag);
    atomic_store(&awaited->since_ns, ah_now_ns());
    memcpy(awaited->where, request->where, sizeof awaited->where);
    atomic_store(&awaited->what, request->sends ? AH_AWAITS_RECEIVER : AH_AWAITS_MESSAGE);
    ah_group_notify(request->group->peer[request->group->rank],
                    AH_REPLICA); /* a sender on another host may make place */
}

/* Sleep on the counter that moves when the peer has done its part; of AH_ANY_PEER, on that of one peer. */
static int message_await(struct ah_message_request *request)
{
    struct ah_group *group = request->group;
    struct ah_watch watch = {0};
    char call[200];
    bool any = request->message.peer < 0, full = false;
    struct ah_group_block *block = group->peer[any ? (group->rank + 1) % group->size : request->message.peer];
    enum ah_counter which = request->sends ? AH_RECEIVED : AH_SENT;
    for (struct ah_spin spin = {.left = group->spins};;) {
        uint32_t seen = ah_group_counter(block, which);
        AH_TRY(ah_message_progress(group));
        if (request->done)
            return 0;
        if (ah_watch_spin(group, &spin))
            continue;
        ah_watch_leave(group);
        report_awaited(request);
        int status =
            ah_watch_peer(&watch, group, request->message.peer, ah_message_describe(request, call, sizeof call));
        if (status < 0) { /* its last action may have been this */
            AH_TRY(ah_message_progress(group));
            return request->done ? 0 : status;
        }
        /* An event that does not move this counter follows soon. */
        for (struct ah_message_request *other = group->outgoing; other && !full; other = other->next)
            full = !other->header;
        bool moving = request->header && (group->backend->serve || request->header->far);
        ah_group_sleep(block, which, seen, any || moving || full ? short_slice_ns : slice_ns);
    }
}

int ah_message_wait(struct ah_message_request *request, int *peer)
{
    struct ah_group *group = request->group;
    struct ah_group_block *mine = group->peer[group->rank];
    bool old = request->epoch != group->epoch;
    int status = request->done ? 0
                 : old         ? message_outlived(request)
                               : ah_group_check_health(group, request->sends ? "send" : "recv");
    if (!request->sends) {
        atomic_store(&mine->wanted_tag, request->message.tag);
        atomic_store(&mine->wanted_from, request->message.peer + 2);
    }
    if (status == 0 && !request->done) {
        status = ah_group_poison(group, message_await(request));
        /* Relaxed: it announces nothing; a report made meanwhile may still name the message. */
        atomic_store_explicit(&own_awaited(group)->what, AH_AWAITS_NONE, memory_order_relaxed);
    }
    atomic_store(&mine->wanted_from, 0);
    if (peer)
        *peer = request->message.peer;
    message_unlist(request->sends ? &group->outgoing : &group->incoming, request);
    free_message(request, request->done || old);
    return status;
}

void ah_message_abandon(struct ah_message_request *request, void (*release)(void *held), void *held)
{
    struct ah_group *group = request->group;
    request->release = release;
    request->held = held;
    if (request->epoch != group->epoch) {
        message_unlist(request->sends ? &group->outgoing : &group->incoming, request);
        free_message(request, true);
        return;
    }
    bool under_way = !request->done && request->header;
    if (!request->done && request->sends && !group->poison) {
        request->abandoned = true;
    } else if (under_way && !group->poison) {
        ah_message_wait(request, NULL); /* half of it is in the caller's memory */
    } else {
        message_unlist(request->sends ? &group->outgoing : &group->incoming, request);
        free_message(request, request->done);
    }
}

void ah_message_drop_all(struct ah_group *group)
{
    struct ah_message_request *lists[] = {group->outgoing, group->incoming};
    for (int i = 0; i < 2; i++)
        for (struct ah_message_request *request = lists[i], *next; request; request = next) {
            next = request->next;
            free_message(request, false);
        }
    group->outgoing = group->incoming = NULL;
}
