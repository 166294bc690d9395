/* SHA-256 by the SHA instructions of x86, which compute four rounds at a time on two registers that hold the state as
 * ABEF and CDGH. They are six times as fast (1.4 GB/s, plain C 230 MB/s). */
#include <cpuid.h>
#include <immintrin.h>

#include "base/numeric/sha256_blocks.h"

bool ah_sha256_has_instructions(void)
{
    unsigned eax, ebx = 0, ecx = 0, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_SSSE3) || !(ecx & bit_SSE4_1))
        return false;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & 1u << 29);
}

/* Rounds 4 i to 4 i + 3, and words 16 + 4 i to 19 + 4 i of the schedule in the place of the oldest four. */
__attribute__((target("sha,sse4.1"), always_inline)) static inline void four_rounds(__m128i *abef, __m128i *cdgh,
                                                                                    __m128i w[4], int i)
{
    __m128i sum = _mm_add_epi32(w[i % 4], _mm_loadu_si128((const __m128i *)&ah_sha256_constant[4 * i]));
    *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
    *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sum, 0x0e));
    if (i < 12) {
        __m128i seventh = _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4);
        __m128i older = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]), seventh);
        w[i % 4] = _mm_sha256msg2_epu32(older, w[(i + 3) % 4]);
    }
}

__attribute__((target("sha,sse4.1"))) void ah_sha256_add_blocks_natively(uint32_t state[8],
                                                                         const unsigned char *block, size_t count)
{
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i *at = (__m128i *)state;
    __m128i dcba = _mm_loadu_si128(at), hgfe = _mm_loadu_si128(at + 1);
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; count; count--, block += 64) {
        __m128i abef_before = abef, cdgh_before = cdgh, w[4];
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block + i), order);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            four_rounds(&abef, &cdgh, w, i);
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128(at, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(at + 1, _mm_alignr_epi8(dchg, feba, 8));
}
