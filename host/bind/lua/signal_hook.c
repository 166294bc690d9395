/* A handler interrupts the script or another handler anywhere: each purpose has one entry, stored atomically. */
#include "bind/lua/signal_hook.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static lua_State *hook_watched;
static pid_t main_thread; /* the process's id too */
static _Atomic(lua_Hook) requested[AH_SIGNAL_PURPOSES];
static struct {
    lua_Hook hook;
    int mask, count;
} script; /* its own hook */

static void signal_hook_run(lua_State *L, lua_Debug *event)
{
    for (int i = AH_SIGNAL_PURPOSES; i-- > 0;) { /* an interrupt last: it may raise */
        lua_Hook hook = atomic_load(&requested[i]);
        if (hook)
            hook(L, event);
    }
}

/* A handler may interrupt another one here: the mask and the count are the script's if the hook, which is read after
 * them, is not this one. */
static void signal_hook_install(void)
{
    int mask = lua_gethookmask(hook_watched), count = lua_gethookcount(hook_watched);
    lua_Hook hook = lua_gethook(hook_watched);
    if (hook == signal_hook_run)
        return;
    script.hook = hook;
    script.mask = mask;
    script.count = count;
    lua_sethook(hook_watched, signal_hook_run, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

static bool signal_hook_needed(void)
{
    for (int i = 0; i < AH_SIGNAL_PURPOSES; i++)
        if (atomic_load(&requested[i]))
            return true;
    return false;
}

void ah_signal_hook_set(enum ah_signal_purpose purpose, lua_Hook hook)
{
    atomic_store(&requested[purpose], hook);
    if (!signal_hook_needed() && lua_gethook(hook_watched) == signal_hook_run)
        lua_sethook(hook_watched, script.hook, script.mask, script.count);
    if (signal_hook_needed()) /* also where a signal has arrived meanwhile */
        signal_hook_install();
}

void ah_signal_hook_watch(lua_State *L)
{
    hook_watched = L;
    main_thread = getpid();
}

enum ah_signal_thread ah_signal_thread(int number)
{
    if (getpid() != main_thread)
        return AH_SIGNAL_FORKED;
    if (syscall(SYS_gettid) == main_thread)
        return AH_SIGNAL_MAIN;
    syscall(SYS_tgkill, main_thread, main_thread, number);
    return AH_SIGNAL_SENT_ON;
}

int ah_signal_timer_create(int number, timer_t *timer)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number};
    event._sigev_un._tid = main_thread;
    return timer_create(CLOCK_MONOTONIC, &event, timer);
}
