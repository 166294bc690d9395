/* A host that knows the job's secret and sends false data: its frames end in an error that names the frame, and data
 * that ranks of this host read is unchanged. */
#include "comm/net/replica_frames.h"

#include <stdlib.h>

#include "test.h"

enum { RANKS = 4, THEIRS = 2 };

/* Three hosts; this one, the first, has ranks 0 and 1, the second, which sends false data, rank 2. */
static const struct ah_hosts hosts = {.count = 3, .first = {0, THEIRS, 3, RANKS}, .name = {"here", "liar", "other"}};

struct place {
    struct ah_control_block *control;
    struct replica_rank rank[THEIRS];
    struct ah_replica replica;
};

static void open_place(struct place *place)
{
    *place = (struct place){.replica = {.hosts = &hosts, .rank = place->rank, .room = 1 << 30}};
    CHECK_OK(ah_control_create(&place->control, RANKS));
    CHECK_OK(ah_control_map_segments(place->control));
    CHECK_OK(ah_control_place(place->control, &hosts));
    place->replica.control = place->control;
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        place->replica.peer[h].fd = -1;
}

static struct ah_group_block *group_of(struct place *place, int rank)
{
    return &ah_rank_entry(place->control, rank)->block[0];
}

/* A frame of the liar. */
static int send_frame(struct place *place, enum replica_kind kind, int rank, const void *body, size_t bytes)
{
    struct replica_head head = {.bytes = (uint32_t)bytes, .kind = (uint8_t)kind, .rank = (uint16_t)rank};
    return ah_replica_apply(&place->replica, 1, &head, body);
}

static int send_call(struct place *place, struct ah_call_record record)
{
    record.kind = AH_ALL_REDUCE;
    record.dtype = AH_F32;
    return send_frame(place, REPLICA_CALL, THEIRS, &record, sizeof record);
}

static int send_counters(struct place *place, struct replica_counters now)
{
    return send_frame(place, REPLICA_COUNTERS, THEIRS, &now, sizeof now);
}

/* Rank 0 is in a group with rank 2, and has issued `issued` calls of which it has done `done`. */
static void write_counters(struct place *place, uint32_t issued, uint32_t done)
{
    struct ah_group_block *mine = group_of(place, 0);
    atomic_store(&mine->members[0], 1u | 1u << THEIRS);
    atomic_store(&mine->counter[AH_ISSUED], issued);
    atomic_store(&mine->counter[AH_DONE], done);
}

AH_TEST(an_announced_call_is_not_accepted_again)
{
    struct place place;
    open_place(&place);
    CHECK_OK(send_call(&place, (struct ah_call_record){.sequence = 1, .offset = 64, .inline_bytes = 4}));
    CHECK_OK(send_counters(&place, (struct replica_counters){.value[AH_ISSUED] = 1}));
    CHECK_FAILS(send_call(&place, (struct ah_call_record){.sequence = 1, .offset = 4096, .inline_bytes = 4}), AH_EINVAL,
                "it sent a call in the place of one that is still read");
    CHECK(ah_group_record(group_of(&place, THEIRS), 1)->offset == 64);
    ah_control_close(place.control);
}

AH_TEST(a_call_does_not_overwrite_one_that_a_rank_here_has_not_completed)
{
    struct place place;
    struct ah_call_record next = {.sequence = 1 + AH_GROUP_CALLS, .offset = 4096, .inline_bytes = 4};
    open_place(&place);
    CHECK_OK(send_call(&place, (struct ah_call_record){.sequence = 1, .offset = 64, .inline_bytes = 4}));
    CHECK_OK(send_counters(&place, (struct replica_counters){.value[AH_ISSUED] = 1}));
    write_counters(&place, 1, 0);
    CHECK_FAILS(send_call(&place, next), AH_EINVAL, "it sent a call in the place of one that is still read");
    CHECK(ah_group_record(group_of(&place, THEIRS), 1)->offset == 64);
    write_counters(&place, 1, 1);
    CHECK_OK(send_call(&place, next));
    ah_control_close(place.control);
}

AH_TEST(the_data_of_a_call_is_in_allocated_memory)
{
    struct place place;
    struct ah_call_record record = {.sequence = 1, .offset = (uint64_t)1 << 20, .inline_bytes = AH_STAGE_BYTES};
    open_place(&place);
    CHECK_OK(send_call(&place, record));
    /* To the end of the range that any call may read there. */
    CHECK(place.control->segment[THEIRS][record.offset + AH_STAGE_BYTES - 1] == 0);
    record.inline_bytes++;
    CHECK_FAILS(send_call(&place, record), AH_EINVAL, "it sent a call on data outside the segment");
    record = (struct ah_call_record){.sequence = 1, .offset = place.control->segment_span - 4, .inline_bytes = 4};
    CHECK_FAILS(send_call(&place, record), AH_EINVAL, "it sent a call on data outside the segment");
    record.inline_bytes = 0;
    CHECK_OK(send_call(&place, record));
    CHECK(ah_group_record(group_of(&place, THEIRS), 1)->offset == 0);
    ah_control_close(place.control);
}

