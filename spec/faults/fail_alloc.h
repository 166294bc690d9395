/* Deliberate failures of memory requests: included before every source file of a build made with FAIL_ALLOC=1.
 *
 * ACCELHOST_FAIL_ALLOC=n lets the n-th request of the process for memory or for a thread fail, n+ that one and all
 * after it; requests of other libraries are not counted. ACCELHOST_FAIL_ALLOC_OF=lua counts the requests of Lua states
 * instead. ACCELHOST_FAIL_ALLOC_RANK=r does so in rank r only, "launcher" in no rank.
 * ACCELHOST_FAILED_ALLOC=FILE appends a line for each request that failed, "PATH: FUNCTION",
 * and ACCELHOST_COUNT_ALLOC=FILE the number of requests at the end. Any thread.
 *
 * The system's headers are read first, so that the names below replace calls and no declarations. */
#pragma once

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h> /* declares posix_memalign too */
#endif

void *ah_failing_malloc(const char *file, const char *function, size_t bytes);
void *ah_failing_calloc(const char *file, const char *function, size_t count, size_t bytes);
void *ah_failing_realloc(const char *file, const char *function, void *block, size_t bytes);
void *ah_failing_aligned_alloc(const char *file, const char *function, size_t alignment, size_t bytes);
char *ah_failing_strdup(const char *file, const char *function, const char *text);
char *ah_failing_strndup(const char *file, const char *function, const char *text, size_t bytes);
int ah_failing_vasprintf(const char *file, const char *function, char **out, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));
int ah_failing_asprintf(const char *file, const char *function, char **out, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int ah_failing_posix_memalign(const char *file, const char *function, void **out, size_t alignment, size_t bytes);
void *ah_failing_mmap(const char *file, const char *function, void *at, size_t bytes, int protection, int flags, int fd,
                      long offset);
int ah_failing_memfd_create(const char *file, const char *function, const char *name, unsigned flags);
int ah_failing_pthread_create(const char *file, const char *function, pthread_t *out, const pthread_attr_t *attributes,
                              void *(*run)(void *), void *context);
struct lua_State *ah_failing_newstate(void);

#undef strdup
#undef strndup
#define malloc(...) ah_failing_malloc(__FILE__, __func__, __VA_ARGS__)
#define calloc(...) ah_failing_calloc(__FILE__, __func__, __VA_ARGS__)
#define realloc(...) ah_failing_realloc(__FILE__, __func__, __VA_ARGS__)
#define aligned_alloc(...) ah_failing_aligned_alloc(__FILE__, __func__, __VA_ARGS__)
#define strdup(...) ah_failing_strdup(__FILE__, __func__, __VA_ARGS__)
#define strndup(...) ah_failing_strndup(__FILE__, __func__, __VA_ARGS__)
#define vasprintf(...) ah_failing_vasprintf(__FILE__, __func__, __VA_ARGS__)
#define asprintf(...) ah_failing_asprintf(__FILE__, __func__, __VA_ARGS__)
#define posix_memalign(...) ah_failing_posix_memalign(__FILE__, __func__, __VA_ARGS__)
#define mmap(...) ah_failing_mmap(__FILE__, __func__, __VA_ARGS__)
#define memfd_create(...) ah_failing_memfd_create(__FILE__, __func__, __VA_ARGS__)
#define luaL_newstate() ah_failing_newstate()
#define pthread_create(...) ah_failing_pthread_create(__FILE__, __func__, __VA_ARGS__)
