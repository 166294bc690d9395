/* Apply frames of other hosts to the rank entries of their ranks. No part of a frame is trusted: not its length, its
 * rank, its group block, the place of its bytes, nor its order: memory that a rank of this host may be reading is not
 * overwritten, and every value of a call or message is harmless in combination with any other, so that readers need
 * not copy the values that they have checked. */
#include <stdlib.h>
#include <string.h>

#include "comm/net/replica_frames.h"

static int apply_refuse(const char *what)
{
    return ah_fail(AH_EINVAL, "it sent %s", what);
}

static bool lies_in(const struct ah_replica *replica, uint64_t offset, uint64_t bytes)
{
    return offset <= replica->control->segment_span && bytes <= replica->control->segment_span - offset;
}

/* Count the blocks to which data is written for the first time. */
static int hold_blocks(struct ah_replica *replica, int rank, uint64_t offset, uint64_t bytes)
{
    unsigned char **held = &replica->held[rank];
    if (!*held)
        *held = calloc(replica->control->segment_span / REPLICA_BLOCK / 8 + 1, 1);
    if (!*held)
        return AH_ENOMEM;
    for (uint64_t i = offset / REPLICA_BLOCK; bytes && i <= (offset + bytes - 1) / REPLICA_BLOCK; i++) {
        unsigned char bit = (unsigned char)(1u << i % 8);
        if ((*held)[i / 8] & bit)
            continue;
        if (replica->room < REPLICA_BLOCK)
            return apply_refuse("data for more than half of this host's memory");
        replica->room -= REPLICA_BLOCK;
        (*held)[i / 8] |= bit;
    }
    return 0;
}

static int apply_data(struct ah_replica *replica, int rank, const unsigned char *body, size_t bytes)
{
    uint64_t offset;
    memcpy(&offset, body, sizeof offset);
    bytes -= sizeof offset;
    if (!lies_in(replica, offset, bytes))
        return apply_refuse("data for a place that is none");
    AH_TRY(hold_blocks(replica, rank, offset, bytes));
    AH_TRY(ah_control_grow(replica->control, rank, offset + bytes));
    memcpy(replica->control->segment[rank] + offset, body + sizeof offset, bytes);
    return 0;
}

/* Does a rank of this host still need the record at the post's place? */
static bool is_needed(struct ah_replica *replica, int rank, int c, uint32_t old)
{
    struct ah_control_header *header = replica->control->header;
    for (int r = header->first; r < header->first + header->local; r++) {
        struct ah_rank_entry *slot = ah_rank_entry(replica->control, r);
        struct ah_group_block *block = &slot->block[c];
        int state = atomic_load(&slot->state);
        if ((state == AH_RANK_RUNNING || state == AH_RANK_RETURNING) &&
            atomic_load(&block->members[rank / 64]) >> rank % 64 & 1 &&
            ah_reached(ah_group_counter(block, AH_ISSUED), old) &&
            !ah_reached(ah_group_counter(block, AH_DONE), old))
            return true;
    }
    return false;
}

/* Inline data fits into half a stage, and any place that a call names has that much room. */
static int apply_call(struct ah_replica *replica, int rank, int c, const unsigned char *body)
{
    struct ah_group_block *block = &ah_rank_entry(replica->control, rank)->block[c];
    struct ah_call_record record, *place;
    if (body[offsetof(struct ah_call_record, async)] > 1 || body[offsetof(struct ah_call_record, far)] > 1 ||
        body[offsetof(struct ah_call_record, wired)] > 1)
        return apply_refuse("a call that is none");
    memcpy(&record, body, sizeof record);
    if (record.kind >= AH_COLLECTIVE_KINDS || record.dtype >= AH_DTYPE_COUNT || record.reduce >= AH_REDUCE_OPS ||
        record.ndim > AH_CALL_DIMS)
        return apply_refuse("a call that is none");
    if (record.inline_bytes &&
        (record.inline_bytes > AH_STAGE_BYTES || !lies_in(replica, record.offset, AH_STAGE_BYTES)))
        return apply_refuse("a call on data outside the segment");
    record.offset = record.inline_bytes ? record.offset : 0;
    place = ah_group_record(block, record.sequence);
    if (ah_reached(ah_group_counter(block, AH_ISSUED), record.sequence) || is_needed(replica, rank, c, place->sequence))
        return apply_refuse("a call in the place of one that is still read");
    if (record.inline_bytes)
        AH_TRY(ah_control_grow(replica->control, rank, record.offset + AH_STAGE_BYTES));
    record.where[sizeof record.where - 1] = 0;
    *place = record;
    return 0;
}