AH_TEST(numbers_of_calls_neither_go_back_nor_leap)
{
    static const char wrong[] = "it sent numbers of calls that cannot follow those before";
    struct place place;
    struct replica_counters now = {.value[AH_ISSUED] = AH_GROUP_CALLS, .value[AH_DONE] = 3};
    open_place(&place);
    CHECK_OK(send_counters(&place, now));
    now.value[AH_ISSUED]--;
    CHECK_FAILS(send_counters(&place, now), AH_EINVAL, wrong);
    now.value[AH_ISSUED] = 2 * AH_GROUP_CALLS + 1;
    CHECK_FAILS(send_counters(&place, now), AH_EINVAL, wrong);
    now.value[AH_ISSUED]--;
    CHECK_OK(send_counters(&place, now));
    now.value[AH_DONE] = 2;
    CHECK_FAILS(send_counters(&place, now), AH_EINVAL, wrong);
    CHECK(ah_group_counter(group_of(&place, THEIRS), AH_DONE) == 3);
    /* Another group of the group block counts on from where it likes. */
    now.value[AH_DONE] = now.base = 1000;
    CHECK_OK(send_counters(&place, now));
    now.value[AH_ISSUED] = 1000 + AH_GROUP_CALLS;
    CHECK_OK(send_counters(&place, now));
    now.base = 999;
    CHECK_FAILS(send_counters(&place, now), AH_EINVAL, wrong);
    ah_control_close(place.control);
}

AH_TEST(where_a_rank_of_another_host_is_found_there_is_memory)
{
    struct place place;
    struct replica_counters now = {.address = (uint64_t)64 << 20};
    open_place(&place);
    CHECK_OK(send_counters(&place, now));
    CHECK(place.control->segment[THEIRS][now.address + 2 * AH_STAGE_BYTES - 1] == 0);
    ah_control_close(place.control);
}

static int send_header(struct place *place, int64_t count, int member)
{
    struct ah_message_header header = {.dtype = AH_F32, .count = count};
    unsigned char body[sizeof(uint64_t) + sizeof header] = {0}; /* the first of its message headers */
    atomic_store(&header.member, member);
    memcpy(body + sizeof(uint64_t), (void *)&header, sizeof header);
    return send_frame(place, REPLICA_HEADER, THEIRS, body, sizeof body);
}

AH_TEST(a_message_that_a_rank_has_received_is_not_changed_before_it_is_returned)
{
    struct place place;
    open_place(&place);
    struct ah_message_header *header = group_of(&place, THEIRS)->header;
    CHECK_OK(send_header(&place, 3, 0));
    for (unsigned state = AH_MESSAGE_TAKEN; state <= AH_MESSAGE_EMPTY; state++) {
        atomic_store(&header->state, state);
        CHECK_FAILS(send_header(&place, 5, 0), AH_EINVAL, "it sent a message in the place of one that is not back");
        CHECK(header->count == 3 && atomic_load(&header->state) == state);
    }
    atomic_store(&header->state, AH_MESSAGE_FREE);
    for (int count = 5; count < 7; count++) { /* the second one overwrites the first, which was not received */
        CHECK_OK(send_header(&place, count, 1));
        CHECK(header->count == count && atomic_load(&header->state) == AH_MESSAGE_POSTED);
    }
    ah_control_close(place.control);
}

AH_TEST(a_message_is_for_a_rank_of_this_host)
{
    struct place place;
    open_place(&place);
    for (int member = THEIRS; member < RANKS; member++)
        CHECK_FAILS(send_header(&place, 1, member), AH_EINVAL, "it sent a message for a rank of another host");
    CHECK_FAILS(send_header(&place, 1, -1), AH_EINVAL, "it sent a message for a rank of another host");
    ah_control_close(place.control);
}

/* Rank 0 has a message for another rank. */
static struct ah_message_header *post_header(struct place *place, int member)
{
    struct ah_group_block *mine = group_of(place, 0);
    atomic_store(&mine->members[0], 0xf);
    mine->header->offset = AH_NO_OFFSET;
    atomic_store(&mine->header->number, 7);
    atomic_store(&mine->header->member, member);
    atomic_store(&mine->header->state, AH_MESSAGE_POSTED);
    atomic_fetch_add(&mine->counter[AH_SENT], 1);
    return mine->header;
}

static int send_outcome(struct place *place, enum ah_message_state state)
{
    struct replica_outcome outcome = {.number = 7, .state = state};
    return send_frame(place, REPLICA_OUTCOME, 0, &outcome, sizeof outcome);
}

