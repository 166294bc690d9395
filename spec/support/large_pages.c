/* LD_PRELOAD=large_pages.so LARGE_PAGES=BYTES PROGRAM: the memory calls of a program and its libraries behave as where
 * a page has that size: sysconf reports it, addresses and offsets that are not its multiples are refused with EINVAL,
 * and lengths are rounded up to it, so that a call on a part of a page also changes the rest. The calls that the C
 * library makes itself (malloc, threads, loading) are not changed. Each refused call is a line on stderr. */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t page = 4096;

__attribute__((constructor)) static void read_size(void)
{
    const char *text = getenv("LARGE_PAGES");
    page = text ? strtoul(text, NULL, 10) : page;
}

static size_t rounded(size_t bytes)
{
    return (bytes + page - 1) / page * page;
}

static int refuse(const char *call, uintptr_t value)
{
    char line[128];
    int length = snprintf(line, sizeof line, "large_pages: %s: %#zx is not a multiple of %zu\n", call, (size_t)value,
                          page);
    if (write(2, line, (size_t)length) < 0)
        abort();
    errno = EINVAL;
    return -1;
}

static void *map(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    int fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
    if ((fixed && (uintptr_t)at % page) || (size_t)offset % page)
        return refuse("mmap", fixed ? (uintptr_t)at : (uintptr_t)offset) ? MAP_FAILED : NULL;
    if (fixed || (at && (uintptr_t)at % page == 0))
        return map(at, rounded(bytes), protection, flags, file, offset);
    /* Room for an aligned address; then the mapping itself at that address. */
    char *room = map(NULL, rounded(bytes) + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return room;
    size_t lead = (page - (uintptr_t)room % page) % page;
    void *made = map(room + lead, rounded(bytes), protection, flags | MAP_FIXED, file, offset);
    if (made == MAP_FAILED)
        lead = page;
    if (lead)
        syscall(SYS_munmap, room, made == MAP_FAILED ? rounded(bytes) + page : lead);
    if (lead < page)
        syscall(SYS_munmap, room + lead + rounded(bytes), page - lead);
    return made;
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return mmap(at, bytes, protection, flags, file, offset);
}

int munmap(void *at, size_t bytes)
{
    if ((uintptr_t)at % page)
        return refuse("munmap", (uintptr_t)at);
    return (int)syscall(SYS_munmap, at, rounded(bytes));
}

void *mremap(void *at, size_t before, size_t bytes, int flags, ...)
{
    if ((uintptr_t)at % page || flags & MREMAP_FIXED)
        return refuse("mremap", (uintptr_t)at) ? MAP_FAILED : NULL;
    void *same = (void *)syscall(SYS_mremap, at, rounded(before), rounded(bytes), 0);
    if (same != MAP_FAILED || !(flags & MREMAP_MAYMOVE))
        return same;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return room;
    return (void *)syscall(SYS_mremap, at, rounded(before), rounded(bytes), MREMAP_MAYMOVE | MREMAP_FIXED, room);
}

int mprotect(void *at, size_t bytes, int protection)
{
    if ((uintptr_t)at % page)
        return refuse("mprotect", (uintptr_t)at);
    return (int)syscall(SYS_mprotect, at, rounded(bytes), protection);
}

int madvise(void *at, size_t bytes, int advice)
{
    if ((uintptr_t)at % page)
        return refuse("madvise", (uintptr_t)at);
    return (int)syscall(SYS_madvise, at, rounded(bytes), advice);
}

long sysconf(int name)
{
    long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE ? (long)page : next(name);
}

int getpagesize(void)
{
    return (int)page;
}
