/* SHA-256 by the cryptographic instructions of ARMv8, which compute four rounds at a time on two registers that hold
 * the state as ABCD and EFGH. */
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "base/numeric/sha256_blocks.h"

bool ah_sha256_has_instructions(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0;
}

__attribute__((target("+crypto"))) void ah_sha256_add_blocks_natively(uint32_t state[8], const unsigned char *block,
                                                                      size_t count)
{
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
    for (; count; count--, block += 64) {
        uint32x4_t abcd_before = abcd, efgh_before = efgh, w[4];
        for (int i = 0; i < 4; i++)
            w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(block + 16 * i)));
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            uint32x4_t sum = vaddq_u32(w[i % 4], vld1q_u32(&ah_sha256_constant[4 * i])), old = abcd;
            if (i < 12) /* words 16 + 4 i to 19 + 4 i of the schedule in the place of the oldest four */
                w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
            abcd = vsha256hq_u32(abcd, efgh, sum);
            efgh = vsha256h2q_u32(efgh, old, sum);
        }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}