AH_TEST(only_the_host_that_has_a_message_reports_its_outcome)
{
    struct place place;
    bool more;
    open_place(&place);
    struct ah_message_header *header = post_header(&place, 3);
    CHECK_OK(ah_replica_scan(&place.replica, false, &more));
    CHECK_FAILS(send_outcome(&place, AH_MESSAGE_RECEIVED), AH_EINVAL,
                "it sent an outcome of a message that it does not have");
    CHECK(atomic_load(&header->state) == AH_MESSAGE_POSTED);
    ah_control_close(place.control);
}

/* Its bytes are read while they are sent, and are the sender's again with the outcome. */
AH_TEST(no_outcome_is_accepted_before_the_message_has_been_sent)
{
    struct place place;
    bool more;
    open_place(&place);
    struct ah_message_header *header = post_header(&place, THEIRS);
    CHECK_FAILS(send_outcome(&place, AH_MESSAGE_RECEIVED), AH_EINVAL,
                "it sent an outcome of a message that it does not have");
    CHECK_OK(ah_replica_scan(&place.replica, false, &more));
    CHECK_OK(send_outcome(&place, AH_MESSAGE_EMPTY));
    CHECK(atomic_load(&header->state) == AH_MESSAGE_EMPTY);
    CHECK_OK(send_outcome(&place, AH_MESSAGE_RECEIVED));
    CHECK(atomic_load(&header->state) == AH_MESSAGE_EMPTY);
    post_header(&place, THEIRS);
    CHECK_FAILS(send_outcome(&place, AH_MESSAGE_RECEIVED), AH_EINVAL,
                "it sent an outcome of a message that it does not have");
    CHECK_OK(ah_replica_scan(&place.replica, false, &more));
    CHECK_OK(send_outcome(&place, AH_MESSAGE_RECEIVED));
    CHECK(atomic_load(&header->state) == AH_MESSAGE_RECEIVED);
    ah_control_close(place.control);
}

/* The data sent to the malicious host: the bytes of rank 0's segment. */
static size_t said_data(struct place *place, uint64_t *offset, size_t *bytes, size_t room)
{
    const struct ah_text *out = &place->replica.peer[1].out;
    struct replica_head head;
    size_t count = 0;
    for (size_t at = 0; at < out->bytes; at += sizeof head + head.bytes) {
        memcpy(&head, out->at + at, sizeof head);
        if (head.kind != REPLICA_DATA || count == room)
            continue;
        memcpy(&offset[count], out->at + at + sizeof head, sizeof *offset);
        bytes[count++] = head.bytes - sizeof *offset;
    }
    return count;
}

AH_TEST(of_a_replicated_input_the_part_stays_that_only_its_rank_reads)
{
    static const uint32_t own[][2] = {{16, 32}, {0, 16}, {48, 16}, {0, 64}, {0, 0}};
    static const size_t said[][4] = {{1000, 16, 1048, 16}, {1016, 48}, {1000, 48}, {0}, {1000, 64}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct place place;
        uint64_t offset[2] = {0};
        size_t bytes[2] = {0};
        bool more;
        open_place(&place);
        place.replica.peer[1].fd = 0; /* that it is there; nothing is sent */
        write_counters(&place, 1, 0);
        *ah_group_record(group_of(&place, 0), 1) = (struct ah_call_record){
            .sequence = 1, .offset = 1000, .inline_bytes = 64, .own = own[i][0], .own_bytes = own[i][1]};
        CHECK_OK(ah_replica_scan(&place.replica, false, &more));
        CHECK(said_data(&place, offset, bytes, 2) == (size_t)!!said[i][1] + !!said[i][3]);
        CHECK(offset[0] == said[i][0] && bytes[0] == said[i][1]);
        CHECK(offset[1] == said[i][2] && bytes[1] == said[i][3]);
        free(place.replica.peer[1].out.at);
        ah_control_close(place.control);
    }
}

static int send_byte(struct place *place, uint64_t offset)
{
    unsigned char body[sizeof offset + 1] = {0};
    memcpy(body, &offset, sizeof offset);
    return send_frame(place, REPLICA_DATA, THEIRS, body, sizeof body);
}

AH_TEST(data_uses_no_more_memory_than_there_is_room_for_whatever_offsets_it_names)
{
    struct place place;
    open_place(&place);
    place.replica.room = 4 * REPLICA_BLOCK;
    for (uint64_t i = 0; i < 4; i++)
        CHECK_OK(send_byte(&place, i * ((uint64_t)1 << 30) + i));
    CHECK(place.replica.room == 0);
    CHECK_FAILS(send_byte(&place, (uint64_t)5 << 30), AH_EINVAL,
                "it sent data for more than half of this host's memory");
    /* Blocks that are held already can be written again. */
    CHECK_OK(send_byte(&place, ((uint64_t)3 << 30) + REPLICA_BLOCK - 1));
    CHECK_FAILS(send_byte(&place, ((uint64_t)3 << 30) + REPLICA_BLOCK), AH_EINVAL, "it sent data for more than half");
    free(place.replica.held[THEIRS]);
    ah_control_close(place.control);
}
