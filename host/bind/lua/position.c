/* A signal handler may read Lua's stack only while the thread is in a C function that Lua's interpreter called: then
 * the stack does not move and lua_State has the current frame. That is so in an op (ah_entered) and in a system call,
 * unless compiled code called the C function; compiled code is recognised by its addresses, which LuaJIT reports for
 * every trace. */
#include "bind/lua/position.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/trace/counters.h"
#include "bind/library.h"
#include "bind/lua/bind.h"
#include "bind/lua/handle.h"
#include "bind/lua/spot.h"

enum { TRACES = 4096, SITE = 80, STACK = 256 * 1024, MOST_STACK = 64 << 20, FRAMES = 40 };

/* Machine code, by the number of its trace. `bytes` is set last: 0 means none. */
static struct {
    uintptr_t at;
    atomic_size_t bytes; /* relaxed loads: by a signal handler of the thread that sets it */
    char site[SITE];
} traces[TRACES];

static lua_State *position_watched;
static uintptr_t stack_end; /* main's frame: above it are no frames of ours */
static lua_State *readable; /* that the last check found at rest; NULL: none */

/* Recording the addresses of traces. Upvalues: jit.util's funcinfo and tracemc, the trace's first line. */

static void keep_trace(lua_State *L, int number)
{
    lua_Debug function;
    lua_pushvalue(L, 3);
    lua_getinfo(L, ">S", &function);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, 3);
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_call(L, 2, 1);
    lua_getfield(L, -1, "currentline");
    int line = (int)lua_tointeger(L, -1);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushinteger(L, number);
    lua_call(L, 1, 2);
    size_t bytes = lua_objlen(L, -2);
    traces[number].at = (uintptr_t)lua_tonumber(L, -1);
    snprintf(traces[number].site, SITE, "%s:%d", function.short_src, line);
    atomic_store(&traces[number].bytes, bytes);
}

/* Called by LuaJIT: "start", number, function, position; "stop", number, function; "abort", ...; "flush" */
static int on_trace(lua_State *L)
{
    const char *what = lua_tostring(L, 1);
    int number = (int)lua_tointeger(L, 2);
    if (!what)
        return 0;
    if (!strcmp(what, "flush")) {
        for (int i = 0; i < TRACES; i++)
            atomic_store(&traces[i].bytes, 0);
    } else if (!strcmp(what, "start")) {
        lua_pushvalue(L, 4);
        lua_replace(L, lua_upvalueindex(3)); /* no memory is asked for while a trace is recorded */
    } else if (!strcmp(what, "stop") && number > 0 && number < TRACES && lua_isfunction(L, 3)) {
        atomic_store(&traces[number].bytes, 0);
        keep_trace(L, number);
    }
    return 0;
}

static int position_attach(lua_State *L)
{
    lua_getglobal(L, "jit");
    lua_getfield(L, -1, "attach");
    lua_getglobal(L, "require");
    lua_pushliteral(L, "jit.util");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "funcinfo");
    lua_getfield(L, -2, "tracemc");
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, on_trace, 3);
    lua_replace(L, -2);
    lua_pushliteral(L, "trace");
    lua_call(L, 2, 0);
    return 0;
}

void ah_position_watch(lua_State *L)
{
    position_watched = L;
    stack_end = (uintptr_t)__builtin_frame_address(0);
    if (lua_cpcall(L, position_attach, NULL))
        lua_pop(L, 1); /* then compiled code has no lines */
}

/* Reading the position. */

