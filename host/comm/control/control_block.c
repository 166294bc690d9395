/* Memfds and mappings. Address space for every segment is reserved once, so that a segment grows in place and offsets
 * mean the same memory on every rank. */
#include "comm/control/control_block.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/entropy.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "comm/control/hosts.h"

static const uint64_t control_magic = 0x6c7274636861; /* "ahctrl" */
enum { CONTROL_VERSION = 11 };

static const size_t span_wanted = (size_t)64 << 30, span_least = (size_t)1 << 30;

/* Bytes between one segment's end and the next one's begin. AMD's first-level cache predicts the way of a line from a
 * hash of its linear address: equal offsets of two segments a power of two apart evict each other at each access, and
 * an all-reduce of 4.8 MB needs 460 us instead of 57 (Zen 4, 2026-11; Intel: no difference). Distances of 2^28 bytes
 * and their multiples collide, those of 1 to 31 times 66 MiB do not. */
static const size_t span_gap = (size_t)66 << 20;

static size_t control_bytes(int size)
{
    return sizeof(struct ah_control_header) + (size_t)size * sizeof(struct ah_rank_entry);
}

static struct ah_control_block *control_blank(void)
{
    struct ah_control_block *control = calloc(1, sizeof *control);
    if (!control)
        return NULL;
    control->fd = -1;
    control->header = MAP_FAILED;
    for (int r = 0; r < AH_MAX_RANKS; r++)
        control->segment_fd[r] = -1;
    return control;
}

static size_t segments_bytes(const struct ah_control_block *control)
{
    return (size_t)control->size * (control->segment_span + span_gap);
}

void ah_control_close(struct ah_control_block *control)
{
    if (!control)
        return;
    if (control->segment[0])
        munmap(control->segment[0], segments_bytes(control));
    for (int r = 0; r < control->size; r++) {
        if (control->segment_fd[r] >= 0)
            close(control->segment_fd[r]);
    }
    if (control->header != MAP_FAILED)
        munmap(control->header, control->bytes);
    if (control->fd >= 0)
        close(control->fd);
    free(control);
}

int ah_control_create(struct ah_control_block **out, int size)
{
    if (size < 1 || size > AH_MAX_RANKS)
        return ah_fail(AH_EINVAL, "expected 1..%d processes, got %d", AH_MAX_RANKS, size);
    struct ah_control_block *control = control_blank();
    AH_TRY_MEMORY(control, "out of memory");
    control->size = size;
    control->bytes = control_bytes(size);
    control->fd = memfd_create(AH_CONTROL_NAME, MFD_CLOEXEC);
    if (control->fd < 0 || ftruncate(control->fd, (off_t)control->bytes))
        goto failed;
    control->header = mmap(NULL, control->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control->fd, 0);
    if (control->header == MAP_FAILED)
        goto failed;
    for (int r = 0; r < size; r++) {
        int fd = memfd_create("accelhost-rank", MFD_CLOEXEC);
        if (fd < 0)
            goto failed;
        control->segment_fd[r] = ah_rank_entry(control, r)->segment_fd = fd;
        atomic_store(&ah_rank_entry(control, r)->blamed, -1);
        atomic_store(&ah_rank_entry(control, r)->counters.loss, NAN);
        if (ftruncate(fd, 2 * AH_STAGE_BYTES))
            goto failed;
    }
    struct ah_control_header *header = control->header;
    header->version = CONTROL_VERSION;
    header->size = header->local = size;
    header->seed = ah_entropy_seed();
    atomic_store(&header->first_failed, -1);
    atomic_store(&header->blocks, 1);
    /* Last, for processes that map the segment by its file: is_control acquires the members above. */
    atomic_store_explicit(&header->magic, control_magic, memory_order_release);
    *out = control;
    return 0;
failed:
    ah_fail(AH_EIO, "cannot make the job's shared memory (memfd): %s", strerror(errno));
    ah_control_close(control);
    return AH_EIO;
}

int ah_control_place(struct ah_control_block *control, const struct ah_hosts *hosts)
{
    struct ah_control_header *header = control->header;
    int first = hosts->first[hosts->mine], local = hosts->first[hosts->mine + 1] - first;
    if (hosts->count < 1 || hosts->count > AH_HOSTS_MAX || hosts->first[hosts->count] != control->size || local < 1)
        return ah_fail(AH_EINVAL, "the ranks of %d hosts do not make the job's %d", hosts->count, control->size);
    header->first = first;
    header->local = local;
    for (int r = first; r < first + local; r++)
        for (int c = 0; c < AH_MAX_GROUPS; c++) {
            struct ah_group_block *block = &ah_rank_entry(control, r)->block[c];
            atomic_store(&block->notification, (char *)header->notification - (char *)block);
        }
    control->hosts = hosts;
    return 0;
}

