/* A process is held (cli/base/process_watch.h) before its mark is read, so that the signalled process is the one whose
 * mark was read. */
#include "cli/job/orphans.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/process.h"
#include "cli/base/process_watch.h"

/* Does one of the entries begin with AH_JOB_MARK=mark? The environment may be longer than one read. */
static bool is_marked(int proc, pid_t pid, const char *mark)
{
    char path[48], wanted[512], text[8192];
    size_t length = (size_t)snprintf(wanted, sizeof wanted, "%s=%s", AH_JOB_MARK, mark), kept = 0;
    bool found = false;
    snprintf(path, sizeof path, "%d/environ", pid);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    for (ssize_t n; !found && (n = read(fd, text + kept, sizeof text - kept)) > 0;) {
        size_t bytes = kept + (size_t)n;
        found = memmem(text, bytes, wanted, length) != NULL;
        kept = bytes < length ? bytes : length;
        memmove(text, text + bytes - kept, kept);
    }
    close(fd);
    return found;
}

static bool is_orphan(int proc, pid_t pid, const char *mark, const pid_t *groups, int count, struct ah_process *process)
{
    if (!ah_process_look(pid, process) || process->state == 'Z' || process->state == 'X')
        return false;
    bool in_group = false;
    for (int i = 0; i < count; i++) {
        if (groups[i] == pid)
            return false;
        in_group |= groups[i] > 0 && groups[i] == process->group;
    }
    return in_group || is_marked(proc, pid, mark);
}

int ah_orphans_signal(const char *mark, const pid_t *groups, int count, int number, char *names, size_t room)
{
    int found = 0;
    size_t at = 0;
    DIR *proc = opendir("/proc");
    if (names)
        names[0] = 0;
    if (!proc)
        return 0;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        struct stat info;
        struct ah_process process;
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;
        if (pid <= 0 || pid == getpid() || fstatat(dirfd(proc), entry->d_name, &info, 0) || info.st_uid != geteuid())
            continue;
        struct ah_process_hold hold;
        if (!ah_process_hold(&hold, pid))
            continue;
        if (is_orphan(dirfd(proc), pid, mark, groups, count, &process)) {
            if (number)
                ah_process_hold_signal(&hold, number);
            if (names && found < 4 && at < room)
                at += (size_t)snprintf(names + at, room - at, "%s%s (pid %d)", found ? ", " : "", process.name, pid);
            found++;
        }
        ah_process_hold_release(&hold);
    }
    closedir(proc);
    return found;
}
