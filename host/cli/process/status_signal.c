/* The handler sets a hook, which runs before the next instruction of the script and finds everything at rest. If no
 * hook runs soon (compiled loops, C functions that do not return) a timer calls the handler again, which then finds the
 * position without a hook (bind/lua/position.h). The handler needs an alternate stack, because oneDNN's products run
 * with the stack pointer in a buffer of the heap, and runs on the main thread. */
#include "cli/process/status_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "base/process/signal_stack.h"
#include "base/process/signals.h"
#include "base/trace/counters.h"
#include "bind/lua/position.h"
#include "bind/lua/signal_hook.h"

enum { UNASKED, HOOKED, STUCK }; /* STUCK: the hook did not run in time */

static timer_t status_timer;
static volatile sig_atomic_t status_phase, status_tracing;

static void set_timer(long nanoseconds)
{
    timer_settime(status_timer, 0, &(struct itimerspec){.it_value.tv_nsec = nanoseconds}, NULL);
}

static void status_signal_answer(lua_State *L, const char *position)
{
    ah_counters_answer(position);
    if (!status_tracing)
        return;
    status_tracing = 0;
    ah_signal_write("accelhost: ");
    ah_signal_write(position);
    ah_signal_write("\n");
    ah_position_frames(L, ah_signal_write);
}

static void on_hook(lua_State *L, lua_Debug *frame)
{
    char position[AH_COUNTERS_TEXT];
    ah_signal_hook_set(AH_SIGNAL_STATUS, NULL);
    status_phase = UNASKED;
    set_timer(0);
    if (status_tracing)
        fflush(stdout); /* earlier output is written first */
    status_signal_answer(L, ah_position_line(L, position, sizeof position));
}

static void status_signal_take(int number, bool late, const void *context)
{
    char position[AH_COUNTERS_TEXT];
    status_tracing |= number == SIGUSR2;
    if (status_phase == UNASKED && !late) {
        status_phase = HOOKED;
        ah_signal_hook_set(AH_SIGNAL_STATUS, on_hook);
        set_timer(100000000);
    } else if (status_phase == STUCK || (status_phase == HOOKED && late)) {
        status_phase = STUCK;
        status_signal_answer(NULL, ah_position_find(context, position, sizeof position));
    }
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int error = errno;
    /* While the main thread runs the handler another one receives the next signal; there it stays pending. A fork does
     * not answer. */
    if (ah_signal_thread(number) == AH_SIGNAL_MAIN)
        status_signal_take(number, info->si_code == SI_TIMER, context);
    errno = error;
}

void ah_status_signal_watch(lua_State *L)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK};
    /* One handler at a time, so that signals faster than it returns do not nest. */
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGURG);
    sigaddset(&action.sa_mask, SIGUSR2);
    ah_signal_hook_watch(L);
    if (ah_signal_stack_set_up() < 0 || ah_signal_timer_create(SIGURG, &status_timer))
        return;
    ah_position_watch(L);
    if (!sigaction(SIGURG, &action, NULL) && !sigaction(SIGUSR2, &action, NULL))
        atomic_store(&ah_counters->answers, 1);
}

void ah_status_signal_end(void)
{
    atomic_store(&ah_counters->answers, 0);
    signal(SIGURG, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
}
