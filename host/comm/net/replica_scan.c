/* Find the changes of an own rank's rank entry since they were last sent to other hosts, by comparison with a copy of
 * the sent state. A call is sent before the counter that announces it, and its inline data before the call. Groups
 * whose members are all of this host are not sent. Message headers are sent to the receiver's host only, in pieces, so
 * that a long message does not delay the other data. */
#include <string.h>

#include "comm/net/replica_frames.h"

int ah_replica_send(struct ah_replica *replica, int host, struct replica_head head, const void *body, const void *tail,
                  size_t tail_bytes)
{
    size_t own = head.bytes;
    head.bytes += (uint32_t)tail_bytes;
    for (int h = 0; h < replica->hosts->count; h++) {
        struct replica_peer *peer = &replica->peer[h];
        if (peer->fd < 0 || (host >= 0 && h != host) || atomic_load(&peer->lost) || atomic_load(&peer->done))
            continue;
        AH_TRY(ah_text_append(&peer->out, &head, sizeof head));
        if (own)
            AH_TRY(ah_text_append(&peer->out, body, own));
        if (tail_bytes)
            AH_TRY(ah_text_append(&peer->out, tail, tail_bytes));
    }
    return 0;
}

static struct replica_head head_of(enum replica_kind kind, int rank, int block, size_t bytes)
{
    return (struct replica_head){(uint32_t)bytes, (uint8_t)kind, (uint8_t)block, (uint16_t)rank};
}

static int send_data(struct ah_replica *replica, int host, int rank, uint64_t offset, uint64_t bytes)
{
    if (!bytes)
        return 0;
    return ah_replica_send(replica, host, head_of(REPLICA_DATA, rank, 0, sizeof offset), &offset,
                         replica->control->segment[rank] + offset, bytes);
}

/* Send the input of a call, but for the part that its rank may be overwriting by now. */
static int send_input(struct ah_replica *replica, int rank, const struct ah_call_record *record)
{
    uint64_t behind = record->own_bytes ? (uint64_t)record->own + record->own_bytes : 0;
    if (record->own_bytes)
        AH_TRY(send_data(replica, -1, rank, record->offset, record->own));
    return send_data(replica, -1, rank, record->offset + behind, record->inline_bytes - behind);
}

static int send_calls(struct ah_replica *replica, int rank, int c, uint32_t from, uint32_t upto)
{
    struct ah_group_block *block = &ah_rank_entry(replica->control, rank)->block[c];
    if (upto - from > AH_GROUP_CALLS)
        from = upto - AH_GROUP_CALLS;
    for (uint32_t sequence = from + 1; ah_reached(upto, sequence); sequence++) {
        const struct ah_call_record *record = ah_group_record(block, sequence);
        if (record->sequence != sequence)
            continue; /* where another group's counters began */
        AH_TRY(send_input(replica, rank, record));
        AH_TRY(ah_replica_send(replica, -1, head_of(REPLICA_CALL, rank, c, sizeof *record), record, NULL, 0));
    }
    return 0;
}

/* Is a rank of another host in the group of the group block? */
static bool concerns_others(struct ah_replica *replica, struct ah_group_block *block)
{
    for (int r = 0; r < replica->control->size; r++)
        if (!ah_control_is_local(replica->control, r) && atomic_load(&block->members[r / 64]) >> r % 64 & 1)
            return true;
    return false;
}

/* Message headers. */

/* Message headers of other hosts that receivers of this one have done with, or that go back. */
static int send_outcomes(struct ah_replica *replica, int c)
{
    for (int r = 0; r < replica->control->size; r++) {
        if (ah_control_is_local(replica->control, r))
            continue;
        struct ah_message_header *header = ah_rank_entry(replica->control, r)->block[c].header;
        for (uint32_t i = 0; i < AH_GROUP_MESSAGES; i++) {
            struct replica_outcome outcome = {i, atomic_load(&header[i].number), atomic_load(&header[i].state)};
            if (outcome.state != AH_MESSAGE_RECEIVED && outcome.state != AH_MESSAGE_EMPTY)
                continue;
            AH_TRY(ah_replica_send(replica, ah_hosts_of(replica->hosts, r),
                                 head_of(REPLICA_OUTCOME, r, c, sizeof outcome), &outcome, NULL, 0));
            atomic_store(&header[i].state, AH_MESSAGE_FREE);
        }
    }
    return 0;
}

