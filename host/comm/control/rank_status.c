/* /proc shows a process that is stopped or has ended; everything else the process reports itself: it knows the script's
 * line, and no permission to inspect it is needed. SIGURG because a process that does not handle it ignores it. */
#include "comm/control/rank_status.h"

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/process/process.h"

/* Has the rank answered? */
static bool rank_status_ask(const struct ah_rank_entry *slot, int pid, int timeout_ms)
{
    const struct ah_counters *counters = &slot->counters;
    unsigned before = atomic_load(&counters->answered);
    if (!atomic_load(&counters->answers) || syscall(SYS_tgkill, pid, pid, SIGURG))
        return false;
    for (int waited = 0; waited < timeout_ms; waited++) {
        if (atomic_load(&counters->answered) != before)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static void write_sleep(int pid, char state, char *text, size_t room)
{
    char waits[48];
    ah_process_waits(pid, waits, sizeof waits);
    snprintf(text, room, "%s%s%s", state == 'D' ? "waits for a device or a file system" : "sleeps",
             waits[0] ? " in " : "", waits);
}

const char *ah_rank_status(const struct ah_rank_entry *slot, int timeout_ms, char *text, size_t room)
{
    return ah_rank_status_of(slot, atomic_load(&slot->pid), timeout_ms, text, room);
}

const char *ah_rank_status_of(const struct ah_rank_entry *slot, int pid, int timeout_ms, char *text, size_t room)
{
    struct ah_process process;
    text[0] = 0;
    if (!pid || pid == getpid() || atomic_load(&slot->state) != AH_RANK_RUNNING || !ah_process_look(pid, &process))
        return text;
    if (process.state == 'T' || process.state == 't')
        snprintf(text, room, "is stopped by a signal (kill -CONT %d continues it)", pid);
    else if (rank_status_ask(slot, pid, timeout_ms))
        snprintf(text, room, "%.*s", AH_COUNTERS_TEXT, slot->counters.place);
    else if (process.state == 'R')
        snprintf(text, room, "runs and does not answer");
    else if (process.state != 'Z')
        write_sleep(pid, process.state, text, room);
    return text;
}