/* SENT moves when a message header has arrived completely. */
static const bool replicated[AH_COUNTERS] = {[AH_ISSUED] = true, [AH_DONE] = true, [AH_RECEIVED] = true};

/* Counters only grow, and no rank posts more calls than others can have left undone. */
static bool may_follow(struct ah_group_block *block, const struct replica_counters *now)
{
    uint32_t issued = ah_group_counter(block, AH_ISSUED), base = atomic_load(&block->base);
    if (!ah_reached(now->base, base))
        return false;
    for (int k = 0; k < AH_COUNTERS; k++)
        if (replicated[k] && !ah_reached(now->value[k], ah_group_counter(block, (enum ah_counter)k)))
            return false;
    uint32_t from = ah_reached(now->base, issued) ? now->base : issued;
    return ah_reached(from + AH_GROUP_CALLS, now->value[AH_ISSUED]);
}

static int apply_counters(struct ah_replica *replica, int rank, int c, const unsigned char *body)
{
    struct ah_rank_entry *slot = ah_rank_entry(replica->control, rank);
    struct ah_group_block *block = &slot->block[c];
    struct replica_counters now;
    int seen = atomic_load(&replica->control->header->blocks);
    memcpy(&now, body, sizeof now);
    if (now.latest < 0 || now.latest >= AH_MAX_GROUPS)
        return apply_refuse("a channel that is none");
    if (!lies_in(replica, now.address, 2 * AH_STAGE_BYTES))
        return apply_refuse("an address that is none");
    if (!may_follow(block, &now))
        return apply_refuse("numbers of calls that cannot follow those before");
    if (now.address != atomic_load(&block->address))
        AH_TRY(ah_control_grow(replica->control, rank, now.address + 2 * AH_STAGE_BYTES));
    atomic_store(&block->address, now.address);
    atomic_store(&slot->latest, now.latest);
    atomic_store(&block->base, now.base);
    atomic_store(&block->wanted_tag, now.wanted_tag);
    atomic_store(&block->wanted_from, now.wanted_from);
    while (seen <= c && !atomic_compare_exchange_weak(&replica->control->header->blocks, &seen, c + 1))
        continue;
    for (int k = 0; k < AH_COUNTERS; k++)
        if (replicated[k] && now.value[k] != ah_group_counter(block, (enum ah_counter)k))
            ah_group_counter_advance(block, (enum ah_counter)k, now.value[k]);
    return 0;
}