static uint64_t bytes_of(const struct ah_message_header *header)
{
    return header->offset == AH_NO_OFFSET ? 0 : (uint64_t)header->count * ah_dtype_size((enum ah_dtype)header->dtype);
}

/* The next piece of a message header, and then the message header. */
static int send_header(struct ah_replica *replica, int rank, int c, int index, struct replica_group *shadow, bool *more)
{
    struct replica_header_state *announced = &shadow->header[index];
    struct ah_message_header *header = &ah_rank_entry(replica->control, rank)->block[c].header[index], copy = {0};
    uint64_t bytes = bytes_of(header), left = bytes - announced->sent, place = (uint64_t)index;
    int host = ah_hosts_of(replica->hosts, atomic_load(&header->member));
    size_t state = sizeof copy.state; /* which may change now; nothing else may */
    if (left) {
        uint64_t piece = left < REPLICA_PIECE ? left : REPLICA_PIECE;
        AH_TRY(send_data(replica, host, rank, header->offset + announced->sent, piece));
        announced->sent += piece;
        if (announced->sent < bytes) {
            *more = true;
            return 0;
        }
    }
    announced->announced = true;
    atomic_fetch_or(&shadow->there, 1u << index);
    memcpy((char *)&copy + state, (char *)header + state, sizeof copy - state);
    return ah_replica_send(replica, host, head_of(REPLICA_HEADER, rank, c, sizeof place), &place, &copy, sizeof copy);
}

/* Its state, if the message header is for another host and is not being written at present; else it is sent after the
 * write. */
static unsigned state_of(struct ah_replica *replica, struct ah_message_header *header, unsigned *number)
{
    unsigned state = atomic_load(&header->state);
    *number = atomic_load(&header->number);
    bool local = ah_control_is_local(replica->control, atomic_load(&header->member));
    return local || atomic_load(&header->state) != state || atomic_load(&header->number) != *number ? AH_MESSAGE_TAKEN
                                                                                                   : state;
}

/* The first message header, in its sender's order, that is to be sent; -1: none. */
static int first_header(struct ah_replica *replica, struct ah_message_header *header,
                        const struct replica_header_state *announced)
{
    int first = -1;
    unsigned least = 0, number;
    for (int i = 0; i < AH_GROUP_MESSAGES; i++) {
        if (state_of(replica, &header[i], &number) != AH_MESSAGE_POSTED ||
            (announced[i].announced && announced[i].number == number) || (first >= 0 && ah_reached(number, least)))
            continue;
        first = i;
        least = number;
    }
    return first;
}

/* Message headers that their sender wants back. */
static int send_recalls(struct ah_replica *replica, int rank, int c, struct replica_header_state *announced, bool beat)
{
    struct ah_message_header *header = ah_rank_entry(replica->control, rank)->block[c].header;
    struct replica_outcome outcome = {.state = AH_MESSAGE_RECALLED};
    for (outcome.index = 0; outcome.index < AH_GROUP_MESSAGES; outcome.index++) {
        struct replica_header_state *one = &announced[outcome.index];
        if (state_of(replica, &header[outcome.index], &outcome.number) != AH_MESSAGE_RECALLED)
            continue;
        if (!one->announced || one->number != outcome.number) { /* no host has it */
            *one = (struct replica_header_state){0};
            atomic_store(&header[outcome.index].state, AH_MESSAGE_EMPTY);
        } else if (!one->asked || beat) {
            one->asked = true;
            AH_TRY(ah_replica_send(replica, ah_hosts_of(replica->hosts, atomic_load(&header[outcome.index].member)),
                                   head_of(REPLICA_RECALL, rank, c, sizeof outcome), &outcome, NULL, 0));
        }
    }
    return 0;
}

/* In their sender's order, on which receivers depend: an earlier message header is posted earlier, so that a second
 * scan of all of them finds it. */
static int send_headers(struct ah_replica *replica, int rank, int c, bool beat, bool *more)
{
    struct ah_message_header *header = ah_rank_entry(replica->control, rank)->block[c].header;
    struct replica_group *shadow = &replica->rank[rank - replica->control->header->first].block[c];
    struct replica_header_state *announced = shadow->header;
    unsigned returned = atomic_exchange(&shadow->returned, 0);
    for (int i = 0; i < AH_GROUP_MESSAGES; i++)
        if (returned >> i & 1)
            announced[i] = (struct replica_header_state){0};
    AH_TRY(send_recalls(replica, rank, c, announced, beat));
    for (int i; (i = first_header(replica, header, announced)) >= 0;) {
        i = first_header(replica, header, announced);
        if (i < 0)
            break;
        unsigned number = atomic_load(&header[i].number);
        if (announced[i].number != number) { /* the returned bit of this place is of the previous message header */
            announced[i] = (struct replica_header_state){.number = number};
            atomic_fetch_and(&shadow->returned, ~(1u << i));
        }
        AH_TRY(send_header(replica, rank, c, i, shadow, more));
        if (!announced[i].announced)
            break; /* the rest of it after other notifications */
    }
    return 0;
}

