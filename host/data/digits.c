/* A digit is a skeleton of strokes, posed at random; a pixel's ink follows its distance to the nearest stroke.
 * Invariant: every sample draws from its own stream, by arithmetic with the same bits on every machine. */
#include "data/digits.h"

#include <math.h>
#include <string.h>

#include "base/process/parallel.h"

/* Skeletons live in a box of 100 x 100 units, x to the right, y down. A stroke is a list of points, ended by END;
 * a curve passes smoothly through its points, a line has corners at them. A glyph is a list of strokes, ended by
 * an empty one. */
enum { END = -1, MAX_POINTS = 14, MAX_STROKES = 4, VARIANTS = 3, SPAN_PIECES = 3, ROW = 32 };

struct stroke {
    enum { NONE, LINE, CURVE } kind;
    signed char xy[2 * MAX_POINTS + 1];
};

static const struct stroke glyphs[10][VARIANTS][MAX_STROKES] = {
    {
        {{CURVE, {50, 5, 25, 20, 18, 50, 25, 80, 50, 95, 75, 80, 82, 50, 75, 20, 50, 5, END}}},
        {{CURVE, {60, 5, 36, 18, 26, 50, 30, 82, 46, 95, 66, 82, 75, 50, 72, 20, 54, 6, END}}},
        {{CURVE, {40, 8, 22, 30, 22, 68, 42, 94, 66, 88, 80, 58, 74, 22, 52, 6, 38, 14, END}}},
    },
    {
        {{LINE, {50, 5, 50, 95, END}}},
        {{LINE, {34, 26, 54, 5, 54, 95, END}}},
        {{LINE, {34, 24, 52, 6, 52, 94, END}}, {LINE, {28, 94, 76, 94, END}}},
    },
    {
        {{CURVE, {22, 28, 32, 10, 52, 5, 72, 14, 75, 34, 62, 55, 40, 75, 20, 94, END}}, {LINE, {20, 94, 80, 94, END}}},
        {{CURVE, {24, 24, 44, 6, 68, 14, 70, 38, 50, 64, 28, 88, 20, 90, 24, 78, 42, 82, 60, 93, 84, 86, END}}},
        {{CURVE, {20, 18, 48, 5, 74, 22, 66, 48, 22, 92, END}}, {CURVE, {22, 92, 50, 86, 80, 95, END}}},
    },
    {
        {{CURVE, {22, 15, 45, 5, 70, 14, 70, 35, 42, 48, END}},
         {CURVE, {42, 48, 72, 55, 80, 75, 60, 93, 35, 95, 18, 84, END}}},
        {{LINE, {22, 8, 76, 8, 45, 42, END}}, {CURVE, {45, 42, 72, 50, 78, 72, 60, 92, 38, 95, 20, 85, END}}},
        {{CURVE, {26, 12, 52, 6, 66, 22, 58, 40, 38, 46, END}},
         {CURVE, {38, 46, 64, 50, 72, 68, 60, 88, 36, 96, 20, 92, END}}},
    },
    {
        {{LINE, {62, 5, 18, 62, 86, 62, END}}, {LINE, {62, 5, 62, 95, END}}},
        {{LINE, {28, 8, 20, 55, 80, 52, END}}, {LINE, {72, 8, 68, 95, END}}},
        {{CURVE, {30, 6, 24, 34, 28, 50, 50, 54, 74, 46, END}}, {LINE, {76, 8, 70, 50, 66, 95, END}}},
    },
    {
        {{LINE, {76, 7, 32, 7, 28, 45, END}}, {CURVE, {28, 45, 50, 38, 74, 50, 78, 72, 60, 92, 38, 95, 20, 85, END}}},
        {{LINE, {70, 6, 38, 8, 32, 42, END}}, {CURVE, {32, 42, 56, 44, 70, 62, 62, 84, 44, 95, 22, 88, END}}},
        {{CURVE, {36, 10, 28, 32, 34, 44, 58, 48, 74, 68, 56, 92, 24, 90, END}}, {LINE, {36, 10, 80, 6, END}}},
    },
    {
        {{CURVE, {66, 8, 42, 22, 26, 50, 24, 75, 40, 94, 62, 92, 74, 75, 66, 57, 46, 53, 28, 66, END}}},
        {{CURVE, {58, 5, 38, 30, 28, 60, 32, 85, 50, 95, 70, 85, 70, 65, 52, 56, 32, 68, END}}},
        {{CURVE, {44, 5, 28, 40, 24, 74, 42, 95, 66, 88, 68, 68, 50, 58, 28, 72, END}}},
    },
    {
        {{LINE, {20, 8, 80, 8, 42, 95, END}}},
        {{LINE, {22, 8, 78, 8, 44, 95, END}}, {LINE, {34, 50, 74, 50, END}}},
        {{CURVE, {20, 18, 40, 8, 76, 10, END}}, {CURVE, {76, 10, 58, 40, 48, 70, 46, 95, END}}},
    },
    {
        {{CURVE, {50, 48, 28, 32, 30, 12, 50, 5,  70, 12, 72, 32, 50, 48,
                  26, 65, 24, 85, 50, 95, 76, 85, 74, 65, 50, 48, END}}},
        {{CURVE, {72, 16, 50, 5,  30, 15, 36, 36, 58, 52, 74, 70, 66, 90,
                  44, 95, 26, 82, 34, 62, 54, 46, 70, 32, 72, 16, END}}},
        {{CURVE, {50, 6, 32, 16, 34, 38, 52, 44, 68, 34, 66, 14, 50, 6, END}},
         {CURVE, {52, 44, 28, 58, 24, 82, 48, 95, 74, 84, 74, 58, 52, 44, END}}},
    },
    {
        {{CURVE, {74, 30, 62, 10, 42, 6, 25, 20, 26, 40, 45, 50, 65, 42, 74, 30, END}},
         {LINE, {74, 30, 72, 60, 62, 95, END}}},
        {{CURVE, {72, 26, 52, 6, 30, 16, 30, 40, 52, 48, 72, 26, END}}, {CURVE, {72, 26, 72, 58, 58, 86, 30, 94, END}}},
        {{CURVE, {70, 14, 44, 6, 26, 26, 34, 46, 58, 44, 70, 14, END}}, {LINE, {70, 14, 66, 95, END}}},
    },
};

