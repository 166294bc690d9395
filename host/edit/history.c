/* An entry is written by one call, under a lock; line ends within it are escaped. The file is shortened by writing a
 * new one and renaming it: a process that has waited for the lock meanwhile sees that the inode differs, and opens the
 * file again. */
#include "edit/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_folders(const char *path)
{
    char folder[4096];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return;
    for (char *slash = folder; (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        mkdir(folder, 0700);
        *slash = '/';
    }
}

static bool is_there(int fd, const char *path)
{
    struct stat own, named;
    return !fstat(fd, &own) && !stat(path, &named) && own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

/* The file, locked; -1 where there can be none. */
static int open_locked(const char *path)
{
    for (int attempt = 0; attempt < 10; attempt++) {
        int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            return -1;
        int locked;
        do
            locked = flock(fd, LOCK_EX);
        while (locked < 0 && errno == EINTR);
        if (is_there(fd, path))
            return fd;
        close(fd);
    }
    return -1;
}

static char *read_all(int fd)
{
    struct stat info;
    if (fstat(fd, &info) || info.st_size > 64 << 20)
        return NULL;
    char *text = malloc((size_t)info.st_size + 1);
    ssize_t n = text ? pread(fd, text, (size_t)info.st_size, 0) : 0;
    if (text)
        text[n > 0 ? n : 0] = 0;
    return text;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (; (text = strchr(text, '\n')); text++)
        count++;
    return count;
}

/* Keep the newest entries in a new file of the same name. */
static void history_cut(const char *path, const char *text, size_t lines)
{
    char other[4096];
    for (; lines > AH_HISTORY_MOST; lines--)
        text = strchr(text, '\n') + 1;
    if (snprintf(other, sizeof other, "%s.%d", path, (int)getpid()) >= (int)sizeof other)
        return;
    int fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool whole = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if ((close(fd) || !whole || rename(other, path)) && unlink(other))
        return;
}

static void history_unescape(char *text)
{
    char *to = text;
    for (; *text; text++) {
        if (*text == '\\' && text[1])
            *to++ = *++text == 'n' ? '\n' : *text;
        else
            *to++ = *text;
    }
    *to = 0;
}

void ah_history_read(const char *path, void (*each)(void *context, const char *text), void *context)
{
    make_folders(path);
    int fd = open_locked(path);
    char *text = fd < 0 ? NULL : read_all(fd);
    if (text) {
        size_t lines = count_lines(text);
        if (lines > 2 * AH_HISTORY_MOST)
            history_cut(path, text, lines);
        char *end, *line = text;
        for (; lines > AH_HISTORY_MOST; lines--)
            line = strchr(line, '\n') + 1;
        for (; (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            history_unescape(line);
            each(context, line);
        }
    }
    free(text);
    if (fd >= 0)
        close(fd);
}

void ah_history_add(const char *path, const char *text)
{
    char *line = malloc(2 * strlen(text) + 2), *to = line;
    if (!line)
        return;
    for (; *text; text++) {
        if (*text == '\n' || *text == '\\')
            *to++ = '\\';
        *to++ = *text == '\n' ? 'n' : *text;
    }
    *to++ = '\n';
    int fd = open_locked(path);
    if (fd >= 0) {
        /* A full disk may cut an entry; the next one then continues its line. */
        (void)!write(fd, line, (size_t)(to - line));
        close(fd);
    }
    free(line);
}
