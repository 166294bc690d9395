/* Live recovery among forked ranks: a loop whose result is known to the bit, and calls that a rank may not make. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/control/replay_log.h"
#include "comm/recover/recover.h"
#include "recover_scene.h"

enum { WIDTH = 3000, PLACES = 10 };

/* The state of a rank: its own, and that which is the same on all. */
struct model {
    double seen;
    uint32_t draw;
    float weight[WIDTH];
};

static int recover_call(struct ah_group *group, struct ah_collective what, const char *where)
{
    what.where = where;
    return ah_group_run(group, what);
}

static uint32_t recover_draw(struct model *m)
{
    return m->draw = m->draw * 1664525 + 1013904223;
}

struct share {
    int64_t begin, end;
};

static struct share share_of(int rank, int size)
{
    return (struct share){WIDTH * rank / size, WIDTH * (rank + 1) / size};
}

static int recover_boundary(struct model *m, int rank, int size, int step)
{
    void *slice;
    struct share share = share_of(rank, size);
    size_t bytes = (size_t)(share.end - share.begin) * sizeof(float);
    struct {
        double seen;
        uint32_t draw;
    } note = {m->seen, m->draw};
    AH_TRY(ah_recovery_slice(bytes, &slice));
    memcpy(slice, m->weight + share.begin, bytes);
    place(rank, step, 9);
    return ah_recovery_mark(&note, sizeof note);
}

/* The step at which it resumes. */
static int recover_resume(struct model *m, int rank, int size, int *step)
{
    int64_t at;
    const void *part;
    size_t bytes;
    if (!ah_recovery_is_due())
        return 0;
    AH_TRY(ah_recovery_find(&at));
    if (at < 0)
        return 0;
    AH_TRY(ah_recovery_note_of(rank, &part, &bytes));
    memcpy(&m->seen, part, sizeof m->seen);
    memcpy(&m->draw, (const char *)part + sizeof m->seen, sizeof m->draw);
    for (int r = 0; r < size; r++) {
        struct share share = share_of(r, size);
        AH_TRY(ah_recovery_slice_of(r, &part, &bytes));
        if (bytes != (size_t)(share.end - share.begin) * sizeof(float))
            return ah_fail(AH_EINVAL, "slice of %zu bytes", bytes);
        memcpy(m->weight + share.begin, part, bytes);
    }
    *step = (int)at;
    return ah_recovery_take();
}

static int set_up(struct ah_group *group, struct ah_group **part, struct model *m, int rank)
{
    int64_t seed = rank == 0 ? 7 : 0;
    float all[MOST], mine = (float)rank;
    place(rank, -1, 0);
    AH_TRY(recover_call(group, ah_collective_broadcast(&seed, 1, AH_I64, 0), "setup:1"));
    place(rank, -1, 1);
    for (int i = 0; i < 100; i++) /* more than the ring of posts holds */
        AH_TRY(recover_call(group, ah_collective_all_gather(all, &mine, 1, AH_F32), "setup:2"));
    place(rank, -1, 2);
    AH_TRY(ah_group_split(part, group, rank % 2, 0, "setup:3"));
    place(rank, -1, 3);
    m->draw = (uint32_t)seed + (uint32_t)rank;
    for (int i = 0; i < WIDTH; i++)
        m->weight[i] = (float)(i * seed % 11) + all[i % scene->size];
    return 0;
}

