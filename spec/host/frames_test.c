/* Messages over a socket: in parts, out of range, cut off. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io/frames.h"
#include "base/status/status.h"
#include "test.h"

AH_TEST(frames_arrive_whole_however_their_bytes_arrive)
{
    int ends[2];
    char *bytes = NULL, sent[] = {3, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0, 0, 1, 0, 0, 0, 'd'};
    size_t count = 0;
    struct ah_frames *frames = NULL;
    REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_OK(ah_frames_open(&frames, ends[0]));
    for (size_t i = 0; i < sizeof sent; i++) {
        CHECK(write(ends[1], sent + i, 1) == 1);
        CHECK_OK(ah_frames_pull(frames));
        if (i == 6) {
            REQUIRE(ah_frames_take(frames, &bytes, &count));
            CHECK(count == 3 && !memcmp(bytes, "abc", 3));
            free(bytes);
        }
    }
    REQUIRE(ah_frames_take(frames, &bytes, &count));
    CHECK(count == 0);
    free(bytes);
    REQUIRE(ah_frames_take(frames, &bytes, &count));
    CHECK(count == 1 && *bytes == 'd');
    free(bytes);
    CHECK(!ah_frames_take(frames, &bytes, &count));
    ah_frames_close(frames);
    close(ends[1]);
}

AH_TEST(frames_of_a_side_that_has_gone)
{
    int ends[2];
    char *bytes = NULL;
    size_t count = 0;
    struct ah_frames *frames = NULL;
    REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_OK(ah_frames_open(&frames, ends[0]));
    CHECK(write(ends[1], "\1\0\0\0x\5\0\0\0ab", 11) == 11);
    close(ends[1]);
    CHECK(ah_frames_pull(frames) == AH_EPEER);
    REQUIRE(ah_frames_take(frames, &bytes, &count)); /* earlier whole frames are there, a cut one is not */
    CHECK(count == 1 && *bytes == 'x');
    free(bytes);
    CHECK(!ah_frames_take(frames, &bytes, &count));
    CHECK(ah_frames_put(frames, "y", 1) == AH_EPEER && ah_frames_push(frames) == AH_EPEER);
    ah_frames_close(frames);
}

AH_TEST(frames_that_claim_too_much)
{
    int ends[2];
    struct ah_frames *frames = NULL;
    REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_OK(ah_frames_open(&frames, ends[0]));
    CHECK(write(ends[1], "\1\0\0\x10", 4) == 4);
    CHECK(ah_frames_pull(frames) == AH_EIO && strstr(ah_error_text(), "268435457 bytes"));
    CHECK(ah_frames_put(frames, "", (size_t)AH_FRAME_MOST + 1) == AH_EINVAL);
    ah_frames_close(frames);
    close(ends[1]);
}

AH_TEST(frames_wait_for_a_reader_without_waiting)
{
    enum { SIZE = 8 << 20 };
    int ends[2];
    char *sent = calloc(1, SIZE), *bytes = NULL;
    size_t count = 0;
    struct ah_frames *a = NULL, *b = NULL;
    REQUIRE(sent && !socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_OK(ah_frames_open(&a, ends[0]));
    CHECK_OK(ah_frames_open(&b, ends[1]));
    sent[SIZE - 1] = 'z';
    CHECK_OK(ah_frames_put(a, sent, SIZE));
    CHECK_OK(ah_frames_push(a));
    CHECK(ah_frames_is_unsent(a));
    for (int turn = 0; turn < 10000 && !ah_frames_take(b, &bytes, &count); turn++) {
        CHECK_OK(ah_frames_pull(b));
        CHECK_OK(ah_frames_push(a));
    }
    CHECK(count == SIZE && bytes[SIZE - 1] == 'z' && !ah_frames_is_unsent(a));
    free(bytes);
    free(sent);
    ah_frames_close(a);
    ah_frames_close(b);
}
