/* Merging the output of ranks, with a clock of the test. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/output/launch_output.h"
#include "test.h"

static const int64_t ms = 1000000;

struct rig {
    struct ah_output *output;
    int pipe[2];
    char seen[65536];
};

static bool rig_open(struct rig *rig, int ranks, bool terminal)
{
    memset(rig, 0, sizeof *rig);
    return !pipe2(rig->pipe, O_NONBLOCK) &&
           !ah_output_open(&rig->output, (int[]){rig->pipe[1], -1}, (bool[]){terminal, false}, ranks);
}

/* Return the output since the last poll. */
static const char *output_look(struct rig *rig)
{
    ssize_t n = read(rig->pipe[0], rig->seen, sizeof rig->seen - 1);
    rig->seen[n > 0 ? n : 0] = 0;
    return rig->seen;
}

static void rig_close(struct rig *rig)
{
    ah_output_finish(rig->output);
    ah_output_close(rig->output);
    close(rig->pipe[0]);
    close(rig->pipe[1]);
}

static void output_feed(struct rig *rig, int rank, const char *text, int64_t now)
{
    ah_output_feed(rig->output, 0, rank, text, strlen(text), now);
}

AH_TEST(a_line_waits_for_the_other_ranks)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 3, false));
    output_feed(&rig, 1, "same\n", 0);
    CHECK(ah_output_flush(rig.output, 0) == 50 * ms);
    output_feed(&rig, 0, "same\n", 10 * ms);
    CHECK(ah_output_flush(rig.output, 10 * ms) == 50 * ms && !strcmp(output_look(&rig), ""));
    output_feed(&rig, 2, "same\n", 20 * ms);
    CHECK(ah_output_flush(rig.output, 20 * ms) == -1 && !strcmp(output_look(&rig), "[r0-r2] same\n"));
    rig_close(&rig);
}

AH_TEST(a_line_waits_no_longer_than_50_ms)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 4, false));
    output_feed(&rig, 0, "a\n", 0);
    output_feed(&rig, 2, "b\n", 1 * ms);
    output_feed(&rig, 3, "b\n", 2 * ms);
    CHECK(ah_output_flush(rig.output, 50 * ms) == 51 * ms && !strcmp(output_look(&rig), "a\n"));
    CHECK(ah_output_flush(rig.output, 51 * ms) == -1 && !strcmp(output_look(&rig), "[r2-r3] b\n"));
    output_feed(&rig, 0, "c\n", 60 * ms);
    output_feed(&rig, 3, "c\n", 60 * ms);
    ah_output_flush(rig.output, 110 * ms);
    CHECK(!strcmp(output_look(&rig), "[r0,r3] c\n"));
    rig_close(&rig);
}

AH_TEST(ended_ranks_are_not_waited_for)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 3, false));
    output_feed(&rig, 0, "x\n", 0);
    output_feed(&rig, 1, "x\n", 0);
    ah_output_end(rig.output, 0, 0, 0);
    ah_output_end(rig.output, 0, 1, 0);
    CHECK(ah_output_flush(rig.output, 1 * ms) == 50 * ms); /* rank 2 may still print it */
    ah_output_end(rig.output, 0, 2, 2 * ms);
    CHECK(ah_output_flush(rig.output, 2 * ms) == -1 && !strcmp(output_look(&rig), "[r0-r1] x\n"));
    rig_close(&rig);
}

AH_TEST(the_order_of_a_rank_is_kept)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 2, false));
    /* Rank 1 prints b before a: it cannot join rank 0's a without turning its own order round. */
    output_feed(&rig, 0, "a\nb\n", 0);
    output_feed(&rig, 1, "b\na\n", 0);
    ah_output_flush(rig.output, 60 * ms);
    CHECK(!strcmp(output_look(&rig), "a\n[r0-r1] b\n[r1] a\n"));
    rig_close(&rig);
}

AH_TEST(pieces_become_whole_lines)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 2, false));
    output_feed(&rig, 0, "one", 0);
    output_feed(&rig, 1, "two", 0);
    output_feed(&rig, 0, " line\n", 0);
    output_feed(&rig, 1, " lines\nrest", 0);
    ah_output_end(rig.output, 0, 1, 0);
    ah_output_flush(rig.output, 60 * ms);
    CHECK(!strcmp(output_look(&rig), "one line\n[r1] two lines\n[r1] rest\n"));
    rig_close(&rig);
}

AH_TEST(bytes_pass_as_they_are_but_on_a_terminal)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 2, false));
    output_feed(&rig, 0, "10%\r20%\r\nno end", 0);
    ah_output_end(rig.output, 0, 0, 0);
    ah_output_finish(rig.output);
    CHECK(!strcmp(output_look(&rig), "10%\r20%\r\nno end")); /* and no newline that was not written */
    rig_close(&rig);
    REQUIRE(rig_open(&rig, 2, true));
    output_feed(&rig, 1, "10%\r20%\r", 0);
    output_feed(&rig, 1, "100%\r\n", 0);
    ah_output_flush(rig.output, 60 * ms);
    CHECK(!strcmp(output_look(&rig), "[r1] 100%\n"));
    rig_close(&rig);
}