static void position_put(char *text, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Without allocation: glibc formats %s and %d on the stack. */
static void position_put(char *text, size_t room, const char *format, ...)
{
    va_list args;
    size_t length = strlen(text);
    va_start(args, format);
    vsnprintf(text + length, room - length, format, args);
    va_end(args);
}

static const char *compiled_at(uintptr_t address)
{
    for (int i = 0; i < TRACES; i++)
        if (address - traces[i].at < atomic_load_explicit(&traces[i].bytes, memory_order_relaxed))
            return traces[i].site;
    return NULL;
}

/* Return the position of the compiled code that called the running C function; NULL if none did. Arrays on the stack
 * contain stale values: only a word that is a return address, in a position where calls store one, counts. */
__attribute__((no_sanitize("address"))) static const char *compiled_below(uintptr_t stack)
{
    uintptr_t end = stack_end - stack < STACK ? stack_end : stack + STACK;
    uintptr_t least = UINTPTR_MAX, most = 0;
    /* The stack pointer may be elsewhere: oneDNN's products use it as they like. */
    if (stack > stack_end || stack_end - stack > MOST_STACK)
        return NULL;
    for (int i = 0; i < TRACES; i++) {
        size_t bytes = atomic_load_explicit(&traces[i].bytes, memory_order_relaxed);
        if (bytes && traces[i].at < least)
            least = traces[i].at;
        if (bytes && traces[i].at + bytes > most)
            most = traces[i].at + bytes;
    }
    for (uintptr_t at = (stack & ~(uintptr_t)15) + 8; at + 8 <= end; at += 16) {
        uintptr_t word = *(const uintptr_t *)at; /* NOLINT */
        const char *site = word >= least && word < most ? compiled_at(word) : NULL;
        if (site && ah_spot_follows_call(word))
            return site;
    }
    return NULL;
}

/* Calls in which a program waits, and their arguments: F: the first argument is a descriptor, P: the second one is a
 * path. All others (memory) are left alone: Lua may be in them at any time. */
static const struct {
    long number;
    const char *name;
    char what;
} calls[] = {
    {SYS_read, "read", 'F'}, {SYS_pread64, "pread", 'F'}, {SYS_readv, "readv", 'F'}, {SYS_write, "write", 'F'},
    {SYS_pwrite64, "pwrite", 'F'}, {SYS_writev, "writev", 'F'}, {SYS_openat, "open", 'P'},
    {SYS_fsync, "fsync", 'F'}, {SYS_fdatasync, "fdatasync", 'F'}, {SYS_flock, "flock", 'F'},
    {SYS_connect, "connect", 'F'}, {SYS_accept, "accept", 'F'}, {SYS_accept4, "accept", 'F'},
    {SYS_recvfrom, "recv", 'F'}, {SYS_recvmsg, "recv", 'F'}, {SYS_sendto, "send", 'F'}, {SYS_sendmsg, "send", 'F'},
    {SYS_wait4, "for a program", 0}, {SYS_waitid, "for a program", 0}, {SYS_futex, "for a lock", 0},
    {SYS_ppoll, "poll", 0}, {SYS_pselect6, "select", 0}, {SYS_epoll_pwait, "epoll", 0},
    {SYS_clock_nanosleep, "sleep", 0}, {SYS_nanosleep, "sleep", 0},
#if defined(SYS_poll)
    {SYS_poll, "poll", 0}, {SYS_select, "select", 0}, {SYS_pause, "pause", 0}, {SYS_epoll_wait, "epoll", 0},
    {SYS_open, "open", 0},
#endif
};

static void put_call(char *text, size_t room, const struct ah_spot *spot, int i)
{
    char path[32], target[96];
    position_put(text, room, "%s%s", strncmp(calls[i].name, "for ", 4) == 0 ? "" : "in ", calls[i].name);
    if (calls[i].what == 'P')
        position_put(text, room, " of '%.90s'", (const char *)spot->argument[1]); /* NOLINT: the kernel has read it */
    if (calls[i].what != 'F')
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", (int)spot->argument[0]);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    position_put(text, room, n > 0 ? " of '%s'" : " of a closed file%s", target);
}

/* "waits in read of '/x'"; false for a call that is left alone. */
static bool put_wait(char *text, size_t room, const struct ah_spot *spot)
{
    position_put(text, room, "waits ");
    if (spot->call < 0) {
        position_put(text, room, "in a system call");
        return true;
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (calls[i].number == spot->call) {
            put_call(text, room, spot, (int)i);
            return true;
        }
    text[0] = 0;
    return false;
}

const char *ah_position_line(lua_State *L, char *text, size_t room)
{
    snprintf(text, room, "runs at %s", ah_call_site(L));
    return text;
}

const char *ah_position_find(const void *context, char *text, size_t room)
{
    struct ah_spot spot = ah_spot_of(context);
    const char *site = compiled_at(spot.code);
    int op = atomic_load(&ah_counters->op), node = atomic_load(&ah_counters->node);
    bool meets = atomic_load(&ah_counters->waits);
    lua_State *L = ah_entered() ? ah_entered() : meets ? position_watched : NULL;
    readable = NULL;
    text[0] = 0;
    if (site) {
        position_put(text, room, "runs in compiled code at %s", site);
        return text;
    }
    site = spot.link && ah_spot_follows_call(spot.link) ? compiled_at(spot.link) : NULL;
    site = site ? site : compiled_below(spot.stack);
    /* An op that waits for a lock waits for its own threads: it runs. */
    bool computes = L && (op || node) && !meets && (spot.call < 0 || spot.call == SYS_futex);
    bool waits = spot.blocked && !computes && put_wait(text, room, &spot);
    if (!waits && !L) {
        position_put(text, room, "runs in C code%s%s", site ? " at " : "", site ? site : "");
        return text;
    }
    if (!site) {
        readable = L ? L : position_watched;
        site = ah_call_site(readable);
    }
    if (meets)
        snprintf(text, room, "waits for other ranks");
    else if (L && node)
        position_put(text, room, waits ? " in the backward of %s" : "runs the backward of %s",
                  ah_op_get((enum ah_opid)(node - 1))->name);
    else if (L && op)
        position_put(text, room, waits ? " in %s" : "runs %s", ah_op_get((enum ah_opid)(op - 1))->name);
    else if (!waits)
        position_put(text, room, "runs in C code");
    position_put(text, room, " at %s", site);
    return text;
}

void ah_position_frames(lua_State *L, void (*line)(const char *text))
{
    char text[256];
    lua_Debug frame;
    int shown = 0;
    L = L ? L : readable;
    for (int level = 0; L && shown < FRAMES && lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "Sln", &frame);
        if (frame.currentline <= 0 || ah_is_library_chunk(frame.source))
            continue;
        snprintf(text, sizeof text, "  %s:%d: in %s\n", frame.short_src, frame.currentline,
                 !strcmp(frame.what, "main") ? "main chunk" : frame.name ? frame.name : "function");
        line(text);
        shown++;
    }
}
