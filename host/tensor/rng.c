/* The generator: mt19937 and the distributions drawn from it, number for number PyTorch's on the CPU, in blocks that
 * vectorise. Invariant: the rest of a block is used, so that draws of any sizes are from one stream. */
#include "tensor/rng.h"

#include <math.h>
#include <string.h>

#include "base/numeric/bits.h"
#include "base/numeric/polynomial.h"
#include "base/process/entropy.h"
#include "base/status/status.h"

enum { SHIFT = 397, BATCH = 1024 };

static struct ah_generator default_generator, *stand_in;

struct ah_generator *ah_default_generator(void)
{
    static bool ready;
    if (stand_in)
        return stand_in;
    if (!ready) {
        ah_generator_seed(&default_generator, ah_entropy_seed());
        ready = true;
    }
    return &default_generator;
}

struct ah_generator *ah_generator_stand_in(struct ah_generator *g)
{
    struct ah_generator *before = stand_in;
    stand_in = g;
    return before;
}

void ah_generator_seed(struct ah_generator *g, uint64_t seed)
{
    g->seed = seed;
    g->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < AH_RNG_WORDS; i++)
        g->state[i] = 1812433253u * (g->state[i - 1] ^ g->state[i - 1] >> 30) + i;
    g->next = AH_RNG_WORDS;
    g->has_normal = false;
    g->normal = 0;
}

uint64_t ah_generator_seed_any(struct ah_generator *g)
{
    uint64_t seed = ah_entropy_seed();
    ah_generator_seed(g, seed);
    return seed;
}

static inline uint32_t rng_twist(uint32_t above, uint32_t below)
{
    uint32_t mixed = (above & 0x80000000u) | (below & 0x7fffffffu);
    return mixed >> 1 ^ ((0u - (below & 1u)) & 0x9908b0dfu);
}

/* Each word depends on the old next word and on one SHIFT further on: cut where the latter wraps around, both loops
 * are free of dependences at vector length. */
static void next_block(struct ah_generator *g)
{
    uint32_t *s = g->state;
    for (int k = 0; k < AH_RNG_WORDS - SHIFT; k++)
        s[k] = s[k + SHIFT] ^ rng_twist(s[k], s[k + 1]);
    for (int k = AH_RNG_WORDS - SHIFT; k < AH_RNG_WORDS - 1; k++)
        s[k] = s[k - (AH_RNG_WORDS - SHIFT)] ^ rng_twist(s[k], s[k + 1]);
    s[AH_RNG_WORDS - 1] = s[SHIFT - 1] ^ rng_twist(s[AH_RNG_WORDS - 1], s[0]);
    g->next = 0;
}