AH_TEST(an_unfinished_line_shows_after_a_second)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 3, false));
    output_feed(&rig, 1, "working", 0);
    CHECK(ah_output_flush(rig.output, 0) == 1000 * ms && !strcmp(output_look(&rig), ""));
    CHECK(ah_output_flush(rig.output, 1000 * ms) == -1 && !strcmp(output_look(&rig), "[r1] working"));
    output_feed(&rig, 1, " on", 1100 * ms);
    output_feed(&rig, 1, " it\n", 1200 * ms);
    ah_output_flush(rig.output, 1200 * ms);
    CHECK(!strcmp(output_look(&rig), " on it\n"));
    output_feed(&rig, 0, "a", 2000 * ms);
    ah_output_flush(rig.output, 3000 * ms);
    output_feed(&rig, 1, "other\n", 3001 * ms); /* breaks the line of rank 0 */
    ah_output_flush(rig.output, 3100 * ms);
    output_feed(&rig, 0, "b\n", 3200 * ms);
    ah_output_flush(rig.output, 3300 * ms);
    CHECK(!strcmp(output_look(&rig), "a\n[r1] other\nb\n"));
    rig_close(&rig);
}

AH_TEST(a_reader_that_stalls_is_not_waited_for_and_loses_nothing)
{
    struct rig rig;
    static char line[1000];
    REQUIRE(rig_open(&rig, 2, false));
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    size_t fed = 0, seen = 0;
    while (!ah_output_is_full(rig.output, 0) && fed < 100 << 20) {
        line[0] = (char)('a' + fed / sizeof line % 26); /* no two lines in a row are the same */
        ah_output_feed(rig.output, 0, 0, line, sizeof line, 0);
        ah_output_flush(rig.output, 60 * ms);
        fed += sizeof line;
    }
    CHECK(ah_output_is_full(rig.output, 0) && fed < 1 << 20);
    CHECK(ah_output_fd(rig.output, 0) >= 0);
    ah_output_finish(rig.output);
    for (const char *got; *(got = output_look(&rig)); ah_output_flush(rig.output, 60 * ms))
        seen += strlen(got);
    CHECK(seen == fed && ah_output_fd(rig.output, 0) < 0);
    rig_close(&rig);
}

AH_TEST(a_line_stays_whole_while_the_reader_stalls)
{
    struct rig rig;
    REQUIRE(!pipe2(rig.pipe, O_NONBLOCK));
    for (int streams = 1; streams <= 2; streams++) {
        const int fd[2] = {rig.pipe[1], streams == 2 ? rig.pipe[1] : -1};
        REQUIRE(!ah_output_open(&rig.output, fd, (bool[]){false, false}, 2));
        for (int n = 0; !ah_output_is_full(rig.output, 0) && n < 1 << 20; n++) {
            output_feed(&rig, 0, n % 2 ? "odd\n" : "even\n", 0);
            ah_output_flush(rig.output, 60 * ms);
        }
        ah_output_feed(rig.output, streams - 1, 1, "one", 3, 60 * ms);
        ah_output_flush(rig.output, 2000 * ms);
        for (int n = 0; *output_look(&rig); n++)
            ah_output_flush(rig.output, (2100 + n) * ms);
        output_feed(&rig, 0, "other\n", 2500 * ms);
        ah_output_feed(rig.output, streams - 1, 1, " line\n", 6, 2500 * ms);
        ah_output_finish(rig.output);
        CHECK(strstr(output_look(&rig), "other\n") && strstr(rig.seen, "[r1] one line\n"));
        ah_output_close(rig.output);
    }
    close(rig.pipe[0]);
    close(rig.pipe[1]);
}

AH_TEST(a_line_of_many_megabytes_stays_whole)
{
    struct rig rig;
    enum { LONG = 10 << 20 };
    REQUIRE(rig_open(&rig, 2, false));
    char *text = malloc(LONG);
    REQUIRE(text);
    memset(text, 'x', LONG);
    for (size_t at = 0; at < LONG; at += 65536) {
        ah_output_feed(rig.output, 0, 1, text + at, 65536, 0);
        output_feed(&rig, 0, "between\n", 0);
    }
    output_feed(&rig, 1, "\n", 0);
    ah_output_finish(rig.output);
    size_t marks = 0, bytes = 0;
    for (const char *got; *(got = output_look(&rig)); ah_output_flush(rig.output, 60 * ms)) {
        bytes += strlen(got);
        for (const char *c = got; (c = strchr(c, '[')) != NULL; c++)
            marks++;
    }
    CHECK(marks == 1 && bytes == LONG + 6 + LONG / 65536 * 8);
    free(text);
    rig_close(&rig);
}

AH_TEST(a_progress_line_stays_below_the_others_on_a_terminal)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 2, true));
    output_feed(&rig, 0, "10%\r", 0);
    CHECK(!strcmp(output_look(&rig), "10%"));
    output_feed(&rig, 0, "20%\r", 0);
    CHECK(!strcmp(output_look(&rig), "\r\033[K20%"));
    output_feed(&rig, 1, "hidden\rnews\n", 0);
    ah_output_flush(rig.output, 60 * ms);
    CHECK(!strcmp(output_look(&rig), "\r\033[K[r1] news\n20%"));
    output_feed(&rig, 0, "done\n", 60 * ms);
    CHECK(!strcmp(output_look(&rig), "\r\033[K"));
    ah_output_flush(rig.output, 120 * ms);
    CHECK(!strcmp(output_look(&rig), "done\n"));
    rig_close(&rig);
}

AH_TEST(a_closed_reader_is_noticed)
{
    struct rig rig;
    REQUIRE(rig_open(&rig, 1, false));
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    close(rig.pipe[0]);
    output_feed(&rig, 0, "text\n", 0);
    CHECK(ah_output_error(rig.output) == 0);
    ah_output_flush(rig.output, 60 * ms);
    CHECK(ah_output_error(rig.output) == EPIPE);
    rig.pipe[0] = open("/dev/null", O_RDONLY);
    rig_close(&rig);
    signal(SIGPIPE, before);
}
