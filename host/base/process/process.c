/* Reads /proc. */
#include "base/process/process.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ssize_t read_file(int pid, const char *name, char *text, size_t room)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n;
}

bool ah_process_look(int pid, struct ah_process *out)
{
    char text[1024];
    unsigned long long user, system, started;
    long long pages;
    memset(out, 0, sizeof *out);
    if (read_file(pid, "stat", text, sizeof text) <= 0)
        return false;
    const char *begin = strchr(text, '('), *end = strrchr(text, ')'); /* the name may hold anything */
    /* state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime priority nice
     * threads itrealvalue starttime vsize rss */
    if (!begin || !end ||
        sscanf(end + 1, " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %d %*d %llu %*u %lld",
               &out->state, &out->parent, &out->group, &user, &system, &out->threads, &started, &pages) != 8)
        return false;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(end - begin - 1), begin + 1);
    int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    out->memory = pages * sysconf(_SC_PAGESIZE);
    out->cpu_ns = (int64_t)(user + system) * tick_ns;
    out->started_ns = (int64_t)started * tick_ns;
    return true;
}

void ah_process_waits(int pid, char *text, size_t room)
{
    read_file(pid, "wchan", text, room);
    if (!strcmp(text, "0"))
        text[0] = 0;
}

void ah_process_command(int pid, char *text, size_t room)
{
    ssize_t n = read_file(pid, "cmdline", text, room);
    for (ssize_t i = 0; i + 1 < n; i++)
        if ((unsigned char)text[i] < ' ')
            text[i] = ' ';
}

/* The name of a process's PID namespace, "pid:[4026531836]"; "" when it cannot be read. */
static void read_namespace(int pid, char *text, size_t room)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
    ssize_t n = readlink(path, text, room - 1);
    text[n > 0 ? n : 0] = 0;
}

/* Its pid in its own namespace, the last of the line "NSpid:"; 0 when it cannot be read. */
static int pid_within(int pid)
{
    char text[4096];
    read_file(pid, "status", text, sizeof text);
    char *line = strstr(text, "\nNSpid:"), *end = line ? strchr(line + 1, '\n') : NULL;
    if (!end)
        return 0;
    *end = 0;
    return (int)strtol(strrchr(line, '\t') + 1, NULL, 10);
}

int ah_process_pid_here(int holder, int pid)
{
    char own[64], theirs[64], other[64];
    read_namespace(getpid(), own, sizeof own);
    read_namespace(holder, theirs, sizeof theirs);
    if (!theirs[0] || !strcmp(own, theirs))
        return pid;
    DIR *proc = opendir("/proc");
    int found = 0;
    for (struct dirent *entry; proc && !found && (entry = readdir(proc)) != NULL;) {
        int candidate = isdigit((unsigned char)entry->d_name[0]) ? (int)strtol(entry->d_name, NULL, 10) : 0;
        if (!candidate)
            continue;
        read_namespace(candidate, other, sizeof other);
        if (!strcmp(other, theirs) && pid_within(candidate) == pid)
            found = candidate;
    }
    if (proc)
        closedir(proc);
    return found;
}
