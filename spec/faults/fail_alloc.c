/* Counts the requests for memory and lets the chosen ones fail. The count is one atomic number, so that a run with one
 * thread fails at the same place each time; with several threads it fails somewhere near. */
#include "faults/fail_alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#undef malloc
#undef calloc
#undef realloc
#undef strdup
#undef strndup
#undef posix_memalign
#undef mmap
#undef memfd_create

static atomic_long requests;
static long chosen; /* 0: none */
static bool and_after;

__attribute__((constructor)) static void read_choice(void)
{
    const char *text = getenv("ACCELHOST_FAIL_ALLOC");
    if (!text)
        return;
    char *end;
    chosen = strtol(text, &end, 10);
    and_after = *end == '+';
}

__attribute__((destructor)) static void write_count(void)
{
    const char *path = getenv("ACCELHOST_COUNT_ALLOC");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%ld\n", atomic_load(&requests));
        fclose(file);
    }
}

static bool fails(void)
{
    long now = atomic_fetch_add(&requests, 1) + 1;
    bool failing = chosen > 0 && (now == chosen || (and_after && now > chosen));
    if (failing)
        errno = ENOMEM;
    return failing;
}

void *ah_failing_malloc(size_t bytes) { return fails() ? NULL : malloc(bytes); }

void *ah_failing_calloc(size_t count, size_t bytes) { return fails() ? NULL : calloc(count, bytes); }

void *ah_failing_realloc(void *block, size_t bytes) { return fails() ? NULL : realloc(block, bytes); }

char *ah_failing_strdup(const char *text) { return fails() ? NULL : strdup(text); }

char *ah_failing_strndup(const char *text, size_t bytes) { return fails() ? NULL : strndup(text, bytes); }

int ah_failing_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    return fails() ? ENOMEM : posix_memalign(out, alignment, bytes);
}

void *ah_failing_mmap(void *at, size_t bytes, int protection, int flags, int file, long offset)
{
    return fails() ? MAP_FAILED : mmap(at, bytes, protection, flags, file, offset);
}

int ah_failing_memfd_create(const char *name, unsigned flags) { return fails() ? -1 : memfd_create(name, flags); }
