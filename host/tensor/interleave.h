/* Vectors of eight 2-byte items, and the interleaving of the lower or upper halves of two: items of 16, 32 or 64 bits
 * of the first, each before one of the second. */
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <emmintrin.h>

typedef __m128i ah_items_16;

#define ah_items_load(from) _mm_loadu_si128((const void *)(from))
#define ah_items_store(to, items) _mm_storeu_si128((void *)(to), items)
#define ah_interleave_low_16 _mm_unpacklo_epi16
#define ah_interleave_high_16 _mm_unpackhi_epi16
#define ah_interleave_low_32 _mm_unpacklo_epi32
#define ah_interleave_high_32 _mm_unpackhi_epi32
#define ah_interleave_low_64 _mm_unpacklo_epi64
#define ah_interleave_high_64 _mm_unpackhi_epi64
#else
#include <arm_neon.h>

typedef uint16x8_t ah_items_16;

#define ah_items_load vld1q_u16
#define ah_items_store vst1q_u16
#define ah_interleave_low_16 vzip1q_u16
#define ah_interleave_high_16 vzip2q_u16

#define AH_INTERLEAVE(name, zip, bits)                                                                        \
    static inline uint16x8_t name(uint16x8_t a, uint16x8_t b)                                                 \
    {                                                                                                         \
        return vreinterpretq_u16_u##bits(                                                                     \
            zip##_u##bits(vreinterpretq_u##bits##_u16(a), vreinterpretq_u##bits##_u16(b)));                   \
    }
AH_INTERLEAVE(ah_interleave_low_32, vzip1q, 32)
AH_INTERLEAVE(ah_interleave_high_32, vzip2q, 32)
AH_INTERLEAVE(ah_interleave_low_64, vzip1q, 64)
AH_INTERLEAVE(ah_interleave_high_64, vzip2q, 64)
#undef AH_INTERLEAVE
#endif
