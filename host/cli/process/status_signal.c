/* The handler sets a hook, which runs before the next instruction of the script and finds everything at rest. Where no
 * hook runs soon (compiled loops, C functions that do not return) a timer brings the handler back, which then looks by
 * itself (bind/lua/place.h). A hook that the script has set is put back. What must stay true: the handler has a stack
 * of its own, for oneDNN's products run with the stack pointer in a buffer of the heap, and it is the main thread's. */
#include "cli/process/status_signal.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/pulse.h"
#include "base/signal_stack.h"
#include "bind/lua/place.h"

enum { UNASKED, HOOKED, STUCK }; /* STUCK: the hook did not run in time */

static lua_State *watched;
static pid_t self;
static timer_t timer;
static volatile sig_atomic_t phase, tracing;
static struct {
    lua_Hook hook;
    int mask, count;
} scripts; /* own hook */

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void set_timer(long nanoseconds)
{
    timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = nanoseconds}, NULL);
}

static void answer(lua_State *L, const char *place)
{
    ah_pulse_answer(place);
    if (!tracing)
        return;
    tracing = 0;
    say("accelhost: ");
    say(place);
    say("\n");
    ah_place_frames(L, say);
}

static void on_hook(lua_State *L, lua_Debug *frame)
{
    char place[AH_PULSE_TEXT];
    lua_sethook(watched, scripts.hook, scripts.mask, scripts.count);
    phase = UNASKED;
    set_timer(0);
    if (tracing)
        fflush(stdout); /* what was printed before comes before */
    answer(L, ah_place_line(L, place, sizeof place));
}

static void take(int number, bool late, const void *context)
{
    char place[AH_PULSE_TEXT];
    tracing |= number == SIGUSR2;
    if (phase == UNASKED && !late) {
        phase = HOOKED;
        scripts.hook = lua_gethook(watched);
        scripts.mask = lua_gethookmask(watched);
        scripts.count = lua_gethookcount(watched);
        lua_sethook(watched, on_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
        set_timer(100000000);
    } else if (phase == STUCK || (phase == HOOKED && late)) {
        phase = STUCK;
        answer(NULL, ah_place_find(context, place, sizeof place));
    }
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int error = errno;
    if (getpid() != self) {
        /* A fork: it is nobody to ask. */
    } else if (syscall(SYS_gettid) != self) {
        /* While the main thread runs the handler another one receives the next signal; there it stays pending. */
        syscall(SYS_tgkill, self, self, number);
    } else {
        take(number, info->si_code == SI_TIMER, context);
    }
    errno = error;
}

void ah_status_signal_watch(lua_State *L)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK};
    /* One handler at a time, so that signals faster than it returns do not nest. */
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGURG);
    sigaddset(&action.sa_mask, SIGUSR2);
    watched = L;
    event._sigev_un._tid = self = getpid();
    if (ah_signal_stack_set_up() < 0 || timer_create(CLOCK_MONOTONIC, &event, &timer))
        return;
    ah_place_watch(L);
    if (!sigaction(SIGURG, &action, NULL) && !sigaction(SIGUSR2, &action, NULL))
        atomic_store(&ah_pulse->answers, 1);
}

void ah_status_signal_end(void)
{
    atomic_store(&ah_pulse->answers, 0);
    signal(SIGURG, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
}
