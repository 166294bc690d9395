/* Linked into the aarch64 program that runs under qemu-user: madvise(MADV_REMOVE), which qemu (7.2 to 10.0) accepts and
 * ignores, fails as on a file system without holes. */
#include <errno.h>
#include <sys/mman.h>

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);

int __wrap_madvise(void *at, size_t bytes, int advice)
{
    if (advice != MADV_REMOVE)
        return __real_madvise(at, bytes, advice);
    errno = EINVAL;
    return -1;
}