static int train_step(struct ah_group *group, struct ah_group *part, struct model *m, int rank, int step)
{
    static float grad[WIDTH], other[WIDTH];
    struct ah_work *work;
    double seen;
    uint32_t note = 0;
    place(rank, step, 1);
    for (int i = 0; i < WIDTH; i++)
        grad[i] = (float)(recover_draw(m) % 1000) / 999.0f;
    struct ah_collective mean = ah_collective_all_reduce(grad, WIDTH, AH_F32, AH_REDUCE_MEAN);
    mean.note = 1u << rank;
    mean.weight = rank + 1;
    AH_TRY(ah_group_start(group, mean, &work));
    place(rank, step, 2);
    seen = m->draw;
    AH_TRY(recover_call(part, ah_collective_all_reduce(&seen, 1, AH_F64, AH_REDUCE_SUM), "step:1"));
    place(rank, step, 3);
    AH_TRY(ah_work_wait_note(work, &note));
    if (note != (1u << scene->size) - 1)
        return ah_fail(AH_EINVAL, "notes %x", note);
    place(rank, step, 4);
    for (int i = 0; i < WIDTH; i++)
        m->weight[i] = m->weight[i] * 0.9f + grad[i];
    place(rank, step, 5);
    memcpy(other, m->weight, sizeof other);
    AH_TRY(recover_call(group, ah_collective_all_reduce(other, WIDTH, AH_F32, AH_REDUCE_MAX), "step:2"));
    m->seen += seen + other[step];
    place(rank, step, 6);
    AH_TRY(recover_call(group, ah_collective_barrier(), "step:3"));
    place(rank, step, 7);
    return 0;
}

static int run_loop(struct ah_group *group, int rank)
{
    struct ah_group *part;
    static struct model m;
    int step = 0, size = scene->size;
    AH_TRY(set_up(group, &part, &m, rank));
    if (scene->orphans && ah_rank_entry(scene->control, rank)->replaced)
        AH_TRY(recover_call(group, ah_collective_barrier(), "stray:1"));
    if (!scene->forgets)
        AH_TRY(recover_resume(&m, rank, size, &step));
    place(rank, -1, 4);
    for (; step < scene->steps; step++) {
        while (step == scene->steps - 1 && atomic_load(&scene->deaths) < scene->wanted)
            usleep(200);
        AH_TRY(recover_boundary(&m, rank, size, step));
        place(rank, step, 0);
        AH_TRY(train_step(group, part, &m, rank, step));
        place(rank, step, 8);
    }
    uint64_t sum = 0, bits;
    memcpy(&bits, &m.seen, sizeof bits);
    for (int i = 0; i < WIDTH; i++) {
        uint32_t word;
        memcpy(&word, &m.weight[i], sizeof word);
        sum = (sum ^ word) * 0x100000001b3u;
    }
    atomic_store(&scene->sum[rank], sum ^ bits);
    ah_group_close(part);
    return 0;
}

AH_TEST(a_rank_that_is_killed_anywhere_is_replaced_and_the_result_is_the_same_to_the_bit)
{
    uint64_t sum[MOST];
    for (int size = 2; size <= MOST; size += 2) {
        REQUIRE(learn(run_loop, size, STEPS, sum));
        for (int number = 0; number < 5; number++)
            CHECK(survives(run_loop, size, number % size, -1, number, sum));
        for (int number = 0; number < PLACES; number++)
            for (int step = 0; step < 3; step++)
                CHECK(survives(run_loop, size, (number + step) % size, step, number, sum));
        CHECK(survives(run_loop, size, size - 1, STEPS - 1, PLACES - 2, sum));
    }
}

/* Kills ranks at random, until there were enough deaths; the process numbers are on the control block. */
static pid_t begin_killer(int kills, unsigned seed)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    srand(seed);
    while (atomic_load(&scene->deaths) < kills) {
        usleep((useconds_t)(rand() % 6000));
        struct ah_rank_entry *slot = ah_rank_entry(scene->control, rand() % scene->size);
        int victim = atomic_load(&slot->pid);
        if (atomic_load(&slot->ended_ns))
            _exit(1);
        if (victim > 0)
            kill(victim, SIGKILL);
    }
    _exit(0);
}