/* Ranks. */

static int scan_group(struct ah_replica *replica, int rank, int c, bool beat, bool *more)
{
    struct ah_rank_entry *slot = ah_rank_entry(replica->control, rank);
    struct ah_group_block *block = &slot->block[c];
    struct replica_counters *announced = &replica->rank[rank - replica->control->header->first].block[c].announced,
                            now = {0};
    ah_group_counter(block, AH_ROUND); /* inline data may have been written by the progress thread */
    for (int k = 0; k < AH_COUNTERS; k++)
        if (k != AH_ROUND && k != AH_SLICED)
            now.value[k] = ah_group_counter(block, (enum ah_counter)k);
    now.base = atomic_load(&block->base);
    now.wanted_from = atomic_load(&block->wanted_from);
    now.wanted_tag = now.wanted_from ? atomic_load(&block->wanted_tag) : 0;
    now.address = atomic_load(&block->address);
    now.latest = atomic_load(&slot->latest);
    bool others = concerns_others(replica, block);
    if (others && now.value[AH_SENT] != now.base)
        AH_TRY(send_headers(replica, rank, c, beat, more));
    if (!memcmp(&now, announced, sizeof now))
        return 0;
    if (others) {
        if (now.value[AH_RECEIVED] != announced->value[AH_RECEIVED])
            AH_TRY(send_outcomes(replica, c));
        /* Places of the ring before the base are no calls of this group: its rank may be writing there. */
        uint32_t upto = now.value[AH_ISSUED], fresh = upto - announced->value[AH_ISSUED], made = upto - now.base;
        AH_TRY(send_calls(replica, rank, c, upto - (fresh < made ? fresh : made), upto));
        AH_TRY(ah_replica_send(replica, -1, head_of(REPLICA_COUNTERS, rank, c, sizeof now), &now, NULL, 0));
    }
    *announced = now;
    return 0;
}

static int scan_state(struct ah_replica *replica, int rank)
{
    struct ah_rank_entry *slot = ah_rank_entry(replica->control, rank);
    struct replica_state *announced = &replica->rank[rank - replica->control->header->first].announced;
    struct replica_state now = {.state = atomic_load(&slot->state), .group_status = atomic_load(&slot->group_status)};
    char text[sizeof slot->group_text + AH_RANK_TEXT];
    now.victim = atomic_load(&slot->victim);
    now.blamed = atomic_load(&slot->blamed);
    now.line = atomic_load(&slot->line);
    now.line_done = atomic_load(&slot->line_done);
    if (now.group_status)
        now.group_bytes = (uint32_t)strnlen(slot->group_text, sizeof slot->group_text - 1);
    if (now.state != AH_RANK_RUNNING)
        now.text_bytes = (uint32_t)strnlen(slot->text, sizeof slot->text - 1);
    if (!memcmp(&now, announced, sizeof now))
        return 0;
    *announced = now;
    memcpy(text, slot->group_text, now.group_bytes);
    memcpy(text + now.group_bytes, slot->text, now.text_bytes);
    return ah_replica_send(replica, -1, head_of(REPLICA_STATE, rank, 0, sizeof now), &now, text,
                           now.group_bytes + now.text_bytes);
}

int ah_replica_scan(struct ah_replica *replica, bool beat, bool *more)
{
    struct ah_control_header *header = replica->control->header;
    *more = false;
    if (atomic_exchange(&replica->recalled, false))
        for (int c = 0; c < atomic_load(&header->blocks); c++)
            AH_TRY(send_outcomes(replica, c));
    for (int r = header->first; r < header->first + header->local; r++) {
        for (int c = 0; c < atomic_load(&header->blocks); c++)
            AH_TRY(scan_group(replica, r, c, beat, more));
        AH_TRY(scan_state(replica, r));
    }
    return beat ? ah_replica_send(replica, -1, (struct replica_head){.kind = REPLICA_BEAT}, NULL, NULL, 0) : 0;
}
