/* The queue is a pipe that the handler writes to: it wakes the polling thread, whichever thread received the signal. A
 * fork that has not become another program yet writes nothing. */
#include "cli/base/signal_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/status/status.h"

enum { MOST = 65 };

static int queue_ends[2] = {-1, -1};
static pid_t queue_owner;
static struct sigaction actions_before[MOST];
static bool queue_watched[MOST];

static void on_signal(int number)
{
    int error = errno;
    unsigned char byte = (unsigned char)number;
    if (getpid() == queue_owner)
        (void)!write(queue_ends[1], &byte, 1);
    errno = error;
}

int ah_signal_queue_watch(int number)
{
    /* On the stack for handlers: oneDNN's products run with the stack pointer in the heap. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    if (number <= 0 || number >= MOST)
        return ah_fail(AH_EINVAL, "%d is no signal", number);
    if (queue_watched[number])
        return 0;
    if (queue_ends[0] < 0 && pipe2(queue_ends, O_CLOEXEC | O_NONBLOCK))
        return ah_fail(AH_EIO, "cannot make a pipe: %s", strerror(errno));
    queue_owner = getpid();
    if (sigaction(number, NULL, &actions_before[number]))
        return ah_fail(AH_EIO, "cannot watch signal %d: %s", number, strerror(errno));
    if (actions_before[number].sa_handler == SIG_IGN)
        return 0;
    if (sigaction(number, &action, NULL))
        return ah_fail(AH_EIO, "cannot watch signal %d: %s", number, strerror(errno));
    queue_watched[number] = true;
    return 0;
}

void ah_signal_queue_release(void)
{
    for (int number = 1; number < MOST; number++) {
        if (!queue_watched[number])
            continue;
        sigaction(number, &actions_before[number], NULL);
        queue_watched[number] = false;
    }
    while (ah_signal_queue_take())
        ;
}

int ah_signal_queue_fd(void)
{
    return queue_ends[0];
}

int ah_signal_queue_take(void)
{
    unsigned char byte;
    return queue_ends[0] >= 0 && read(queue_ends[0], &byte, 1) == 1 ? byte : 0;
}
