/* Fuzz target: the frames of another host's replica. Each is kind, group block, rank and its length, one byte each but
 * two for the length, then the bytes. Where the first byte of the input is odd they come as a stream, in pieces of that
 * length, some with false headers; else each by itself. Then this host's own notifications are sent, and all that a
 * rank would read is read.
 * sources: host/comm/net/replica_apply.c host/comm/net/replica_scan.c host/comm/control/control_block.c
 * sources: host/comm/control/replay_log.c host/comm/control/group_block.c host/comm/control/collective.c
 * sources: host/base/memory/array.c host/base/numeric/dtype.c host/base/process/entropy.c host/base/numeric/half.c
 * sources: host/base/status/status.c host/base/trace/time.c
 * sources: host/base/trace/counters.c host/base/status/nearest.c */
#include "comm/net/replica.c"

#include <fcntl.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { RANKS = 4, ROOM = 16 << 20 };

/* Two hosts of two ranks; this one is the first. */
static const struct ah_hosts hosts = {.count = 2, .first = {0, 2, RANKS}, .name = {"here", "there"}};

static struct ah_control_block *make_control(void)
{
    struct ah_control_block *control;
    if (ah_control_create(&control, RANKS) < 0 || ah_control_map_segments(control) < 0)
        abort();
    ah_control_place(control, &hosts);
    /* Rank 0 is in a group with all, and has messages for ranks of the other host. */
    struct ah_group_block *mine = &ah_rank_entry(control, 0)->block[0];
    atomic_store(&mine->members[0], (1u << RANKS) - 1);
    atomic_store(&mine->counter[AH_SENT], 2);
    for (int i = 0; i < 2; i++) {
        mine->header[i].offset = AH_NO_OFFSET;
        atomic_store(&mine->header[i].member, 2 + i);
        atomic_store(&mine->header[i].state, AH_MESSAGE_POSTED);
    }
    return control;
}

/* Check that frames have changed nothing about own ranks but outcomes on message headers. */
static void check(struct ah_control_block *control)
{
    for (int r = 0; r < 2; r++) {
        struct ah_rank_entry *slot = ah_rank_entry(control, r);
        if (atomic_load(&slot->state) != AH_RANK_RUNNING || atomic_load(&slot->group_status) || slot->text[0])
            abort();
    }
    for (int r = 0; r < RANKS; r++)
        if (atomic_load(&ah_rank_entry(control, r)->latest) < 0 ||
            atomic_load(&ah_rank_entry(control, r)->latest) >= AH_MAX_GROUPS)
            abort();
}

int ah_mesh_open(const struct ah_hosts *all, const char *purpose, int64_t timeout_ns, int fd[AH_HOSTS_MAX])
{
    (void)all, (void)purpose, (void)timeout_ns, (void)fd;
    abort();
}

/* The next frame of the input; 0: there is none. */
static size_t next_frame(const uint8_t *bytes, size_t count, size_t at, struct replica_head *head)
{
    if (at + 5 > count)
        return 0;
    *head = (struct replica_head){.kind = bytes[at], .block = bytes[at + 1], .rank = bytes[at + 2],
                                 .bytes = bytes[at + 3] | (uint32_t)bytes[at + 4] << 8};
    if (head->bytes > count - at - 5)
        head->bytes = (uint32_t)(count - at - 5);
    return at + 5;
}

/* In separate memory, so that a read beyond its end is seen. */
static int take_one(struct ah_replica *replica, const struct replica_head *head, const uint8_t *bytes)
{
    unsigned char *body = malloc(head->bytes ? head->bytes : 1);
    if (!body)
        abort();
    memcpy(body, bytes, head->bytes);
    int status = ah_replica_apply(replica, 1, head, body);
    free(body);
    return status;
}

