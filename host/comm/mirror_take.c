/* Frames of other hosts into the slots of their ranks. Nothing of a frame is believed: not its length, whose rank it
 * is, which channel, nor where its bytes belong. */
#include <string.h>

#include "comm/mirror_wire.h"

static int wrong(const char *what)
{
    return ah_fail(AH_EINVAL, "it sent %s", what);
}

static bool lies_in(const struct ah_mirror *mirror, uint64_t offset, uint64_t bytes)
{
    return offset <= mirror->board->segment_span && bytes <= mirror->board->segment_span - offset;
}

static int take_data(struct ah_mirror *mirror, int rank, const unsigned char *body, size_t bytes)
{
    uint64_t offset;
    memcpy(&offset, body, sizeof offset);
    bytes -= sizeof offset;
    if (!lies_in(mirror, offset, bytes))
        return wrong("data for a place that is none");
    AH_TRY(ah_board_grow(mirror->board, rank, offset + bytes));
    memcpy(mirror->board->segment[rank] + offset, body + sizeof offset, bytes);
    return 0;
}

static int take_post(struct ah_mirror *mirror, int rank, struct ah_channel *channel, const unsigned char *body)
{
    struct ah_post post;
    if (body[offsetof(struct ah_post, async)] > 1 || body[offsetof(struct ah_post, far)] > 1 ||
        body[offsetof(struct ah_post, wired)] > 1)
        return wrong("a call that is none");
    memcpy(&post, body, sizeof post);
    if (post.travels && !lies_in(mirror, post.offset, post.travels))
        return wrong("a call on data that lies nowhere");
    if (post.travels)
        AH_TRY(ah_board_grow(mirror->board, rank, post.offset + post.travels));
    if (post.kind >= AH_COLLECTIVE_KINDS || post.dtype >= AH_DTYPE_COUNT || post.reduce >= AH_REDUCE_OPS ||
        post.ndim > AH_BOARD_DIMS)
        return wrong("a call that is none");
    post.where[sizeof post.where - 1] = 0;
    *ah_channel_post(channel, post.sequence) = post;
    return 0;
}

/* SENT moves when a letter has come with all that it says. */
static const bool mirrored[AH_COUNTERS] = {[AH_POSTED] = true, [AH_DONE] = true, [AH_RECEIVED] = true};

static int take_counters(struct ah_mirror *mirror, struct ah_board_slot *slot, int c, const unsigned char *body)
{
    struct ah_channel *channel = &slot->channel[c];
    struct mirror_counters now;
    int seen = atomic_load(&mirror->board->header->channels);
    memcpy(&now, body, sizeof now);
    if (now.latest < 0 || now.latest >= AH_BOARD_CHANNELS)
        return wrong("a channel that is none");
    if (!lies_in(mirror, now.address, 2 * AH_STAGE_BYTES))
        return wrong("an address that is none");
    atomic_store(&channel->address, now.address);
    atomic_store(&slot->latest, now.latest);
    atomic_store(&channel->base, now.base);
    atomic_store(&channel->wanted_tag, now.wanted_tag);
    atomic_store(&channel->wanted_from, now.wanted_from);
    while (seen <= c && !atomic_compare_exchange_weak(&mirror->board->header->channels, &seen, c + 1))
        continue;
    for (int k = 0; k < AH_COUNTERS; k++)
        if (mirrored[k] && now.value[k] != ah_channel_counter(channel, (enum ah_counter)k))
            ah_channel_advance(channel, (enum ah_counter)k, now.value[k]);
    return 0;
}

/* Its data is here already. */
static int take_letter(struct ah_mirror *mirror, int rank, struct ah_channel *channel, const unsigned char *body)
{
    struct ah_letter sent;
    uint64_t index;
    memcpy(&index, body, sizeof index);
    memcpy((void *)&sent, body + sizeof index, sizeof sent);
    if (index >= AH_CHANNEL_LETTERS || sent.dtype >= AH_DTYPE_COUNT || sent.count < 0 || sent.ndim > AH_BOARD_DIMS)
        return wrong("a message that is none");
    uint64_t bytes = (uint64_t)sent.count * ah_dtype_size((enum ah_dtype)sent.dtype);
    if ((uint64_t)sent.count > mirror->board->segment_span || (bytes && !lies_in(mirror, sent.offset, bytes)))
        return wrong("a message that lies nowhere");
    if (bytes)
        AH_TRY(ah_board_grow(mirror->board, rank, sent.offset + bytes));
    struct ah_letter *letter = &channel->letter[index];
    atomic_store(&letter->number, atomic_load(&sent.number));
    atomic_store(&letter->to, atomic_load(&sent.to));
    atomic_store(&letter->tag, atomic_load(&sent.tag));
    atomic_store(&letter->group, atomic_load(&sent.group));
    letter->dtype = sent.dtype;
    letter->ndim = sent.ndim;
    atomic_store(&letter->member, atomic_load(&sent.member));
    letter->far = false;
    letter->count = sent.count;
    letter->offset = sent.offset;
    memcpy(letter->size, sent.size, sizeof letter->size);
    memcpy(letter->where, sent.where, sizeof letter->where);
    letter->where[sizeof letter->where - 1] = 0;
    atomic_store(&letter->state, AH_LETTER_POSTED);
    ah_channel_advance(channel, AH_SENT, ah_channel_counter(channel, AH_SENT) + 1);
    return 0;
}

