/* Files in memory and the tensors that are views of them. Opening never waits: other files than regular ones are
 * refused by their kind. */
#include "io/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/signals.h"
#include "base/status/status.h"

enum { PIECE = 1 << 30, ALIGNMENT = 64 };

/* Mapped files that another program cuts. Reading the lost part raises SIGBUS. Its handler, installed with the first
 * mapped file, writes one line with the file's name and leaves the rest to the handler before it: by default the
 * process ends. It runs in the thread that reads, on its stack for handlers where it has one, calls nothing that is not
 * safe in a handler, and reads the list without its lock, since the process ends. */
static pthread_mutex_t fault_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct ah_mapping *) fault_first;
static struct sigaction fault_before; /* the handler that was installed earlier */

static void fault_append(char *line, size_t room, const char *text)
{
    size_t length = strlen(line), more = strnlen(text, room - 1 - length);
    memcpy(line + length, text, more);
    line[length + more] = '\0';
}

/* One write, so that no other line gets between. */
static void fault_report(const char *path)
{
    char line[PATH_MAX + 256] = "accelhost: cannot read '";
    fault_append(line, sizeof line, path);
    fault_append(line, sizeof line, "', which was loaded: another program has cut the file since, or its disk ");
    fault_append(line, sizeof line, "failed. Replace such a file by renaming another one over it\n");
    ah_signal_write(line);
}

static void fault_handle(int number, siginfo_t *info, void *context)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    const unsigned char *at = info->si_addr;
    if (info->si_code > 0 && atomic_flag_test_and_set(&reported))
        return; /* another thread writes the line: fail again until it has */
    for (struct ah_mapping *mapping = atomic_load(&fault_first); info->si_code > 0 && mapping; mapping = mapping->next)
        if (at >= mapping->bytes && at < mapping->bytes + mapping->count) {
            fault_report(mapping->path);
            break;
        }
    sigaction(number, &fault_before, NULL);
    if (info->si_code <= 0)
        raise(number); /* sent by a process; otherwise the instruction fails again */
}

static void fault_watch(void)
{
    struct sigaction action = {.sa_sigaction = fault_handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGBUS, &action, &fault_before);
}

/* Add a mapped file to the ones that are named, or remove it, before it is unmapped. Any thread. */
static void fault_add(struct ah_mapping *mapping)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fault_watch);
    AH_LOCK_SCOPE(&fault_mutex);
    mapping->next = atomic_load(&fault_first);
    atomic_store(&fault_first, mapping);
}

static void fault_remove(struct ah_mapping *mapping)
{
    AH_LOCK_SCOPE(&fault_mutex);
    if (atomic_load(&fault_first) == mapping)
        atomic_store(&fault_first, mapping->next);
    for (struct ah_mapping *other = atomic_load(&fault_first); other; other = other->next)
        if (other->next == mapping)
            other->next = mapping->next;
}

/* Files. */

/* Return the attributes that change when a file is written to. */
static struct ah_mapping_mark mark_of(const struct stat *info)
{
    return (struct ah_mapping_mark){info->st_dev, info->st_ino, info->st_size, info->st_mtim};
}

static bool is_same(const struct ah_mapping_mark *one, const struct ah_mapping_mark *other)
{
    return one->size == other->size && one->written.tv_sec == other->written.tv_sec &&
           one->written.tv_nsec == other->written.tv_nsec;
}