/* Its data is here already. */
static int apply_header(struct ah_replica *replica, int rank, struct ah_group_block *block, const unsigned char *body)
{
    struct ah_message_header sent;
    uint64_t index;
    memcpy(&index, body, sizeof index);
    memcpy((void *)&sent, body + sizeof index, sizeof sent);
    if (index >= AH_GROUP_MESSAGES || sent.dtype >= AH_DTYPE_COUNT || sent.count < 0 || sent.ndim > AH_CALL_DIMS)
        return apply_refuse("a message that is none");
    uint64_t bytes = (uint64_t)sent.count * ah_dtype_size((enum ah_dtype)sent.dtype);
    if ((uint64_t)sent.count > replica->control->segment_span || (bytes && !lies_in(replica, sent.offset, bytes)))
        return apply_refuse("a message outside the segment");
    if (!ah_control_is_local(replica->control, atomic_load(&sent.member)))
        return apply_refuse("a message for a rank of another host");
    struct ah_message_header *header = &block->header[index];
    /* One that was not accepted may be of a group that its sender has closed. */
    atomic_compare_exchange_strong(&header->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_FREE);
    if (atomic_load(&header->state) != AH_MESSAGE_FREE)
        return apply_refuse("a message in the place of one that is not back");
    if (bytes)
        AH_TRY(ah_control_grow(replica->control, rank, sent.offset + bytes));
    atomic_store(&header->number, atomic_load(&sent.number));
    atomic_store(&header->to, atomic_load(&sent.to));
    atomic_store(&header->tag, atomic_load(&sent.tag));
    atomic_store(&header->group, atomic_load(&sent.group));
    header->dtype = sent.dtype;
    header->ndim = sent.ndim;
    atomic_store(&header->member, atomic_load(&sent.member));
    header->far = false;
    header->count = sent.count;
    header->offset = sent.offset;
    memcpy(header->size, sent.size, sizeof header->size);
    memcpy(header->where, sent.where, sizeof header->where);
    header->where[sizeof header->where - 1] = 0;
    atomic_store(&header->state, AH_MESSAGE_POSTED);
    ah_group_counter_advance(block, AH_SENT, ah_group_counter(block, AH_SENT) + 1);
    return 0;
}

/* The sender wants a message header back. */
static int apply_recall(struct ah_replica *replica, struct ah_group_block *block, const unsigned char *body)
{
    struct replica_outcome outcome;
    memcpy(&outcome, body, sizeof outcome);
    if (outcome.index >= AH_GROUP_MESSAGES)
        return apply_refuse("a message that is none");
    struct ah_message_header *header = &block->header[outcome.index];
    if (atomic_load(&header->number) == outcome.number &&
        atomic_compare_exchange_strong(&header->state, &(unsigned){AH_MESSAGE_POSTED}, AH_MESSAGE_EMPTY)) {
        atomic_store(&replica->recalled, true);
        ah_notification_notify(&replica->control->header->notification[AH_REPLICA]);
    }
    return 0;
}

/* Of an own rank's message header. */
static int apply_outcome(struct ah_replica *replica, int host, const struct replica_head *head,
                         const unsigned char *body)
{
    struct replica_outcome outcome;
    memcpy(&outcome, body, sizeof outcome);
    if (head->rank >= replica->control->size || !ah_control_is_local(replica->control, head->rank) ||
        outcome.index >= AH_GROUP_MESSAGES ||
        (outcome.state != AH_MESSAGE_RECEIVED && outcome.state != AH_MESSAGE_EMPTY))
        return apply_refuse("an outcome of a message that is none");
    struct ah_message_header *header =
        &ah_rank_entry(replica->control, head->rank)->block[head->block].header[outcome.index];
    struct replica_group *announced = &replica->rank[head->rank - replica->control->header->first].block[head->block];
    unsigned state = atomic_load(&header->state), bit = 1u << outcome.index;
    if (atomic_load(&header->number) != outcome.number || (state != AH_MESSAGE_POSTED && state != AH_MESSAGE_RECALLED))
        return 0;
    if (ah_hosts_of(replica->hosts, atomic_load(&header->member)) != host || !(atomic_load(&announced->there) & bit))
        return apply_refuse("an outcome of a message that it does not have");
    atomic_fetch_and(&announced->there, ~bit);
    if (outcome.state == AH_MESSAGE_EMPTY)
        atomic_fetch_or(&announced->returned, bit);
    /* Its sender may recall it just now. */
    while ((state == AH_MESSAGE_POSTED || state == AH_MESSAGE_RECALLED) &&
           !atomic_compare_exchange_weak(&header->state, &state, outcome.state))
        continue;
    return 0;
}