/* A counter-based generator: the finaliser of splitmix64 over key + n * golden ratio. */
static uint64_t digits_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t digits_next(uint64_t *state)
{
    return digits_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static float digits_uniform(uint64_t *state, float low, float high)
{
    return low + (high - low) * ((float)(digits_next(state) >> 40) * 0x1p-24f);
}

struct point {
    float x, y;
};

/* From the unit box to pixels: a slight bend, then shear, scale, rotation, shift. */
struct pose {
    float bend_x, bend_y, shear, width, height, sine, cosine, shift_x, shift_y, jitter;
};

static struct pose draw_pose(uint64_t *random)
{
    struct pose pose;
    float size = digits_uniform(random, 7.0f, 10.5f);
    float aspect = digits_uniform(random, 0.75f, 1.15f);
    float turn = digits_uniform(random, -0.32f, 0.32f), square = turn * turn;
    pose.width = size * aspect;
    pose.height = size;
    pose.shear = digits_uniform(random, -0.35f, 0.35f);
    pose.bend_x = digits_uniform(random, -0.15f, 0.15f);
    pose.bend_y = digits_uniform(random, -0.12f, 0.12f);
    /* Series, exact to float at these angles, rather than the C library's: the same bits with every library. */
    pose.sine = turn * (1.0f - square / 6.0f * (1.0f - square / 20.0f));
    pose.cosine = 1.0f - square / 2.0f * (1.0f - square / 12.0f);
    pose.shift_x = digits_uniform(random, -2.5f, 2.5f);
    pose.shift_y = digits_uniform(random, -2.5f, 2.5f);
    pose.jitter = digits_uniform(random, 0.0f, 0.11f);
    return pose;
}

static struct point digits_place(const struct pose *pose, struct point at, uint64_t *random)
{
    float x = at.x / 50.0f - 1.0f + digits_uniform(random, -pose->jitter, pose->jitter);
    float y = at.y / 50.0f - 1.0f + digits_uniform(random, -pose->jitter, pose->jitter);
    float bent_x = (x + pose->bend_x * (y * y - 0.5f) - pose->shear * y) * pose->width;
    float bent_y = (y + pose->bend_y * (x * x - 0.5f)) * pose->height;
    return (struct point){13.5f + pose->shift_x + pose->cosine * bent_x - pose->sine * bent_y,
                          13.5f + pose->shift_y + pose->sine * bent_x + pose->cosine * bent_y};
}

/* Lower `distance` (squared, per pixel) to that of the segment a-b wherever it is within `reach`. */
static void draw_segment(float distance[AH_DIGITS_SIDE][ROW], struct point a, struct point b, float reach)
{
    float dx = b.x - a.x, dy = b.y - a.y;
    float length = dx * dx + dy * dy, scale = length > 1e-12f ? 1.0f / length : 0.0f;
    float left = fminf(a.x, b.x) - reach, right = fmaxf(a.x, b.x) + reach;
    float top = fminf(a.y, b.y) - reach, bottom = fmaxf(a.y, b.y) + reach;
    int first = top > 0.0f ? (int)top : 0;
    int last = bottom < AH_DIGITS_SIDE - 1 ? (int)bottom + 1 : AH_DIGITS_SIDE - 1;
    for (int y = first; y <= last; y++) {
        float from_y = (float)y - a.y;
        for (int half = 0; half < ROW; half += ROW / 2) {
            if (right < (float)half || left > (float)(half + ROW / 2))
                continue;
            float *row = distance[y] + half;
            for (int i = 0; i < ROW / 2; i++) {
                float from_x = (float)(half + i) - a.x;
                float along = (from_x * dx + from_y * dy) * scale;
                along = along < 0.0f ? 0.0f : along;
                along = along > 1.0f ? 1.0f : along;
                float off_x = from_x - along * dx, off_y = from_y - along * dy;
                float squared = off_x * off_x + off_y * off_y;
                row[i] = squared < row[i] ? squared : row[i];
            }
        }
    }
}

/* The point at t in 0..1 of the Catmull-Rom span from b to c. */
static struct point on_curve(struct point a, struct point b, struct point c, struct point d, float t)
{
    float wa = ((2.0f - t) * t - 1.0f) * t * 0.5f, wb = ((3.0f * t - 5.0f) * t * t + 2.0f) * 0.5f;
    float wc = ((4.0f - 3.0f * t) * t + 1.0f) * t * 0.5f, wd = (t - 1.0f) * t * t * 0.5f;
    return (struct point){wa * a.x + wb * b.x + wc * c.x + wd * d.x, wa * a.y + wb * b.y + wc * c.y + wd * d.y};
}

static void draw_stroke(float distance[AH_DIGITS_SIDE][ROW], const struct stroke *stroke, const struct pose *pose,
                        float reach, uint64_t *random)
{
    struct point points[MAX_POINTS];
    int count = 0;
    for (const signed char *xy = stroke->xy; *xy != END; xy += 2) {
        struct point at = {xy[0], xy[1]};
        points[count++] = digits_place(pose, at, random);
    }
    for (int i = 0; i + 1 < count; i++) {
        if (stroke->kind == LINE) {
            draw_segment(distance, points[i], points[i + 1], reach);
            continue;
        }
        struct point before = points[i ? i - 1 : 0], after = points[i + 2 < count ? i + 2 : count - 1];
        struct point from = points[i];
        for (int piece = 1; piece <= SPAN_PIECES; piece++) {
            struct point to = on_curve(before, points[i], points[i + 1], after, (float)piece / SPAN_PIECES);
            draw_segment(distance, from, to, reach);
            from = to;
        }
    }
}

static void digits_shade(uint8_t *image, float distance[AH_DIGITS_SIDE][ROW], float radius, float ink, float noise,
                         uint64_t *random)
{
    for (int y = 0; y < AH_DIGITS_SIDE; y++) {
        uint64_t bits[ROW / 4]; /* 16 random bits a pixel */
        unsigned char bytes[2 * ROW];
        for (int i = 0; i < AH_DIGITS_SIDE / 4; i++)
            bits[i] = digits_next(random);
        memcpy(bytes, bits, sizeof(uint64_t) * (AH_DIGITS_SIDE / 4));
        for (int x = 0; x < AH_DIGITS_SIDE; x++) {
            float cover = radius + 0.5f - sqrtf(distance[y][x]);
            cover = cover < 0.0f ? 0.0f : cover;
            cover = cover > 1.0f ? 1.0f : cover;
            float value = cover * ink + (float)(bytes[2 * x] + bytes[2 * x + 1] - 255) * noise;
            value = value < 0.0f ? 0.0f : value;
            value = value > 255.0f ? 255.0f : value;
            image[y * AH_DIGITS_SIDE + x] = (uint8_t)(int)(value + 0.5f);
        }
    }
}

static int64_t draw_digit(uint8_t *image, uint64_t key, int64_t index)
{
    uint64_t random = digits_mix(key + digits_mix((uint64_t)index));
    int64_t label = (int64_t)((digits_next(&random) >> 32) * 10 >> 32);
    int variant = (int)((digits_next(&random) >> 32) * VARIANTS >> 32);
    struct pose pose = draw_pose(&random);
    float radius = digits_uniform(&random, 0.6f, 1.6f), reach = radius + 1.0f;
    float ink = digits_uniform(&random, 130.0f, 255.0f);
    float noise = digits_uniform(&random, 0.0f, 0.14f);
    float distance[AH_DIGITS_SIDE][ROW];
    for (int y = 0; y < AH_DIGITS_SIDE; y++) {
        for (int x = 0; x < ROW; x++)
            distance[y][x] = 1e6f;
    }
    const struct stroke *stroke = glyphs[label][variant];
    for (int i = 0; i < MAX_STROKES && stroke[i].kind != NONE; i++)
        draw_stroke(distance, &stroke[i], &pose, reach, &random);
    if ((digits_next(&random) & 3) == 0) { /* a stray mark */
        struct point from, to;             /* one draw a statement: initialisers have no order */
        from.x = digits_uniform(&random, 1.0f, 26.0f);
        from.y = digits_uniform(&random, 1.0f, 26.0f);
        to.x = from.x + digits_uniform(&random, -5.0f, 5.0f);
        to.y = from.y + digits_uniform(&random, -5.0f, 5.0f);
        draw_segment(distance, from, to, reach);
    }
    digits_shade(image, distance, radius, ink, noise, &random);
    return label;
}

struct job {
    uint8_t *images;
    int64_t *labels;
    uint64_t key;
    int64_t first;
};

static void draw_range(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    for (int64_t i = begin; i < end; i++)
        job->labels[i] = draw_digit(job->images + i * AH_DIGITS_PIXELS, job->key, job->first + i);
}

void ah_digits_draw(uint8_t *images, int64_t *labels, uint64_t seed, uint32_t split, int64_t first, int64_t count)
{
    struct job job = {images, labels, digits_mix(digits_mix(seed) + split + 1), first};
    ah_parallel_for(count, 64, draw_range, &job);
}
