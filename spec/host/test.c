#include "test.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/numeric/level.h"
#include "cli/command/command.h"

static struct test_case *tests;
static bool current_failed;

void test_register(struct test_case *test)
{
    test->next = tests;
    tests = test;
}

unsigned test_limit(unsigned seconds)
{
    const char *slowness = getenv("ACCELHOST_TEST_SLOWNESS");
    double factor = slowness ? strtod(slowness, NULL) : 1;
    return factor > 1 ? (unsigned)((double)seconds * factor) : seconds;
}

void test_failed(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    current_failed = true;
}

static double test_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Is the name one of $LEAVE_OUT, which are separated by blanks? */
static bool test_is_left_out(const char *name)
{
    const char *list = getenv("LEAVE_OUT");
    size_t length = strlen(name);
    for (const char *at = list ? strstr(list, name) : NULL; at; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

/* usage: selftest [pattern]; prints tests of a second and more with their seconds, then "N passed, N failed, N
 * skipped", and exits with 1 when any failed. */
int main(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    if (ah_level_choose() < 0) {
        fprintf(stderr, "%s\n", ah_error_text());
        return EXIT_FAILURE;
    }
    /* A rank of a job that a test has started. */
    if (argc > 1 && !strcmp(argv[1], "run"))
        return ah_cli_run(argc - 2, argv + 2);
    /* One that does not reach its start. */
    if (argc > 1 && !strcmp(argv[1], "stay-out"))
        return pause();
    for (struct test_case *test = tests; test; test = test->next) {
        if (argc > 1 && !strstr(test->name, argv[1]))
            continue;
        if (test_is_left_out(test->name)) {
            skipped++;
            continue;
        }
        current_failed = false;
        double start = test_seconds();
        test->run();
        double seconds = test_seconds() - start;
        if (seconds >= 1)
            printf("%7.1f  %s (%s)\n", seconds, test->name, test->file);
        if (current_failed)
            fprintf(stderr, "FAILED %s (%s)\n", test->name, test->file);
        *(current_failed ? &failed : &passed) += 1;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
