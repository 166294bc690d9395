/* The kernel stores all vector registers in a handler's frame: 0.8 KiB with AVX, 2.7 KiB with AVX-512, 11 KiB where AMX
 * is in use (AT_MINSIGSTKSZ). The mapping is never unmapped: threads that have one end with the process. */
#include "base/process/signal_stack.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status/status.h"

enum { LEAST = 64 * 1024, FRAMES = 8, MINIMAL_ENTRY = 51 /* AT_MINSIGSTKSZ, which older headers lack */ };

int ah_signal_stack_set_up(void)
{
    stack_t now;
    if (!sigaltstack(NULL, &now) && !(now.ss_flags & SS_DISABLE))
        return 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = FRAMES * getauxval(MINIMAL_ENTRY);
    bytes = ((bytes > LEAST ? bytes : LEAST) + page - 1) / page * page;
    char *memory = mmap(NULL, page + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        return ah_fail(AH_ENOMEM, "cannot map %zu bytes for a signal stack: %s", page + bytes, strerror(errno));
    if (mprotect(memory + page, bytes, PROT_READ | PROT_WRITE) ||
        sigaltstack(&(stack_t){.ss_sp = memory + page, .ss_size = bytes}, NULL)) {
        int error = errno;
        munmap(memory, page + bytes);
        return ah_fail(AH_EIO, "cannot set up a signal stack: %s", strerror(error));
    }
    return 0;
}
