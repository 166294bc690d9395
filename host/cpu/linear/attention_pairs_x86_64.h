/* Pairs of bfloat16 by AVX512-BF16 (cpu/linear/attention_pairs.h). */
static inline ah_lanes_f32 row_factors_bf16(const uint16_t *at, bool whole)
{
    return (ah_lanes_f32)(whole ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(0xff, at));
}

static inline ah_lanes_f32 spread_factor_bf16(const char *at)
{
    int pair;
    memcpy(&pair, at, sizeof pair);
    return (ah_lanes_f32)_mm512_set1_epi32(pair);
}

static inline ah_lanes_f32 add_product_bf16(ah_lanes_f32 a, ah_lanes_f32 b, ah_lanes_f32 sum)
{
    return ah_add_pairs(a, b, sum);
}

static inline void store_items_bf16(uint16_t *to, ah_lanes_f32 x)
{
    _mm256_storeu_si256((__m256i *)(void *)to, (__m256i)_mm512_cvtneps_pbh((__m512)x));
}

static void turn_items_bf16(uint32_t *to, const uint16_t *from, int64_t step, int64_t count, int64_t width, float scale)
{
    int64_t lanes = (count + LANE_f32 - 1) / LANE_f32 * LANE_f32;
    for (int64_t i = 0; i < lanes; i += 4) {
        for (int64_t d = 0; d < width; d += 8) {
            float *at = (float *)to + d / 2 * WIDE_f32 + i;
            __m128 row[4];
            for (int64_t k = 0; k < 4; k++)
                row[k] = i + k < count ? _mm_loadu_ps((const float *)(const void *)(from + (i + k) * step + d))
                                       : _mm_setzero_ps();
            _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
            for (int64_t k = 0; k < 4; k++)
                _mm_storeu_ps(at + k * WIDE_f32, row[k]);
        }
    }
}

static const uint32_t *factor_rows_bf16(uint32_t *room, const uint16_t *rows, int64_t step, int64_t count,
                                        int64_t width, int64_t *row)
{
    *row = width;
    for (int64_t i = 0; i < count; i += 2, rows += 2 * step) {
        for (int64_t d = 0; d < width; d += 16) {
            __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(rows + d)));
            __m512i high = _mm512_setzero_si512();
            if (i + 1 < count)
                high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(rows + step + d)));
            _mm512_storeu_si512(room + i / 2 * width + d, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
    }
    return room;
}

static const uint32_t *factor_scores_bf16(uint32_t *room, const float *scores, int64_t keys, int64_t lanes)
{
    const __m512i even = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order = _mm512_or_si512(even, _mm512_slli_epi32(_mm512_add_epi32(even, _mm512_set1_epi32(16)), 16));
    for (int64_t j = 0; j < keys; j += 2, scores += 2 * WIDE_f32) {
        for (int64_t i = 0; i < lanes; i += 16) {
            __m512 second = j + 1 < keys ? _mm512_loadu_ps(scores + WIDE_f32 + i) : _mm512_setzero_ps();
            __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, _mm512_loadu_ps(scores + i));
            _mm512_storeu_si512(room + j / 2 * WIDE_f32 + i, _mm512_permutexvar_epi16(order, both));
        }
    }
    return room;
}
