/* The registers of an interrupted thread on x86-64, and its calls: the number of a system call is in rax. */
#include "bind/lua/spot.h"

#include <errno.h>
#include <ucontext.h>

struct ah_spot ah_spot_of(const void *context)
{
    const greg_t *at = ((const ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)at[REG_RIP]; /* NOLINT: the program's own code */
    struct ah_spot spot = {.code = (uintptr_t)at[REG_RIP], .stack = (uintptr_t)at[REG_RSP], .call = -1,
                           .argument = {(uintptr_t)at[REG_RDI], (uintptr_t)at[REG_RSI]}};
    if (code[0] == 0x0f && code[1] == 0x05) { /* `syscall`, which will be made again */
        spot.blocked = true;
        spot.call = (long)at[REG_RAX];
    } else if (code[-2] == 0x0f && code[-1] == 0x05 && at[REG_RAX] == -EINTR) {
        spot.blocked = true;
    }
    return spot;
}

/* LuaJIT emits two kinds of calls. */
bool ah_spot_follows_call(uintptr_t address)
{
    const unsigned char *code = (const unsigned char *)address; /* NOLINT: the program's own code */
    return code[-5] == 0xe8 || (code[-2] == 0xff && (code[-1] & 0xf8) == 0xd0);
}
