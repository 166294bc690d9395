/* Counts the requests for memory and lets the chosen ones fail. The count is one atomic number, so that a run with one
 * thread fails at the same place each time; with several threads it fails somewhere near. */
#include "faults/fail_alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include <lua.h>

#undef malloc
#undef calloc
#undef realloc
#undef aligned_alloc
#undef strdup
#undef strndup
#undef vasprintf
#undef asprintf
#undef posix_memalign
#undef mmap
#undef memfd_create
#undef luaL_newstate
#undef pthread_create

enum { MOST_REPORTED = 1000 };

static atomic_long requests;
static bool of_lua;
static long first = LONG_MAX, last = LONG_MAX; /* of the requests that fail */

/* Is this process among those that are to fail? */
static bool is_meant(void)
{
    const char *wanted = getenv("ACCELHOST_FAIL_ALLOC_RANK"), *rank = getenv("RANK");
    return !wanted || !strcmp(wanted, rank ? rank : "launcher");
}

__attribute__((constructor)) static void read_choice(void)
{
    const char *text = getenv("ACCELHOST_FAIL_ALLOC"), *of = getenv("ACCELHOST_FAIL_ALLOC_OF");
    char *end;
    of_lua = of && !strcmp(of, "lua");
    if (!text || !is_meant())
        return;
    first = strtol(text, &end, 10);
    last = *end == '+' ? LONG_MAX : first;
}

/* Append a line to the file that a variable names; by one write, since several processes do. */
static void append(const char *variable, const char *line)
{
    const char *path = getenv(variable);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    (void)!write(fd, line, strlen(line));
    close(fd);
}

__attribute__((destructor)) static void write_count(void)
{
    char line[32];
    snprintf(line, sizeof line, "%ld\n", atomic_load(&requests));
    append("ACCELHOST_COUNT_ALLOC", line);
}

static bool fails(const char *file, const char *function)
{
    char line[256];
    if (of_lua != !strcmp(file, "lua"))
        return false;
    long now = atomic_fetch_add(&requests, 1) + 1;
    if (now < first || now > last)
        return false;
    if (now < first + MOST_REPORTED) {
        snprintf(line, sizeof line, "%s: %s\n", file, function);
        append("ACCELHOST_FAILED_ALLOC", line);
    }
    errno = ENOMEM;
    return true;
}

#define FAILS fails(file, function)

void *ah_failing_malloc(const char *file, const char *function, size_t bytes)
{
    return FAILS ? NULL : malloc(bytes);
}

void *ah_failing_calloc(const char *file, const char *function, size_t count, size_t bytes)
{
    return FAILS ? NULL : calloc(count, bytes);
}

void *ah_failing_realloc(const char *file, const char *function, void *block, size_t bytes)
{
    return FAILS ? NULL : realloc(block, bytes);
}

void *ah_failing_aligned_alloc(const char *file, const char *function, size_t alignment, size_t bytes)
{
    return FAILS ? NULL : aligned_alloc(alignment, bytes);
}

char *ah_failing_strdup(const char *file, const char *function, const char *text)
{
    return FAILS ? NULL : strdup(text);
}

char *ah_failing_strndup(const char *file, const char *function, const char *text, size_t bytes)
{
    return FAILS ? NULL : strndup(text, bytes);
}

int ah_failing_vasprintf(const char *file, const char *function, char **out, const char *format, va_list args)
{
    return FAILS ? -1 : vasprintf(out, format, args);
}

int ah_failing_asprintf(const char *file, const char *function, char **out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int bytes = ah_failing_vasprintf(file, function, out, format, args);
    va_end(args);
    return bytes;
}

int ah_failing_posix_memalign(const char *file, const char *function, void **out, size_t alignment, size_t bytes)
{
    return FAILS ? ENOMEM : posix_memalign(out, alignment, bytes);
}

void *ah_failing_mmap(const char *file, const char *function, void *at, size_t bytes, int protection, int flags, int fd,
                      long offset)
{
    return FAILS ? MAP_FAILED : mmap(at, bytes, protection, flags, fd, offset);
}

int ah_failing_memfd_create(const char *file, const char *function, const char *name, unsigned flags)
{
    return FAILS ? -1 : memfd_create(name, flags);
}

int ah_failing_pthread_create(const char *file, const char *function, pthread_t *out, const pthread_attr_t *attributes,
                              void *(*run)(void *), void *context)
{
    return FAILS ? EAGAIN : pthread_create(out, attributes, run, context);
}

/* Lua assumes that a block can be made smaller. */
static void *allocate(void *context, void *block, size_t old, size_t bytes)
{
    const char *file = "lua", *function = block ? "grow" : "new";
    if (!bytes) {
        free(block);
        return NULL;
    }
    return bytes > old && FAILS ? NULL : realloc(block, bytes);
}

/* Out of all protected calls. */
static int panic(lua_State *L)
{
    fprintf(stderr, "PANIC: %s\n", lua_tostring(L, -1));
    abort();
}

struct lua_State *ah_failing_newstate(void)
{
    bool wanted = of_lua;
    of_lua = false; /* LuaJIT does not survive that its first requests fail */
    lua_State *L = lua_newstate(allocate, NULL);
    of_lua = wanted;
    if (L)
        lua_atpanic(L, panic);
    return L;
}