static inline uint32_t rng_temper(uint32_t y)
{
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

uint32_t ah_generator_u32(struct ah_generator *g)
{
    if (g->next == AH_RNG_WORDS)
        next_block(g);
    return rng_temper(g->state[g->next++]);
}

uint64_t ah_generator_u64(struct ah_generator *g)
{
    uint64_t high = ah_generator_u32(g);
    return high << 32 | ah_generator_u32(g);
}

static inline float unit_float(uint32_t draw)
{
    return (float)(int32_t)(draw & 0xffffffu) * 0x1p-24f;
}

static inline double unit_double(uint64_t draw)
{
    return (double)(int64_t)(draw & ((1ull << 53) - 1)) * 0x1p-53;
}

float ah_generator_float(struct ah_generator *g)
{
    return unit_float(ah_generator_u32(g));
}

double ah_generator_double(struct ah_generator *g)
{
    return unit_double(ah_generator_u64(g));
}

double ah_generator_normal(struct ah_generator *g, double mean, double std)
{
    if (g->has_normal) {
        g->has_normal = false;
        return g->normal * std + mean;
    }
    double u1 = ah_generator_double(g), u2 = ah_generator_double(g);
    double radius = sqrt(-2.0 * log(1.0 - u2)), theta = 2.0 * M_PI * u1;
    g->normal = radius * sin(theta);
    g->has_normal = true;
    return radius * cos(theta) * std + mean;
}

uint64_t ah_generator_draw_seed(struct ah_generator *g)
{
    return ah_generator_u64(g) & ~(1ull << 63);
}

void ah_generator_skip(struct ah_generator *g, int64_t n)
{
    while (n > AH_RNG_WORDS - g->next) {
        n -= AH_RNG_WORDS - g->next;
        next_block(g);
    }
    g->next += (int)n;
}

void ah_generator_fill_u32(struct ah_generator *g, uint32_t *out, int64_t n)
{
    while (n > 0) {
        if (g->next == AH_RNG_WORDS)
            next_block(g);
        int64_t count = AH_RNG_WORDS - g->next < n ? AH_RNG_WORDS - g->next : n;
        const uint32_t *restrict from = g->state + g->next;
        uint32_t *restrict to = out;
        for (int64_t i = 0; i < count; i++)
            to[i] = rng_temper(from[i]);
        g->next += (int)count;
        out += count;
        n -= count;
    }
}

void ah_generator_fill_uniform_f32(struct ah_generator *g, float *out, int64_t n, double from, double to)
{
    uint32_t draw[BATCH];
    float base = (float)from, range = (float)to - (float)from;
    for (int64_t done = 0; done < n; done += BATCH) {
        int count = (int)(n - done < BATCH ? n - done : BATCH);
        ah_generator_fill_u32(g, draw, count);
        for (int i = 0; i < count; i++)
            out[done + i] = fmaf(unit_float(draw[i]), range, base);
    }
}

/* Draws 2 i and 2 i + 1 as one number. */
static inline uint64_t rng_pair(const uint32_t *draw, int i)
{
    return (uint64_t)draw[2 * i] << 32 | draw[2 * i + 1];
}

void ah_generator_fill_uniform_f64(struct ah_generator *g, double *out, int64_t n, double from, double to)
{
    uint32_t draw[BATCH];
    double range = to - from;
    for (int64_t done = 0; done < n; done += BATCH / 2) {
        int count = (int)(n - done < BATCH / 2 ? n - done : BATCH / 2);
        ah_generator_fill_u32(g, draw, 2 * count);
        for (int i = 0; i < count; i++)
            out[done + i] = fma(unit_double(rng_pair(draw, i)), range, from);
    }
}

void ah_generator_fill_keep(struct ah_generator *g, uint8_t *out, int64_t n, double keep_prob)
{
    uint32_t draw[BATCH];
    /* draw * 2^-53 < p exactly when draw < ceil(p * 2^53). */
    uint64_t limit = (uint64_t)ceil(keep_prob * 0x1p53), mask = (1ull << 53) - 1;
    for (int64_t done = 0; done < n; done += BATCH / 2) {
        int count = (int)(n - done < BATCH / 2 ? n - done : BATCH / 2);
        ah_generator_fill_u32(g, draw, 2 * count);
        for (int i = 0; i < count; i++)
            out[done + i] = (rng_pair(draw, i) & mask) < limit;
    }
}

void ah_generator_fill_range(struct ah_generator *g, int64_t *out, int64_t n, int64_t low, int64_t high)
{
    uint64_t range = (uint64_t)high - (uint64_t)low;
    for (int64_t i = 0; i < n; i++) {
        uint64_t draw = range >= 1ull << 28 ? ah_generator_u64(g) % range : ah_generator_u32(g) % range;
        out[i] = (int64_t)((uint64_t)low + draw);
    }
}

void ah_generator_fill_permutation(struct ah_generator *g, int64_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        int64_t z = i + (int64_t)(ah_generator_u32(g) % (uint64_t)(n - i));
        int64_t kept = out[i];
        out[i] = out[z];
        out[z] = kept;
    }
}

/* Box-Muller on blocks of 16 with the Cephes logarithm, sine and cosine that PyTorch's AVX2 build uses, operation by
 * operation (multiply-adds where its compiler fuses them): the same normal numbers to the last bit. */

static inline float cephes_logf(float x)
{
    x = x > 0x1p-126f ? x : 0x1p-126f;
    uint32_t bits = ah_float_bits(x);
    float e = (float)((int32_t)(bits >> 23) - 0x7f) + 1.0f;
    x = ah_bits_float((bits & 0x807fffffu) | 0x3f000000u);
    uint32_t below = x < 0.707106781186547524f ? 0xffffffffu : 0;
    float extra = ah_bits_float(ah_float_bits(x) & below);
    x -= 1.0f;
    e -= ah_bits_float(0x3f800000u & below);
    x += extra;
    float z = x * x;
    float y = AH_HORNER(fmaf, x, 7.0376836292E-2f, -1.1514610310E-1f, 1.1676998740E-1f, -1.2420140846E-1f,
                        1.4249322787E-1f, -1.6668057665E-1f, 2.0000714765E-1f, -2.4999993993E-1f, 3.3333331174E-1f);
    y *= x;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(-z, 0.5f, y);
    x += y;
    return fmaf(e, 0.693359375f, x);
}