/* The sender wants a letter back. */
static int take_recall(struct ah_mirror *mirror, struct ah_channel *channel, const unsigned char *body)
{
    struct mirror_verdict verdict;
    memcpy(&verdict, body, sizeof verdict);
    if (verdict.index >= AH_CHANNEL_LETTERS)
        return wrong("a message that is none");
    struct ah_letter *letter = &channel->letter[verdict.index];
    if (atomic_load(&letter->number) == verdict.number &&
        atomic_compare_exchange_strong(&letter->state, &(unsigned){AH_LETTER_POSTED}, AH_LETTER_EMPTY)) {
        atomic_store(&mirror->recalled, true);
        ah_news_tell(&mirror->board->header->news[AH_MIRROR]);
    }
    return 0;
}

/* Of an own rank's letter. */
static int take_verdict(struct ah_mirror *mirror, const struct mirror_head *head, const unsigned char *body)
{
    struct mirror_verdict verdict;
    memcpy(&verdict, body, sizeof verdict);
    if (head->rank >= mirror->board->size || !ah_board_is_local(mirror->board, head->rank) ||
        verdict.index >= AH_CHANNEL_LETTERS ||
        (verdict.state != AH_LETTER_RECEIVED && verdict.state != AH_LETTER_EMPTY))
        return wrong("a verdict on a message that is none");
    struct ah_letter *letter = &ah_board_slot(mirror->board, head->rank)->channel[head->channel].letter[verdict.index];
    unsigned state = atomic_load(&letter->state);
    if (atomic_load(&letter->number) != verdict.number || (state != AH_LETTER_POSTED && state != AH_LETTER_RECALLED))
        return 0;
    if (verdict.state == AH_LETTER_EMPTY)
        atomic_fetch_or(&mirror->rank[head->rank - mirror->board->header->first].channel[head->channel].returned,
                        1u << verdict.index);
    atomic_store(&letter->state, verdict.state);
    return 0;
}

static int take_fares(struct ah_mirror *mirror, int rank, const struct mirror_head *head, const unsigned char *body)
{
    struct ah_board_slot *slot = ah_board_slot(mirror->board, rank);
    struct mirror_fares now;
    memcpy(&now, body, sizeof now);
    body += sizeof now;
    if (now.group_bytes >= sizeof slot->group_text || now.text_bytes >= sizeof slot->text ||
        sizeof now + now.group_bytes + now.text_bytes != head->bytes || now.state < AH_RANK_RUNNING ||
        now.state > AH_RANK_DIED || now.blamed < -1 || now.blamed >= mirror->board->size)
        return wrong("how a rank fares, of the wrong length");
    atomic_store(&slot->line, now.line);
    atomic_store(&slot->line_done, now.line_done);
    atomic_store(&slot->blamed, now.blamed);
    if (now.group_status && !atomic_load(&slot->group_status)) {
        memcpy(slot->group_text, body, now.group_bytes);
        slot->group_text[now.group_bytes] = 0;
    }
    atomic_store(&slot->group_status, now.group_status);
    char text[AH_BOARD_TEXT];
    memcpy(text, body + now.group_bytes, now.text_bytes);
    text[now.text_bytes] = 0;
    if (now.state != AH_RANK_RUNNING)
        ah_board_leave(mirror->board, rank, (enum ah_rank_state)now.state, text, now.victim);
    ah_board_wake(mirror->board);
    return 0;
}

/* The least that a frame of each kind holds, and whether that is all. */
static const struct {
    size_t bytes;
    bool longer;
} body_of[MIRROR_KINDS] = {
    [MIRROR_BEAT] = {0, false},
    [MIRROR_BYE] = {0, false},
    [MIRROR_DATA] = {sizeof(uint64_t), true},
    [MIRROR_POST] = {sizeof(struct ah_post), false},
    [MIRROR_COUNTERS] = {sizeof(struct mirror_counters), false},
    [MIRROR_LETTER] = {sizeof(uint64_t) + sizeof(struct ah_letter), false},
    [MIRROR_RECALL] = {sizeof(struct mirror_verdict), false},
    [MIRROR_VERDICT] = {sizeof(struct mirror_verdict), false},
    [MIRROR_FARES] = {sizeof(struct mirror_fares), true},
};

int ah_mirror_take(struct ah_mirror *mirror, int host, const struct mirror_head *head, const unsigned char *body)
{
    bool about_own = head->kind == MIRROR_VERDICT;
    if (head->kind >= MIRROR_KINDS || head->bytes < body_of[head->kind].bytes || head->bytes > MIRROR_MOST ||
        (head->bytes > body_of[head->kind].bytes && !body_of[head->kind].longer))
        return wrong("a frame of no kind");
    if (head->kind == MIRROR_BEAT)
        return 0;
    if (head->kind == MIRROR_BYE) {
        atomic_store(&mirror->peer[host].done, true);
        return 0;
    }
    if (head->channel >= AH_BOARD_CHANNELS ||
        (!about_own && (head->rank < mirror->hosts->first[host] || head->rank >= mirror->hosts->first[host + 1])))
        return wrong("news of a rank that is not its own");
    if (about_own)
        return take_verdict(mirror, head, body);
    struct ah_board_slot *slot = ah_board_slot(mirror->board, head->rank);
    struct ah_channel *channel = &slot->channel[head->channel];
    switch (head->kind) {
    case MIRROR_DATA: return take_data(mirror, head->rank, body, head->bytes);
    case MIRROR_POST: return take_post(mirror, head->rank, channel, body);
    case MIRROR_COUNTERS: return take_counters(mirror, slot, head->channel, body);
    case MIRROR_LETTER: return take_letter(mirror, head->rank, channel, body);
    case MIRROR_RECALL: return take_recall(mirror, channel, body);
    default: return take_fares(mirror, head->rank, head, body);
    }
}
