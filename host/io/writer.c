/* Atomic writers. A file without a name cannot replace one, so it gets a hidden name just before it is renamed; a kill
 * between these two steps leaves that name, which the next writer of the same goal removes. A failed fsync is final:
 * the kernel may have dropped the pages, so the file is abandoned and never tried again. */
#include "io/writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status/status.h"

/* Linux writes at most 0x7ffff000 bytes a call. */
enum { PIECE = 1 << 30 };

struct ah_writer {
    int file, folder;
    struct ah_sha256 *hash; /* NULL: none */
    bool shared;            /* the caller syncs the folder */
    mode_t mode;             /* of the file at the goal; 0 when there is none */
    char name[NAME_MAX + 1]; /* the goal's, in its folder */
    char temporary[NAME_MAX + 1]; /* "" while the file has no name */
};

/* Open the goal's folder, and store its name there. */
static int find_place(struct ah_writer *writer, const char *path)
{
    struct stat info;
    char real[PATH_MAX], folder[PATH_MAX];
    if (strlen(path) >= sizeof real)
        return ah_fail(AH_EIO, "cannot write: %s", strerror(ENAMETOOLONG));
    if (stat(path, &info) == 0) {
        if (!S_ISREG(info.st_mode))
            return ah_fail(AH_EIO, "cannot write: %s", S_ISDIR(info.st_mode) ? "it is a folder" : "not a file");
        writer->mode = info.st_mode & 07777;
        if (!realpath(path, real))
            return ah_fail(AH_EIO, "cannot write: %s", strerror(errno));
    } else {
        memcpy(real, path, strlen(path) + 1);
    }
    memcpy(folder, real, strlen(real) + 1);
    const char *name = basename(real);
    if (strlen(name) > NAME_MAX || !*path || path[strlen(path) - 1] == '/')
        return ah_fail(AH_EIO, "cannot write: not the name of a file");
    memcpy(writer->name, name, strlen(name) + 1);
    writer->folder = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (writer->folder < 0)
        return ah_fail(AH_EIO, "cannot write: %s", errno == ENOENT ? "its folder does not exist" : strerror(errno));
    return 0;
}

/* Store a unique name next to the goal. */
static void invent_name(struct ah_writer *writer, int attempt)
{
    snprintf(writer->temporary, sizeof writer->temporary, ".%.200s.tmp-%ld-%d", writer->name, (long)getpid(), attempt);
}

/* Remove files that killed writers of the same goal left between their last two steps. A living one holds its file's
 * lock. */
static void writer_sweep(struct ah_writer *writer)
{
    char prefix[NAME_MAX + 1];
    int length = snprintf(prefix, sizeof prefix, ".%.200s.tmp-", writer->name);
    DIR *list = fdopendir(openat(writer->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (strncmp(entry->d_name, prefix, (size_t)length))
            continue;
        int file = openat(writer->folder, entry->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
            unlinkat(writer->folder, entry->d_name, 0);
        if (file >= 0)
            close(file);
    }
    if (list)
        closedir(list);
}

/* Link a file without a name to a temporary one, which stays in `writer->temporary`; -1 and errno. */
static int link_temporary(struct ah_writer *writer, int file)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", file);
    for (int attempt = 0; attempt < 100; attempt++) {
        invent_name(writer, attempt);
        if (linkat(AT_FDCWD, self, writer->folder, writer->temporary, AT_SYMLINK_FOLLOW) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    writer->temporary[0] = '\0';
    return -1;
}

static int open_unnamed(const struct ah_writer *writer)
{
    return openat(writer->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

/* Can a file without a name get one? Not without /proc, nor where a sandbox forbids linkat. Tried once in a process,
 * with another file: at the end of a write it would be too late. */
static bool can_link(struct ah_writer *writer)
{
    enum { UNKNOWN, YES, NO };
    static atomic_int known;
    if (atomic_load(&known) == UNKNOWN) {
        int file = open_unnamed(writer);
        if (file < 0)
            return false; /* not on this file system */
        atomic_store(&known, link_temporary(writer, file) ? NO : YES);
        if (writer->temporary[0])
            unlinkat(writer->folder, writer->temporary, 0);
        writer->temporary[0] = '\0';
        close(file);
    }
    return atomic_load(&known) == YES;
}

static int open_temporary(struct ah_writer *writer)
{
    if (can_link(writer))
        writer->file = open_unnamed(writer);
    for (int attempt = 0; writer->file < 0 && attempt < 100; attempt++) {
        invent_name(writer, attempt);
        writer->file = openat(writer->folder, writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->file < 0 && errno != EEXIST)
            break;
    }
    if (writer->file < 0) {
        writer->temporary[0] = '\0';
        return ah_fail(AH_EIO, "cannot write: %s", strerror(errno));
    }
    flock(writer->file, LOCK_EX | LOCK_NB);
    return 0;
}

int ah_writer_open(struct ah_writer **out, const char *path)
{
    struct ah_writer *writer = calloc(1, sizeof *writer);
    AH_TRY_MEMORY(writer, "out of memory");
    writer->file = writer->folder = -1;
    int status = find_place(writer, path);
    if (status == 0) {
        writer_sweep(writer);
        status = open_temporary(writer);
    }
    if (status < 0)
        ah_writer_abandon(writer);
    else
        *out = writer;
    return status;
}

void ah_writer_hash(struct ah_writer *writer, struct ah_sha256 *hash)
{
    writer->hash = hash;
}

void ah_writer_share_folder(struct ah_writer *writer)
{
    writer->shared = true;
}

int ah_writer_write(struct ah_writer *writer, const void *bytes, size_t count)
{
    const char *at = bytes;
    if (writer->hash)
        ah_sha256_add(writer->hash, bytes, count);
    while (count > 0) {
        ssize_t wrote = write(writer->file, at, count < PIECE ? count : PIECE);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return ah_fail(AH_EIO, "cannot write: %s", strerror(errno));
        at += wrote;
        count -= (size_t)wrote;
    }
    return 0;
}

int ah_writer_overwrite(struct ah_writer *writer, size_t at, const void *bytes, size_t count)
{
    ssize_t wrote;
    do
        wrote = pwrite(writer->file, bytes, count, (off_t)at);
    while (wrote < 0 && errno == EINTR);
    if (wrote == (ssize_t)count)
        return 0;
    return ah_fail(AH_EIO, "cannot write: %s", wrote < 0 ? strerror(errno) : "the disk is full");
}

int ah_writer_commit(struct ah_writer *writer)
{
    bool failed = (writer->mode && fchmod(writer->file, writer->mode)) || fsync(writer->file);
    failed = failed || (!writer->temporary[0] && link_temporary(writer, writer->file));
    failed = failed || renameat(writer->folder, writer->temporary, writer->folder, writer->name);
    if (!failed) {
        writer->temporary[0] = '\0';
        failed = !writer->shared && fsync(writer->folder) && errno != EINVAL; /* not every file system can */
    }
    int reason = errno;
    ah_writer_abandon(writer);
    return failed ? ah_fail(AH_EIO, "cannot write: %s", strerror(reason)) : 0;
}

void ah_writer_abandon(struct ah_writer *writer)
{
    if (!writer)
        return;
    if (writer->temporary[0])
        unlinkat(writer->folder, writer->temporary, 0);
    if (writer->file >= 0)
        close(writer->file);
    if (writer->folder >= 0)
        close(writer->folder);
    free(writer);
}
