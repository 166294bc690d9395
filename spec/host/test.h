/* C self-tests: AH_TEST(name) { ... CHECK(x) ... } anywhere under spec/host; build/selftest [pattern] runs them. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status/status.h"

struct test_case {
    const char *name;
    const char *file;
    void (*run)(void);
    struct test_case *next;
};

void test_register(struct test_case *test);
/* A time limit in seconds, times $ACCELHOST_TEST_SLOWNESS as for specs: longer under a sanitizer or an emulator. */
unsigned test_limit(unsigned seconds);
void test_failed(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define AH_TEST(id)                                                                   \
    static void id(void);                                                             \
    __attribute__((constructor)) static void register_##id(void)                      \
    {                                                                                 \
        static struct test_case test = {#id, __FILE__, id, 0};                        \
        test_register(&test);                                                         \
    }                                                                                 \
    static void id(void)

/* Each failed check is reported; the test continues, except after REQUIRE. */
#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition))                                                             \
            test_failed(__FILE__, __LINE__, "expected: %s", #condition);              \
    } while (0)
#define REQUIRE(condition)                                                            \
    do {                                                                              \
        if (!(condition)) {                                                           \
            test_failed(__FILE__, __LINE__, "expected: %s", #condition);              \
            return;                                                                   \
        }                                                                             \
    } while (0)
#define CHECK_OK(call)                                                                \
    do {                                                                              \
        if ((call) < 0)                                                               \
            test_failed(__FILE__, __LINE__, "%s failed: %s", #call, ah_error_text()); \
    } while (0)
#define CHECK_NEAR(a, b, tolerance)                                                   \
    do {                                                                              \
        double check_a = (a), check_b = (b);                                          \
        if (!(fabs(check_a - check_b) <= (tolerance)))                                \
            test_failed(__FILE__, __LINE__, "%s = %.17g, expected %.17g", #a, check_a, check_b); \
    } while (0)
#define CHECK_FAILS(call, code, text_part)                                            \
    do {                                                                              \
        int check_status = (call);                                                    \
        if (check_status != (code) || !strstr(ah_error_text(), (text_part)))          \
            test_failed(__FILE__, __LINE__, "%s returned %d \"%s\"", #call, check_status, ah_error_text()); \
    } while (0)