int ah_control_map_segments(struct ah_control_block *control)
{
    /* Address space only: pages are allocated on use. If it is limited, a smaller span does. All ranks need not
     * agree. */
    for (size_t span = span_wanted; span >= span_least; span /= 2) {
        control->segment_span = span;
        unsigned char *all = mmap(NULL, segments_bytes(control), PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED)
            continue;
        int r = 0;
        for (; r < control->size; r++) {
            control->segment[r] = all + (size_t)r * (span + span_gap);
            if (mmap(control->segment[r], span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                     control->segment_fd[r], 0) == MAP_FAILED)
                break;
        }
        if (r == control->size)
            return 0;
        munmap(all, segments_bytes(control));
        memset(control->segment, 0, sizeof control->segment);
    }
    return ah_fail(AH_ENOMEM, "cannot reserve address space for %d ranks: %s", control->size, strerror(errno));
}

int ah_control_hand_over(struct ah_control_block *control)
{
    for (int r = 0; r < control->size; r++)
        fcntl(control->segment_fd[r], F_SETFD, 0);
    fcntl(control->fd, F_SETFD, 0);
    return control->fd;
}

/* Is the mapped memory a control block of this version? */
static bool is_control(const struct ah_control_block *control)
{
    const struct ah_control_header *header = control->header;
    return atomic_load_explicit(&header->magic, memory_order_acquire) == control_magic &&
           header->version == CONTROL_VERSION && header->size >= 1 && header->size <= AH_MAX_RANKS &&
           control->bytes == control_bytes(header->size);
}

int ah_control_open(struct ah_control_block **out, int fd, int rank, const int *segments)
{
    struct stat info;
    struct ah_control_block *control = control_blank();
    int status = AH_EIO;
    AH_TRY_MEMORY(control, "out of memory");
    if (fstat(fd, &info) || (size_t)info.st_size < control_bytes(1))
        goto foreign;
    control->bytes = (size_t)info.st_size;
    control->header = mmap(NULL, control->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control->header == MAP_FAILED && errno == ENOMEM) {
        status = ah_fail(AH_ENOMEM, "cannot map the job's control block: %s", strerror(errno));
        goto failed;
    }
    if (control->header == MAP_FAILED || !is_control(control))
        goto foreign;
    if (rank < 0 || rank >= control->header->size) {
        status = ah_fail(AH_EINVAL, "RANK is %d but the job has %d ranks", rank, control->header->size);
        goto failed;
    }
    control->size = control->header->size;
    for (int r = 0; r < control->size; r++)
        control->segment_fd[r] = segments ? segments[r] : ah_rank_entry(control, r)->segment_fd;
    AH_TRYGO(ah_control_map_segments(control), failed);
    for (int r = 0; r < control->size; r++) {
        if (r == rank || (rank == control->header->first && !ah_control_is_local(control, r))) {
            fcntl(control->segment_fd[r], F_SETFD, FD_CLOEXEC);
        } else {
            close(control->segment_fd[r]);
            control->segment_fd[r] = -1;
        }
    }
    if (control->header->alone)
        control->fd = fd;
    else
        close(fd);
    *out = control;
    return 0;
foreign:
    ah_fail(AH_EIO, "ACCELHOST_CONTROL_BLOCK=%d is not the control block of a running job", fd);
failed:
    ah_control_close(control);
    return status;
}

