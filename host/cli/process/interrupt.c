/* The handler sets a hook, which runs before the next instruction of the script: that is all that LuaJIT allows a
 * handler. Compiled loops run no hooks, so a timer ends the process soon after in any case. */
#include "cli/process/interrupt.h"

#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

#include <lauxlib.h>

#include "base/process/signals.h"
#include "base/trace/counters.h"
#include "bind/lua/bind.h"
#include "bind/lua/position.h"
#include "bind/lua/signal_hook.h"

static void interrupt_end(void)
{
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
}

static void say_where(lua_State *L, lua_Debug *frame)
{
    fflush(stdout);
    fprintf(stderr, "\naccelhost: interrupted at %s\n", ah_call_site(L));
    interrupt_end();
}

static void give_up(int number, siginfo_t *info, void *context)
{
    char position[AH_COUNTERS_TEXT];
    ah_signal_write("\naccelhost: interrupted; the script ");
    ah_signal_write(ah_position_find(context, position, sizeof position));
    ah_signal_write("\n");
    interrupt_end();
    /* This handler may run on top of the one of SIGINT, which blocks it. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void on_interrupt(int number)
{
    static const struct itimerval soon = {.it_value = {.tv_usec = 700000}};
    signal(SIGINT, SIG_DFL);
    struct sigaction late = {.sa_sigaction = give_up, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGALRM, &late, NULL);
    ah_signal_hook_set(AH_SIGNAL_INTERRUPT, say_where);
    setitimer(ITIMER_REAL, &soon, NULL);
}

void ah_interrupt_watch(lua_State *L)
{
    struct sigaction before;
    if (sigaction(SIGINT, NULL, &before) || before.sa_handler == SIG_IGN)
        return;
    ah_signal_hook_watch(L);
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGINT, &action, NULL);
}