static int read_all(struct ah_mapping *mapping, int file)
{
    struct stat info;
    size_t got = 0;
    size_t room = (mapping->count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    mapping->bytes = aligned_alloc(ALIGNMENT, room);
    if (!mapping->bytes)
        return ah_fail(AH_ENOMEM, "out of memory for %zu bytes", mapping->count);
    while (got < mapping->count) {
        size_t wanted = mapping->count - got;
        ssize_t count = read(file, mapping->bytes + got, wanted < PIECE ? wanted : PIECE);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
        if (count == 0)
            break;
        got += (size_t)count;
    }
    if (fstat(file, &info))
        return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
    struct ah_mapping_mark now = mark_of(&info);
    if (got < mapping->count || !is_same(&mapping->mark, &now))
        return ah_fail(AH_EIO, "cannot read: another program wrote to the file meanwhile");
    return 0;
}

static int mapping_map(struct ah_mapping *mapping, int file, const char *path)
{
    mapping->path = realpath(path, NULL);
    if (!mapping->path)
        return ah_fail(errno == ENOMEM ? AH_ENOMEM : AH_EIO, "cannot read: %s", strerror(errno));
    void *bytes = mmap(NULL, mapping->count, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
        return ah_fail(errno == ENOMEM ? AH_ENOMEM : AH_EIO, "cannot map %zu bytes: %s", mapping->count,
                       strerror(errno));
    mapping->bytes = bytes;
    mapping->mapped = true;
    fault_add(mapping);
    return 0;
}

static int mapping_fill(struct ah_mapping *mapping, int file, const char *path)
{
    struct stat info;
    if (fstat(file, &info))
        return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return ah_fail(AH_EIO, "cannot read: %s", S_ISDIR(info.st_mode) ? "it is a folder" : "not a file");
    mapping->count = (size_t)info.st_size;
    mapping->mark = mark_of(&info);
    if (!mapping->count)
        return 0;
    return mapping->count <= AH_MAPPING_COPIED ? read_all(mapping, file) : mapping_map(mapping, file, path);
}

int ah_mapping_open(struct ah_mapping **out, const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), status;
    if (file < 0)
        return ah_fail(AH_EIO, "cannot read: %s", strerror(errno));
    struct ah_mapping *mapping = calloc(1, sizeof *mapping);
    status = mapping ? mapping_fill(mapping, file, path) : ah_fail(AH_ENOMEM, "out of memory");
    close(file);
    if (mapping)
        mapping->refs = 1;
    if (status < 0)
        ah_mapping_release(mapping);
    else
        *out = mapping;
    return status;
}

struct ah_mapping *ah_mapping_retain(struct ah_mapping *mapping)
{
    mapping->refs++;
    return mapping;
}

void ah_mapping_release(struct ah_mapping *mapping)
{
    if (!mapping || --mapping->refs > 0)
        return;
    if (mapping->mapped) {
        fault_remove(mapping);
        munmap(mapping->bytes, mapping->count);
    } else {
        free(mapping->bytes);
    }
    free(mapping->path);
    free(mapping);
}

static void release_storage(struct ah_storage *storage)
{
    ah_mapping_release(storage->owner);
}

int ah_mapping_tensor(struct ah_tensor **out, struct ah_mapping *mapping, size_t at, const int64_t *size, int ndim,
                      enum ah_dtype dtype)
{
    size_t item = ah_dtype_size(dtype), bytes = item;
    for (int d = 0; d < ndim; d++)
        bytes *= (size_t)size[d];
    for (size_t i = 0; dtype == AH_BOOL && i < bytes; i++)
        if (mapping->bytes[at + i] > 1)
            return ah_fail(AH_EIO, "a bool is %d, expected 0 or 1", mapping->bytes[at + i]);
    if (bytes && at % item == 0) {
        AH_TRY(ah_tensor_from_memory(out, mapping->bytes + at, size, ndim, dtype, &ah_cpu, release_storage, mapping));
        ah_mapping_retain(mapping);
        return 0;
    }
    AH_TRY(ah_tensor_empty(out, size, ndim, dtype, &ah_cpu));
    if (bytes)
        memcpy(ah_tensor_data(*out), mapping->bytes + at, bytes);
    return 0;
}

bool ah_mapping_is_mapped(const struct ah_tensor *tensor)
{
    const struct ah_storage *storage = tensor->storage;
    return storage && storage->release == release_storage && ((struct ah_mapping *)storage->owner)->mapped;
}

int ah_mapping_check(const struct ah_tensor *tensor)
{
    struct stat info;
    if (!ah_mapping_is_mapped(tensor))
        return 0;
    const struct ah_mapping *mapping = tensor->storage->owner;
    if (stat(mapping->path, &info))
        return 0;
    struct ah_mapping_mark now = mark_of(&info);
    /* A file that was renamed over this one leaves the mapped one as it was. */
    if (now.device != mapping->mark.device || now.file != mapping->mark.file || is_same(&now, &mapping->mark))
        return 0;
    return ah_fail(AH_EIO, "'%s' was written to after it was loaded, so the tensors mapped from it may have changed: "
                   "load it again, and replace such a file by renaming another one over it", mapping->path);
}