static int apply_state(struct ah_replica *replica, int rank, const struct replica_head *head, const unsigned char *body)
{
    struct ah_rank_entry *slot = ah_rank_entry(replica->control, rank);
    struct replica_state now;
    memcpy(&now, body, sizeof now);
    body += sizeof now;
    if (now.group_bytes >= sizeof slot->group_text || now.text_bytes >= sizeof slot->text ||
        sizeof now + now.group_bytes + now.text_bytes != head->bytes || now.state < AH_RANK_RUNNING ||
        now.state > AH_RANK_DIED || now.blamed < -1 || now.blamed >= replica->control->size)
        return apply_refuse("a rank's state, of the wrong length");
    atomic_store(&slot->line, now.line);
    atomic_store(&slot->line_done, now.line_done);
    atomic_store(&slot->blamed, now.blamed);
    if (now.group_status && !atomic_load(&slot->group_status)) {
        memcpy(slot->group_text, body, now.group_bytes);
        slot->group_text[now.group_bytes] = 0;
    }
    atomic_store(&slot->group_status, now.group_status);
    char text[AH_RANK_TEXT];
    memcpy(text, body + now.group_bytes, now.text_bytes);
    text[now.text_bytes] = 0;
    if (now.state != AH_RANK_RUNNING)
        ah_control_leave(replica->control, rank, (enum ah_rank_state)now.state, text, now.victim);
    ah_control_wake(replica->control);
    return 0;
}

/* The least that a frame of each kind holds, and whether that is all. */
static const struct {
    size_t bytes;
    bool longer;
} body_of[REPLICA_KINDS] = {
    [REPLICA_BEAT] = {0, false},
    [REPLICA_BYE] = {0, false},
    [REPLICA_DATA] = {sizeof(uint64_t), true},
    [REPLICA_CALL] = {sizeof(struct ah_call_record), false},
    [REPLICA_COUNTERS] = {sizeof(struct replica_counters), false},
    [REPLICA_HEADER] = {sizeof(uint64_t) + sizeof(struct ah_message_header), false},
    [REPLICA_RECALL] = {sizeof(struct replica_outcome), false},
    [REPLICA_OUTCOME] = {sizeof(struct replica_outcome), false},
    [REPLICA_STATE] = {sizeof(struct replica_state), true},
};

int ah_replica_apply(struct ah_replica *replica, int host, const struct replica_head *head, const unsigned char *body)
{
    bool about_own = head->kind == REPLICA_OUTCOME;
    if (head->kind >= REPLICA_KINDS || head->bytes < body_of[head->kind].bytes || head->bytes > REPLICA_MOST ||
        (head->bytes > body_of[head->kind].bytes && !body_of[head->kind].longer))
        return apply_refuse("a frame of no kind");
    if (head->kind == REPLICA_BEAT)
        return 0;
    if (head->kind == REPLICA_BYE) {
        atomic_store(&replica->peer[host].done, true);
        return 0;
    }
    if (head->block >= AH_MAX_GROUPS ||
        (!about_own && (head->rank < replica->hosts->first[host] || head->rank >= replica->hosts->first[host + 1])))
        return apply_refuse("a state of a rank that is not its own");
    if (about_own)
        return apply_outcome(replica, host, head, body);
    struct ah_group_block *block = &ah_rank_entry(replica->control, head->rank)->block[head->block];
    switch (head->kind) {
    case REPLICA_DATA: return apply_data(replica, head->rank, body, head->bytes);
    case REPLICA_CALL: return apply_call(replica, head->rank, head->block, body);
    case REPLICA_COUNTERS: return apply_counters(replica, head->rank, head->block, body);
    case REPLICA_HEADER: return apply_header(replica, head->rank, block, body);
    case REPLICA_RECALL: return apply_recall(replica, block, body);
    default: return apply_state(replica, head->rank, head, body);
    }
}
