/* Opening the job's control block in the presence of an obstacle: the error names it. Its notifications. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "comm/control/control_block.h"
#include "test.h"

/* A limit on address space means nothing under sanitizers, which reserve terabytes. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* Bytes of address space in use now. */
static size_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a child: open the control block with `room` bytes of address space left; 0 when it fails for want of memory and
 * reports it. */
static int open_with(int fd, size_t room, const char *text)
{
    struct ah_control_block *control;
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = mapped_bytes() + room;
    setrlimit(RLIMIT_AS, &limit);
    int status = ah_control_open(&control, fd, 0, NULL);
    if (status == AH_ENOMEM && strstr(ah_error_text(), text))
        return 0;
    fprintf(stderr, "status %d: %s\n", status, ah_error_text());
    return 1;
}

static int in_child(int fd, size_t room, const char *text)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(open_with(fd, room, text));
    waitpid(pid, &status, 0);
    return status;
}

AH_TEST(a_control_block_that_cannot_be_mapped_is_not_called_a_foreign_one)
{
    struct ah_control_block *control;
    REQUIRE(ah_control_create(&control, 8) == 0);
    int fd = ah_control_hand_over(control);
    CHECK(in_child(fd, 256 * 1024, "cannot map the job's control block: ") == 0);
    CHECK(in_child(fd, 64 << 20, "cannot reserve address space for 8 ranks: ") == 0);
    ah_control_close(control);
}

#endif

AH_TEST(segments_are_no_multiple_of_a_large_power_of_two_apart)
{
    struct ah_control_block *control;
    REQUIRE(ah_control_create(&control, 32) == 0);
    REQUIRE(ah_control_map_segments(control) == 0);
    for (int a = 0; a < 32; a++)
        for (int b = a + 1; b < 32; b++)
            CHECK((control->segment[b] - control->segment[a]) % (1 << 28) != 0);
    ah_control_close(control);
}

AH_TEST(what_is_no_control_block_is_refused)
{
    struct ah_control_block *control;
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    for (int i = 0; i < 100000; i++)
        fputs("something else\n", file);
    fflush(file);
    CHECK_FAILS(ah_control_open(&control, fileno(file), 0, NULL), AH_EIO, "is not the control block of a running job");
    fclose(file);
}

/* Is the sleeper woken, by nothing but notifications? */
static bool block_wakes(struct ah_notification *notification)
{
    int status = -1;
    uint32_t seen = atomic_load(&notification->changes);
    pid_t pid = fork();
    if (pid == 0) {
        int64_t begin = ah_now_ns();
        ah_notification_sleep(notification, seen, 200000000);
        _exit(ah_now_ns() - begin < 150000000);
    }
    while (!atomic_load(&notification->sleepers))
        usleep(100);
    usleep(20000);
    ah_notification_notify(notification);
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status) == 1;
}

AH_TEST(a_notification_wakes_its_reader_unless_a_rank_that_waits_attends_to_it)
{
    struct ah_control_block *control;
    uint32_t visits = 0;
    REQUIRE(ah_control_create(&control, 1) == 0);
    struct ah_notification *notification = &control->header->notification[AH_REPLICA];
    CHECK(block_wakes(notification));
    CHECK(!ah_notification_nap(notification, &visits));
    ah_notification_attend(notification);
    CHECK(!block_wakes(notification));
    CHECK(ah_notification_nap(notification, &visits));
    CHECK(!ah_notification_nap(notification, &visits)); /* nothing has arrived since */
    CHECK(block_wakes(notification));
    ah_notification_attend(notification);
    ah_notification_leave(notification);
    CHECK(block_wakes(notification) && !ah_notification_nap(notification, &visits));
    ah_control_close(control);
}

/* A thread that reads notifications as the replica's does. */
struct reader {
    struct ah_notification *notification;
    atomic_uint read;
    atomic_bool ending;
};

static void *read_notification(void *context)
{
    struct reader *reader = context;
    uint32_t visits = 0;
    while (!atomic_load(&reader->ending)) {
        uint32_t seen = atomic_load(&reader->notification->changes);
        atomic_store(&reader->read, seen);
        if (!ah_notification_nap(reader->notification, &visits))
            ah_notification_sleep(reader->notification, seen, INT64_C(20000000000));
    }
    return NULL;
}

static bool is_read(struct reader *reader)
{
    for (int i = 0; i < 10000 && atomic_load(&reader->read) != atomic_load(&reader->notification->changes); i++)
        usleep(1000);
    return atomic_load(&reader->read) == atomic_load(&reader->notification->changes);
}

AH_TEST(a_thread_that_slept_when_a_rank_arrived_reads_what_follows_its_last_poll)
{
    struct ah_control_block *control;
    pthread_t thread;
    REQUIRE(ah_control_create(&control, 1) == 0);
    struct reader reader = {.notification = &control->header->notification[AH_REPLICA]};
    REQUIRE(pthread_create(&thread, NULL, read_notification, &reader) == 0);
    for (int leaves = 0; leaves < 2; leaves++) {
        while (!atomic_load(&reader.notification->sleepers))
            usleep(100);
        usleep(20000);
        ah_notification_attend(reader.notification);
        ah_notification_notify(reader.notification);
        if (leaves)
            ah_notification_leave(reader.notification);
        CHECK(is_read(&reader));
    }
    atomic_store(&reader.ending, true);
    ah_notification_leave(reader.notification);
    ah_notification_notify(reader.notification);
    pthread_join(thread, NULL);
    ah_control_close(control);
}

AH_TEST(a_rank_whose_group_has_just_begun_has_made_no_call_there)
{
    struct ah_control_block *control;
    uint32_t sequence = 0;
    REQUIRE(ah_control_create(&control, 1) == 0);
    struct ah_group_block *block = &ah_rank_entry(control, 0)->block[0];
    atomic_store(&block->counter[AH_ISSUED], 3);
    CHECK(ah_control_last_call(control, 0, &sequence) && sequence == 3);
    for (uint32_t base = 3; base < 6; base++) {
        atomic_store(&block->base, base);
        CHECK(!ah_control_last_call(control, 0, &sequence));
    }
    ah_control_close(control);
}