/* x >= 0 only, which is all that is needed here. */
static inline void cephes_sincosf(float x, float *sine, float *cosine)
{
    int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
    float y = (float)octant;
    uint32_t sine_sign = ((uint32_t)octant & 4u) << 29;
    uint32_t cosine_sign = (~((uint32_t)octant - 2u) & 4u) << 29;
    bool straight = ((uint32_t)octant & 2u) == 0;
    x = fmaf(y, -0.78515625f, x);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = 2.443315711809948E-005f;
    c = fmaf(c, z, -1.388731625493765E-003f);
    c = fmaf(c, z, 4.166664568298827E-002f);
    c *= z;
    c = fmaf(c, z, -(z * 0.5f));
    c += 1.0f;
    float s = -1.9515295891E-4f;
    s = fmaf(s, z, 8.3321608736E-3f);
    s = fmaf(s, z, -1.6666654611E-1f);
    s *= z;
    s = fmaf(s, x, x);
    *sine = ah_bits_float(ah_float_bits(straight ? s : c) ^ sine_sign);
    *cosine = ah_bits_float(ah_float_bits(straight ? c : s) ^ cosine_sign);
}

static void normal_16_f32(float *data, float mean, float std)
{
    for (int j = 0; j < 8; j++) {
        float radius = sqrtf(-2.0f * cephes_logf(1.0f - data[j]));
        float sine, cosine;
        cephes_sincosf(6.28318530717958647692f * data[j + 8], &sine, &cosine);
        data[j] = fmaf(radius * cosine, std, mean);
        data[j + 8] = fmaf(radius * sine, std, mean);
    }
}

static void normal_16_f64(double *data, double mean, double std)
{
    for (int j = 0; j < 8; j++) {
        double radius = sqrt(-2.0 * log(1.0 - data[j])), theta = 2.0 * M_PI * data[j + 8];
        data[j] = fma(radius * cos(theta), std, mean);
        data[j + 8] = fma(radius * sin(theta), std, mean);
    }
}

void ah_generator_fill_normal_f32(struct ah_generator *g, float *out, int64_t n, double mean, double std)
{
    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)ah_generator_normal(g, mean, std);
        return;
    }
    ah_generator_fill_uniform_f32(g, out, n, 0, 1);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        normal_16_f32(out + i, (float)mean, (float)std);
    if (n % 16) {
        ah_generator_fill_uniform_f32(g, out + n - 16, 16, 0, 1);
        normal_16_f32(out + n - 16, (float)mean, (float)std);
    }
}

void ah_generator_fill_normal_f64(struct ah_generator *g, double *out, int64_t n, double mean, double std)
{
    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = ah_generator_normal(g, mean, std);
        return;
    }
    ah_generator_fill_uniform_f64(g, out, n, 0, 1);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        normal_16_f64(out + i, mean, std);
    if (n % 16) {
        ah_generator_fill_uniform_f64(g, out + n - 16, 16, 0, 1);
        normal_16_f64(out + n - 16, mean, std);
    }
}

/* PyTorch's CPUGeneratorImplState: words are kept in 64 bits, `left` counts down from 624 and is 1 when a block is
 * used up. */
struct pytorch_state {
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next, state[AH_RNG_WORDS];
    double normal_x, normal_y, normal_rho;
    int32_t normal_is_valid, pad;
    float next_float_normal;
    uint8_t float_normal_is_valid, tail[3];
};
_Static_assert(sizeof(struct pytorch_state) == AH_RNG_STATE_BYTES, "the layout of PyTorch's generator state");

void ah_generator_get_state(const struct ah_generator *g, uint8_t *bytes)
{
    struct pytorch_state s;
    memset(&s, 0, sizeof s);
    s.seed = g->seed;
    s.seeded = 1;
    /* A fresh generator reads (left 1, next 0) there, a used-up block (1, 624); both make the next block first. */
    s.left = g->next == AH_RNG_WORDS ? 1 : AH_RNG_WORDS + 1 - g->next;
    s.next = (uint64_t)g->next;
    for (int i = 0; i < AH_RNG_WORDS; i++)
        s.state[i] = g->state[i];
    s.normal_is_valid = g->has_normal;
    s.normal_y = g->has_normal ? g->normal : 0;
    memcpy(bytes, &s, sizeof s);
}

int ah_generator_set_state(struct ah_generator *g, const uint8_t *bytes, int64_t count)
{
    struct pytorch_state s;
    if (count != AH_RNG_STATE_BYTES)
        return ah_fail(AH_EINVAL, "generator state: expected %d bytes, got %lld", AH_RNG_STATE_BYTES, (long long)count);
    memcpy(&s, bytes, sizeof s);
    bool used_up = s.left == 1;
    if (!s.seeded || s.left < 1 || s.left > AH_RNG_WORDS || s.next > AH_RNG_WORDS ||
        (!used_up && s.left + (int64_t)s.next != AH_RNG_WORDS + 1))
        return ah_fail(AH_EINVAL, "generator state: these bytes are not the state of a generator");
    for (int i = 0; i < AH_RNG_WORDS; i++)
        g->state[i] = (uint32_t)s.state[i];
    g->seed = s.seed;
    g->next = used_up ? AH_RNG_WORDS : (int)s.next;
    g->has_normal = s.normal_is_valid != 0;
    g->normal = s.normal_y;
    return 0;
}