AH_TEST(fifty_kills_in_a_row_change_nothing)
{
    enum { LONG = 2000, KILLS = 50 };
    uint64_t sum[MOST];
    int status;
    REQUIRE(learn(run_loop, 4, LONG, sum));
    REQUIRE(open_scene(run_loop, 4, LONG));
    scene->wanted = KILLS;
    pid_t killer = begin_killer(KILLS, 1);
    CHECK(play());
    CHECK(waitpid(killer, &status, 0) != killer || status == 0);
    CHECK(atomic_load(&scene->deaths) >= KILLS);
    CHECK(same_sums(sum));
    if (atomic_load(&scene->failures))
        fprintf(stderr, "%s\n", scene->text);
    close_scene();
}

AH_TEST(peers_wait_longer_than_their_timeout_for_a_rank_that_is_being_replaced)
{
    uint64_t sum[MOST];
    REQUIRE(learn(run_loop, 2, STEPS, sum));
    REQUIRE(open_scene(run_loop, 2, STEPS));
    scene->timeout_ns = 1000000000;
    atomic_store(&scene->slow, 1);
    atomic_store(&scene->step, 3);
    atomic_store(&scene->place, 2);
    atomic_store(&scene->victim, 1);
    CHECK(play());
    CHECK(same_sums(sum));
    close_scene();
}

/* The failure of a rank whose replacement does something else. */
static void expect_failure(bool forgets, bool orphans, const char *text)
{
    REQUIRE(open_scene(run_loop, 2, STEPS));
    scene->forgets = forgets;
    scene->orphans = orphans;
    atomic_store(&scene->step, 4);
    atomic_store(&scene->place, 3);
    atomic_store(&scene->victim, 1);
    CHECK(!play());
    CHECK(strstr(scene->text, text));
    if (!strstr(scene->text, text))
        fprintf(stderr, "%s\n", scene->text);
    close_scene();
}

AH_TEST(a_replacement_that_restores_no_state_or_calls_something_else_fails)
{
    expect_failure(true, false, "has not loaded its state: call accelerator:load_state() before the loop");
    expect_failure(false, true, "barrier at stray:1: this process replaces rank 1, which died after its first step");
}

/* A sum that is under way where the script reaches a boundary. */
static int begin_before_the_slice(struct ah_group *group, int rank)
{
    float value = (float)rank + 1, sum;
    void *slice;
    struct ah_work *work;
    AH_TRY(ah_group_start(group, ah_collective_all_reduce(&value, 1, AH_F32, AH_REDUCE_SUM), &work));
    AH_TRY(ah_recovery_slice(sizeof sum, &slice));
    sum = value;
    AH_TRY(ah_recovery_mark(NULL, 0));
    AH_TRY(ah_work_wait(work));
    return sum == 3 ? 0 : ah_fail(AH_EINVAL, "the sum is %g where the slice is written", (double)sum);
}

AH_TEST(what_was_begun_before_a_boundary_is_done_when_the_slice_is_written)
{
    REQUIRE(open_scene(begin_before_the_slice, 2, STEPS));
    CHECK(play());
    if (atomic_load(&scene->failures))
        fprintf(stderr, "%s\n", scene->text);
    close_scene();
}

/* Arguments that a rank passed before its first step are found also while it writes its position, over the boundary
 * before the last. */
AH_TEST(calls_of_set_up_are_found_whatever_a_rank_publishes_meanwhile)
{
    struct ah_call_record record = {.sequence = 1, .where = "setup:1"};
    REQUIRE(open_scene(NULL, 1, STEPS));
    struct ah_rank_entry *slot = ah_rank_entry(scene->control, 0);
    CHECK(ah_replay_add(scene->control, 0, 0, &record, &(float){1}, sizeof(float)) == 0);
    slot->replay_log.set_up[0] = slot->replay_log.boundary[1].issued[0] = 1;
    atomic_store(&slot->block[0].counter[AH_ROUND], 2);
    slot->replay_log.boundary[0] = (struct ah_boundary){0};
    const struct ah_replay_entry *kept = ah_replay_find(scene->control, 0, 0, 1);
    CHECK(kept && *(const float *)ah_replay_input(scene->control, 0, kept) == 1);
    CHECK(!ah_replay_find(scene->control, 0, 0, 2));
    close_scene();
}

