/* Fuzz target: the frames of another host's mirror. Each is kind, channel, rank and its length, one byte each but two
 * for the length, then the bytes; a receiver that has the head checks nothing else before it hands both over.
 * sources: host/comm/mirror_take.c host/comm/board.c host/comm/channel.c host/base/dtype.c host/base/half.c
 * sources: host/base/status.c host/base/time.c host/base/pulse.c host/base/nearest.c */
#include <stdlib.h>
#include <string.h>

#include "comm/mirror_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { RANKS = 4 };

/* Two hosts of two ranks; this one is the first. */
static const struct ah_hosts hosts = {.count = 2, .first = {0, 2, RANKS}, .name = {"here", "there"}};

static struct ah_board *make_board(void)
{
    struct ah_board *board;
    if (ah_board_create(&board, RANKS) < 0 || ah_board_map_segments(board) < 0)
        abort();
    ah_board_place(board, &hosts);
    return board;
}

/* What is left behind must be what any frame may leave: nothing about own ranks but verdicts on letters. */
static void check(struct ah_board *board)
{
    for (int r = 0; r < 2; r++) {
        struct ah_board_slot *slot = ah_board_slot(board, r);
        if (atomic_load(&slot->state) != AH_RANK_RUNNING || atomic_load(&slot->group_status) || slot->text[0])
            abort();
    }
    for (int r = 0; r < RANKS; r++)
        if (atomic_load(&ah_board_slot(board, r)->latest) < 0 ||
            atomic_load(&ah_board_slot(board, r)->latest) >= AH_BOARD_CHANNELS)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct mirror_rank rank[2];
    struct ah_mirror mirror = {.hosts = &hosts, .rank = rank};
    static struct ah_board *board;
    static unsigned inputs;
    memset(rank, 0, sizeof rank);
    /* A board takes longer to make than a frame; a rank that has ended stays so. */
    if (inputs++ % 256 == 0) {
        ah_board_close(board);
        board = make_board();
    }
    mirror.board = board;
    for (size_t at = 0; at + 5 <= count;) {
        struct mirror_head head = {.kind = bytes[at], .channel = bytes[at + 1], .rank = bytes[at + 2],
                                   .bytes = bytes[at + 3] | (uint32_t)bytes[at + 4] << 8};
        at += 5;
        if (head.bytes > count - at)
            head.bytes = (uint32_t)(count - at);
        /* In memory of its own, so that a look beyond its end is seen. */
        unsigned char *body = malloc(head.bytes ? head.bytes : 1);
        if (!body)
            abort();
        memcpy(body, bytes + at, head.bytes);
        int status = ah_mirror_take(&mirror, 1, &head, body);
        at += head.bytes;
        free(body);
        if (status < 0)
            break;
    }
    check(board);
    return 0;
}
