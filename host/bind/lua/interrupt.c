/* accelhost._C.interrupt: Ctrl-C at a prompt ends the running line, not the process.
 *
 * The handler sets a hook, which runs before the next instruction of the script and raises. LuaJIT's compiled code runs
 * no hooks, but checks a flag of its profiler at every line while the profiler is on: so it is kept on, with a timer
 * that never fires, and the handler sets the flag instead; then the code returns to the interpreter, which runs the
 * hook. The check is one comparison, in all code alike: the prompt's, a module's, the library's.
 *
 * Invariant: the hook raises only where the script itself runs, so that the library is never left in the middle of
 * something; the second Ctrl-C, when the first had no effect, raises anywhere. A script that catches the error has a
 * moment to clean up; then it is raised at every instruction, until nothing catches it any more.
 *
 * watch()        from now on Ctrl-C is for `call`, or for the caller that waits with `take`
 * call(fn, ...)  -> true and the results of fn, or false, the error with its traceback, and "interrupted" if it was
 *                that
 * press()        as if Ctrl-C were pressed
 * heed()         the running code has ended by it and raises that itself
 * take()         -> was Ctrl-C pressed outside of a call since the last take? */
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include <luajit.h>

#include "base/process/signals.h"
#include "base/trace/counters.h"
#include "base/trace/time.h"
#include "bind/library.h"
#include "bind/lua/bind.h"
#include "bind/lua/interrupt.h"
#include "bind/lua/position.h"
#include "bind/lua/signal_hook.h"

enum { CLEANUP_NS = 100000000 };

static bool interrupt_watched;
static int interrupt_depth; /* of calls */
static volatile sig_atomic_t interrupt_running, pressed, raised, interrupt_idle;
static int64_t raised_ns;
static timer_t interrupt_timer;

static bool in_library(lua_State *L)
{
    lua_Debug frame;
    for (int level = 0; lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "Sl", &frame);
        if (frame.currentline > 0)
            return ah_is_library_chunk(frame.source);
    }
    return true;
}

static void on_hook(lua_State *L, lua_Debug *event)
{
    if (!interrupt_running || (pressed < 2 && in_library(L)))
        return;
    if (raised == 0 && ah_interrupted == AH_INTERRUPT_HEEDED) { /* a wait has raised it */
        raised = 1;
        raised_ns = ah_now_ns();
    }
    if (raised == 1 && ah_now_ns() - raised_ns < CLEANUP_NS)
        return;
    if (raised++ == 0)
        raised_ns = ah_now_ns();
    lua_pushfstring(L, "%s: interrupted", ah_call_site(L));
    lua_error(L);
}

/* Is LuaJIT's handler of its profiler's clock installed, which makes compiled code check for hooks? */
static bool interrupt_profiles(void)
{
    struct sigaction now;
    return !sigaction(SIGPROF, NULL, &now) && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
}

/* Repeat the handler by a timer, for code that catches the error and continues; 0: no more. */
static void strike_every(long milliseconds)
{
    struct itimerspec often = {.it_value.tv_nsec = milliseconds ? 1 : 0, .it_interval.tv_nsec = milliseconds * 1000000};
    timer_settime(interrupt_timer, 0, &often, NULL);
}

static void interrupt_begin(void)
{
    ah_signal_hook_set(AH_SIGNAL_INTERRUPT, on_hook);
    strike_every(20);
}

static void interrupt_press(const void *context)
{
    char position[AH_COUNTERS_TEXT];
    ah_interrupted = AH_INTERRUPT_PRESSED;
    if (pressed == 0)
        interrupt_begin();
    if (pressed == 1) {
        ah_signal_write("\naccelhost: still ");
        ah_signal_write(ah_position_find(context, position, sizeof position));
        ah_signal_write("; Ctrl-C once more ends the program\n");
    }
    if (++pressed > 2) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
}

/* The timer's signal is another one: two pending SIGINT are one. */
static void on_timer(int number)
{
    if (interrupt_running && pressed && interrupt_profiles())
        raise(SIGPROF);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    switch (ah_signal_thread(number)) {
    case AH_SIGNAL_FORKED:
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
        break;
    case AH_SIGNAL_MAIN:
        if (interrupt_running)
            interrupt_press(context);
        else
            interrupt_idle = 1;
        break;
    case AH_SIGNAL_SENT_ON:
        break;
    }
}

bool ah_interrupt_take(void)
{
    bool was = interrupt_idle;
    interrupt_idle = 0;
    return was;
}

static void on_clock(void *data, lua_State *L, int samples, int state)
{
}

/* On again when a script has used the profiler itself. LuaJIT's handler has no alternate stack, and needs one: oneDNN's
 * products run with the stack pointer in a buffer of the heap. */
static void look_at_lines(lua_State *L)
{
    struct sigaction action;
    if (interrupt_watched && !interrupt_profiles())
        luaJIT_profile_start(L, "li1000000000", on_clock, NULL); /* an interval of eleven days */
    if (interrupt_watched && interrupt_profiles() && !sigaction(SIGPROF, NULL, &action) &&
        !(action.sa_flags & SA_ONSTACK)) {
        action.sa_flags |= SA_ONSTACK;
        sigaction(SIGPROF, &action, NULL);
    }
}

static int interrupt_watch(lua_State *L)
{
    /* Without SA_RESTART: a script that waits for input is interrupted too. */
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction tick = {.sa_handler = on_timer, .sa_flags = SA_ONSTACK};
    ah_signal_hook_watch(L);
    if (ah_signal_timer_create(SIGVTALRM, &interrupt_timer))
        return ah_raise_text(L, "cannot create a timer on this system");
    interrupt_watched = true;
    sigaction(SIGVTALRM, &tick, NULL);
    sigaction(SIGINT, &action, NULL);
    return 0;
}

static void end_call(void)
{
    interrupt_running = --interrupt_depth > 0;
    if (interrupt_running || !pressed)
        return;
    ah_signal_hook_set(AH_SIGNAL_INTERRUPT, NULL);
    strike_every(0);
    pressed = 0;
    ah_interrupted = 0;
}

static int interrupt_call(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    look_at_lines(L);
    lua_pushcfunction(L, ah_traceback);
    lua_insert(L, 1);
    if (interrupt_depth++ == 0)
        raised = 0;
    interrupt_running = 1;
    int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 1);
    bool heeded = ah_interrupted == AH_INTERRUPT_HEEDED;
    end_call();
    lua_pushboolean(L, status == 0);
    lua_replace(L, 1);
    if (!status)
        return lua_gettop(L);
    if (status == LUA_ERRMEM) {
        int held = lua_gc(L, LUA_GCCOUNT, 0);
        lua_settop(L, 1);
        lua_gc(L, LUA_GCCOLLECT, 0);
        lua_pushfstring(L, "not enough memory: Lua held %d MiB", held / 1024);
    }
    if (raised || heeded)
        lua_pushliteral(L, "interrupted");
    return lua_gettop(L);
}

AH_LUA_CALL(press_now, raise(SIGINT))

static int interrupt_heed(lua_State *L)
{
    if (pressed)
        ah_interrupted = AH_INTERRUPT_HEEDED;
    return 0;
}

AH_LUA_VALUE(interrupt_take, lua_pushboolean, ah_interrupt_take())

int ah_open_interrupt(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"watch", interrupt_watch}, {"call", interrupt_call}, {"press", press_now},
        {"take", interrupt_take},   {"heed", interrupt_heed}, {NULL, NULL},
    };
    ah_traceback_end_at(interrupt_call);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
