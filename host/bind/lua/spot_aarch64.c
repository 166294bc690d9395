/* The registers of an interrupted thread on aarch64, and its calls: a system call is svc, its number is in x8. */
#include "bind/lua/spot.h"

#include <errno.h>
#include <ucontext.h>

enum { NUMBER = 8, LINK = 30 }; /* registers: the call's number, the return address */

static const uint32_t spot_svc = 0xd4000001; /* svc #0 */

struct ah_spot ah_spot_of(const void *context)
{
    const mcontext_t *at = &((const ucontext_t *)context)->uc_mcontext;
    const uint32_t *code = (const uint32_t *)at->pc; /* NOLINT: the program's own code */
    struct ah_spot spot = {.code = at->pc, .stack = at->sp, .link = at->regs[LINK], .call = -1,
                           .argument = {at->regs[0], at->regs[1]}};
    if (code[0] == spot_svc) { /* it will be made again */
        spot.blocked = true;
        spot.call = (long)at->regs[NUMBER];
    } else if (code[-1] == spot_svc && (long)at->regs[0] == -EINTR) {
        spot.blocked = true;
    }
    return spot;
}

/* bl or blr. */
bool ah_spot_follows_call(uintptr_t address)
{
    uint32_t code = ((const uint32_t *)address)[-1]; /* NOLINT: the program's own code */
    return (code & 0xfc000000) == 0x94000000 || (code & 0xfffffc1f) == 0xd63f0000;
}
