/* The handler stores one number: that is all that a handler may do. Forked helpers inherit it, so that a signal to the
 * whole process group does not end a data loader's workers before the last step is done. */
#include "base/process/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/status/status.h"

static const struct {
    const char *name;
    int number;
} signals_known[] = {{"TERM", SIGTERM}, {"USR1", SIGUSR1}, {"INT", SIGINT}, {"HUP", SIGHUP}};
enum { KNOWN = sizeof signals_known / sizeof signals_known[0] };

atomic_int ah_interrupted;

static atomic_int signals_noted;

int ah_signal_number(const char *name)
{
    for (int i = 0; i < KNOWN; i++)
        if (!strcmp(signals_known[i].name, name))
            return signals_known[i].number;
    return 0;
}

void ah_signal_write(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void signals_note(int number)
{
    int none = 0;
    atomic_compare_exchange_strong(&signals_noted, &none, number);
}

int ah_signal_catch(int number)
{
    /* On the stack for handlers: oneDNN's products run with the stack pointer in the heap. */
    struct sigaction action = {.sa_handler = signals_note, .sa_flags = SA_RESTART | SA_ONSTACK};
    if (sigaction(number, &action, NULL))
        return ah_fail(AH_EIO, "cannot watch signal %d: %s", number, strerror(errno));
    return 0;
}

const char *ah_signal_take(void)
{
    int number = atomic_exchange(&signals_noted, 0);
    for (int i = 0; i < KNOWN; i++)
        if (signals_known[i].number == number)
            return signals_known[i].name;
    return NULL;
}