static int come_by_other_calls(struct ah_group *group, int rank)
{
    AH_TRY(ah_recovery_mark(NULL, 0));
    if (rank == 0)
        AH_TRY(ah_recovery_mark(NULL, 0));
    AH_TRY(recover_call(group, ah_collective_barrier(), "a:1"));
    return rank == 0 ? 0 : ah_recovery_mark(NULL, 0);
}

static int come_by_other_steps(struct ah_group *group, int rank)
{
    for (int i = 0; i < 3; i++)
        if (rank == 0 || i == 0)
            AH_TRY(ah_recovery_mark(NULL, 0));
    return recover_call(group, ah_collective_barrier(), "a:2");
}

static int split_late(struct ah_group *group, int rank)
{
    struct ah_group *part;
    AH_TRY(ah_recovery_mark(NULL, 0));
    return ah_group_split(&part, group, 0, 0, "b:1");
}

static int send_something(struct ah_group *group, int rank)
{
    struct ah_message_request *request;
    int64_t value = 1;
    struct ah_message message = {.memory = &value, .count = 1, .dtype = AH_I64, .peer = 1 - rank, .ndim = -1,
                                 .where = "c:1"};
    return ah_group_send(group, message, false, &request);
}

static int publish_too_much(struct ah_group *group, int rank)
{
    void *slice;
    AH_TRY(ah_recovery_slice((size_t)7 << 30, &slice));
    return 0;
}

AH_TEST(what_live_recovery_cannot_do_fails_by_name)
{
    static const struct {
        int (*body)(struct ah_group *group, int rank);
        const char *text;
    } cases[] = {
        {come_by_other_calls, "rank 1 has reached step 1 by 1 collectives, rank 0 by 0: live recovery needs the same"},
        {come_by_other_steps, "rank 0 has reached step 1, and rank 1 made a collective without reaching it"},
        {split_late, "split: with live recovery groups are made before the first step, and this is after step 0"},
        {send_something, "send: messages are not kept, so there are none with live recovery (--recover live)"},
        {publish_too_much, "slice has 7516192768 bytes, of at most 6442450944"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REQUIRE(open_scene(cases[i].body, 2, STEPS));
        CHECK(!play());
        CHECK(strstr(scene->text, cases[i].text));
        if (!strstr(scene->text, cases[i].text))
            fprintf(stderr, "%s\n", scene->text);
        close_scene();
    }
}

/* Every boundary writes a note of a different length; the rank's own last two notes are stored. */
static int recover_alone(struct ah_group *group, int rank)
{
    int64_t at;
    const void *note;
    size_t bytes;
    char text[64];
    bool returned = ah_rank_entry(scene->control, 0)->replaced;
    AH_TRY(ah_recovery_find(&at));
    if (returned && at != 5)
        return ah_fail(AH_EINVAL, "resumes at %lld", (long long)at);
    if (returned) {
        AH_TRY(ah_recovery_note_of(0, &note, &bytes));
        AH_TRY(ah_recovery_take());
        if (bytes != 5 || memcmp(note, "step5", 5))
            return ah_fail(AH_EINVAL, "note of %zu bytes", bytes);
    }
    for (int i = returned ? 5 : 0; i < 9; i++) {
        snprintf(text, sizeof text, "step%d", i);
        AH_TRY(ah_recovery_mark(text, strlen(text)));
        if (ah_recovery_boundary() != i)
            return ah_fail(AH_EINVAL, "boundary %lld in step %d", (long long)ah_recovery_boundary(), i);
        place(0, i, 0);
    }
    return 0;
}

AH_TEST(a_single_rank_resumes_by_its_own_note)
{
    REQUIRE(open_scene(recover_alone, 1, STEPS));
    atomic_store(&scene->step, 5);
    atomic_store(&scene->victim, 0);
    CHECK(play());
    CHECK(atomic_load(&scene->deaths) == 1);
    if (atomic_load(&scene->failures))
        fprintf(stderr, "%s\n", scene->text);
    close_scene();
}