void ah_control_look(struct ah_control_block **out, int fd)
{
    struct stat info;
    struct ah_control_block *control = control_blank();
    *out = NULL;
    if (!control)
        return;
    if (fstat(fd, &info) || (size_t)info.st_size < control_bytes(1))
        goto foreign;
    control->bytes = (size_t)info.st_size;
    control->header = mmap(NULL, control->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (control->header == MAP_FAILED || !is_control(control))
        goto foreign;
    *out = control;
    control->size = control->header->size;
    return;
foreign:
    ah_control_close(control);
}

int ah_control_grow(struct ah_control_block *control, int rank, size_t bytes)
{
    struct stat info;
    if (bytes > control->segment_span)
        return ah_fail(AH_ENOMEM, "shared memory of rank %d: %zu bytes wanted, %zu reserved", rank, bytes,
                       control->segment_span);
    if (bytes <= control->segment_bytes[rank])
        return 0;
    if (fstat(control->segment_fd[rank], &info))
        return ah_fail(AH_EIO, "shared memory of rank %d: %s", rank, strerror(errno));
    if ((size_t)info.st_size < bytes && ftruncate(control->segment_fd[rank], (off_t)bytes))
        return ah_fail(AH_ENOMEM, "shared memory of rank %d: %zu bytes: %s", rank, bytes, strerror(errno));
    control->segment_bytes[rank] = bytes;
    return 0;
}

/* A lock on the rank's byte of the control block, which goes with the process. */
static struct flock life_of(int rank)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

int ah_control_show_life(struct ah_control_block *control, int rank)
{
    struct flock life = life_of(rank);
    if (fcntl(control->fd, F_SETLK, &life))
        return ah_fail(AH_EIO, "cannot lock the job's shared memory: %s", strerror(errno));
    atomic_store(&ah_rank_entry(control, rank)->pid, (int)getpid());
    return 0;
}

bool ah_control_lost(struct ah_control_block *control, int rank)
{
    struct ah_rank_entry *slot = ah_rank_entry(control, rank);
    struct flock life = life_of(rank);
    if (!control->header->alone || control->fd < 0 || !atomic_load(&slot->pid) ||
        atomic_load(&slot->state) != AH_RANK_RUNNING || fcntl(control->fd, F_GETLK, &life) || life.l_type != F_UNLCK)
        return false;
    ah_control_leave(control, rank, AH_RANK_DIED, NULL, false);
    return true;
}

bool ah_control_replace(struct ah_control_block *control, int rank)
{
    struct ah_rank_entry *slot = ah_rank_entry(control, rank);
    int running = AH_RANK_RUNNING;
    if (!control->header->recovers || atomic_load(&slot->ended_ns) || atomic_load(&slot->group_status))
        return false;
    if (!atomic_compare_exchange_strong(&slot->state, &running, AH_RANK_RETURNING) && running != AH_RANK_RETURNING)
        return false;
    atomic_store(&slot->pid, 0);
    atomic_store(&slot->counters.answers, 0);
    atomic_store(&slot->due, 1);
    atomic_fetch_add(&slot->replaced, 1);
    return true;
}

void ah_control_return(struct ah_control_block *control, int rank)
{
    struct ah_rank_entry *slot = ah_rank_entry(control, rank);
    int returning = AH_RANK_RETURNING;
    /* Relaxed: its supervisor set it before this process began, and the exchange below decides. */
    if (atomic_load_explicit(&slot->state, memory_order_relaxed) != AH_RANK_RETURNING)
        return;
    atomic_store(&slot->returned_at, (int64_t)ah_replay_boundaries(control, rank) - 1);
    atomic_store(&slot->returned_ns, ah_now_ns());
    atomic_compare_exchange_strong(&slot->state, &returning, AH_RANK_RUNNING);
}

void ah_control_wake(struct ah_control_block *control)
{
    ah_notification_notify(&control->header->notification[AH_REPLICA]);
    for (int r = 0; r < control->size; r++)
        for (int c = 0; c < atomic_load(&control->header->blocks); c++)
            ah_group_wake(&ah_rank_entry(control, r)->block[c]);
}

/* Shorten a long text in the middle: the message is at its beginning, the script's frames at its end. */
static void keep_text(struct ah_rank_entry *slot, const char *text)
{
    static const char cut[] = "\n  (cut)\n";
    enum { ROOM = AH_RANK_TEXT - 1, TAIL = AH_RANK_TEXT / 2, HEAD = ROOM - TAIL - (int)sizeof cut + 1 };
    size_t length = strlen(text);
    if (length <= ROOM) {
        memcpy(slot->text, text, length + 1);
        return;
    }
    memcpy(slot->text, text, HEAD);
    memcpy(slot->text + HEAD, cut, sizeof cut - 1);
    memcpy(slot->text + HEAD + sizeof cut - 1, text + length - TAIL, TAIL + 1);
}

bool ah_control_leave(struct ah_control_block *control, int rank, enum ah_rank_state state, const char *text,
                      bool victim)
{
    struct ah_rank_entry *slot = ah_rank_entry(control, rank);
    int64_t none = 0;
    if (!atomic_compare_exchange_strong(&slot->ended_ns, &none, ah_now_ns()))
        return false;
    if (text)
        keep_text(slot, text);
    atomic_store(&slot->victim, victim);
    if (state != AH_RANK_ENDED && !victim) {
        int nobody = -1;
        atomic_compare_exchange_strong(&control->header->first_failed, &nobody, rank);
    }
    atomic_store(&slot->state, (int)state);
    ah_control_wake(control);
    return true;
}

bool ah_control_first_to_report(struct ah_control_block *control, int rank, uint32_t progress)
{
    uint64_t mark = (uint64_t)(rank + 1) << 32 | progress;
    return atomic_exchange(&control->header->reported, mark) != mark;
}

const struct ah_call_record *ah_control_last_call(struct ah_control_block *control, int rank, uint32_t *sequence)
{
    struct ah_rank_entry *slot = ah_rank_entry(control, rank);
    struct ah_group_block *block = &slot->block[atomic_load(&slot->latest)];
    uint32_t issued = atomic_load(&block->counter[AH_ISSUED]), first = atomic_load(&block->base);
    if (ah_reached(first, issued)) /* where a group restarts its numbers are set before its calls */
        return NULL;
    *sequence = issued - first;
    return ah_group_record(block, issued);
}