static int take_stream(struct ah_replica *replica, struct replica_head head, const uint8_t *bytes, size_t piece)
{
    struct replica_peer *peer = &replica->peer[1];
    unsigned char frame[sizeof head + UINT16_MAX];
    size_t all = sizeof head + head.bytes;
    memcpy(frame + sizeof head, bytes, head.bytes);
    if (head.kind & 0x80)
        head.bytes = (head.bytes + 1) * 2654435761u;
    head.kind &= 0x7f;
    memcpy(frame, &head, sizeof head);
    for (size_t at = 0, n; at < all; at += n) {
        n = all - at < piece ? all - at : piece;
        if (n > 2 * REPLICA_MOST - peer->got)
            abort(); /* no frame may fill the buffer and not be accepted */
        memcpy(peer->in + peer->got, frame + at, n);
        peer->got += n;
        if (apply_frames(replica, 1) < 0)
            return -1;
    }
    return 0;
}

/* Read the data that ranks of this host read of those of the other. */
static void read_all(struct ah_control_block *control, unsigned blocks)
{
    char text[256];
    volatile unsigned char sum = 0;
    for (int r = 2; r < RANKS; r++) {
        uint32_t number;
        const struct ah_call_record *last = ah_control_last_call(control, r, &number);
        if (last)
            ah_call_record_describe(last, text, sizeof text);
        for (int c = 0; c < AH_MAX_GROUPS; c++) {
            struct ah_group_block *block = &ah_rank_entry(control, r)->block[c];
            if (!(blocks >> c & 1))
                continue;
            for (int i = 0; i < AH_GROUP_CALLS; i++) {
                const struct ah_call_record *record = &block->record[i];
                sum += control->segment[r][record->offset];
                sum += record->inline_bytes ? control->segment[r][record->offset + AH_STAGE_BYTES - 1]
                                            : strlen(record->where);
            }
            for (int i = 0; i < AH_GROUP_MESSAGES; i++) {
                const struct ah_message_header *header = &block->header[i];
                if (header->count && header->offset != AH_NO_OFFSET)
                    sum += control->segment[r][header->offset + (uint64_t)header->count *
                                                 ah_dtype_size((enum ah_dtype)header->dtype) - 1];
            }
            sum += control->segment[r][atomic_load(&block->address) + 2 * AH_STAGE_BYTES - 1];
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct replica_rank rank[2];
    static struct ah_replica replica = {.hosts = &hosts, .losing = PTHREAD_MUTEX_INITIALIZER};
    static struct ah_control_block *control;
    static unsigned inputs;
    static int nowhere = -1;
    if (nowhere < 0)
        nowhere = open("/dev/null", O_RDWR);
    memset(rank, 0, sizeof rank);
    /* A control block is slower to make than a frame; a rank that has ended stays so. */
    if (inputs++ % 256 == 0) {
        ah_control_close(control);
        control = make_control();
        for (int r = 0; r < RANKS; r++) {
            free(replica.held[r]);
            replica.held[r] = NULL;
        }
        replica.room = ROOM;
    }
    replica.control = control;
    replica.rank = rank;
    replica.peer[0].fd = -1;
    replica.peer[1] = (struct replica_peer){.fd = nowhere, .in = malloc(2 * REPLICA_MOST)};
    struct replica_head head;
    unsigned blocks = 0; /* that frames are about */
    int status = replica.peer[1].in ? 0 : -1;
    for (size_t at = count ? 1 : 0; status == 0 && (at = next_frame(bytes, count, at, &head)); at += head.bytes) {
        blocks |= head.block < AH_MAX_GROUPS ? 1u << head.block : 0;
        status =
            bytes[0] & 1 ? take_stream(&replica, head, bytes + at, bytes[0]) : take_one(&replica, &head, bytes + at);
    }
    check(control);
    bool more;
    ah_replica_scan(&replica, true, &more);
    read_all(control, blocks);
    free(replica.peer[1].in);
    free(replica.peer[1].out.at);
    return 0;
}
