/* Pairs of bfloat16 by bfdot (cpu/linear/attention_pairs.h). */
static inline ah_lanes_f32 row_factors_bf16(const uint16_t *at, bool whole)
{
    return (ah_lanes_f32)vld1q_u16(at);
}

static inline ah_lanes_f32 spread_factor_bf16(const char *at)
{
    uint32_t pair;
    memcpy(&pair, at, sizeof pair);
    return (ah_lanes_f32)vdupq_n_u32(pair);
}

static inline ah_lanes_f32 add_product_bf16(ah_lanes_f32 a, ah_lanes_f32 b, ah_lanes_f32 sum)
{
    return ah_add_pairs(a, b, sum);
}

static inline void store_items_bf16(uint16_t *to, ah_lanes_f32 x)
{
    vst1_u16(to, (uint16x4_t)vcvt_bf16_f32((float32x4_t)x));
}

/* The items of `low`, each before the one of `high`. */
static inline uint32x4_t interleave_bf16(uint16x4_t low, uint16x4_t high)
{
    return vorrq_u32(vmovl_u16(low), vshlq_n_u32(vmovl_u16(high), 16));
}

static void turn_items_bf16(uint32_t *to, const uint16_t *from, int64_t step, int64_t count, int64_t width, float scale)
{
    int64_t lanes = (count + LANE_f32 - 1) / LANE_f32 * LANE_f32;
    for (int64_t i = 0; i < lanes; i += 4) {
        for (int64_t d = 0; d < width; d += 8) {
            uint32_t *at = to + d / 2 * WIDE_f32 + i;
            uint32x4_t row[4];
            for (int64_t k = 0; k < 4; k++)
                row[k] = i + k < count ? vreinterpretq_u32_u16(vld1q_u16(from + (i + k) * step + d)) : vdupq_n_u32(0);
            uint32x4x2_t first = vzipq_u32(row[0], row[2]), second = vzipq_u32(row[1], row[3]);
            uint32x4x2_t upper = vzipq_u32(first.val[0], second.val[0]), lower = vzipq_u32(first.val[1], second.val[1]);
            vst1q_u32(at, upper.val[0]);
            vst1q_u32(at + WIDE_f32, upper.val[1]);
            vst1q_u32(at + 2 * WIDE_f32, lower.val[0]);
            vst1q_u32(at + 3 * WIDE_f32, lower.val[1]);
        }
    }
}

static const uint32_t *factor_rows_bf16(uint32_t *room, const uint16_t *rows, int64_t step, int64_t count,
                                        int64_t width, int64_t *row)
{
    *row = width;
    for (int64_t i = 0; i < count; i += 2, rows += 2 * step)
        for (int64_t d = 0; d < width; d += 4)
            vst1q_u32(room + i / 2 * width + d,
                      interleave_bf16(vld1_u16(rows + d), i + 1 < count ? vld1_u16(rows + step + d) : vdup_n_u16(0)));
    return room;
}

static const uint32_t *factor_scores_bf16(uint32_t *room, const float *scores, int64_t keys, int64_t lanes)
{
    for (int64_t j = 0; j < keys; j += 2, scores += 2 * WIDE_f32)
        for (int64_t i = 0; i < lanes; i += 4) {
            float32x4_t second = j + 1 < keys ? vld1q_f32(scores + WIDE_f32 + i) : vdupq_n_f32(0);
            vst1q_u32(room + j / 2 * WIDE_f32 + i, interleave_bf16((uint16x4_t)vcvt_bf16_f32(vld1q_f32(scores + i)),
                                                                   (uint16x4_t)vcvt_bf16_f32(second)));
        }
    return room;
}
