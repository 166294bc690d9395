/* A place of an axis is the source's row or column, or -1 - s where step s fills. Where both are fillings the later
 * step's counts: it has filled over the earlier one's. */
#include "data/grid.h"

#include <stdbool.h>
#include <string.h>

#include "base/status/status.h"

struct axis {
    int32_t *place, *spare;
    int64_t count;
};

static int check_pad(const struct ah_grid_step *step, int number, const int64_t *size)
{
    for (int axis = 0; axis < 2; axis++) {
        int64_t most = step->before[axis] > step->after[axis] ? step->before[axis] : step->after[axis];
        int64_t room = step->edge == AH_EDGE_REFLECT ? size[axis] - 1 : size[axis];
        if (step->before[axis] < 0 || step->after[axis] < 0 || most > INT32_MAX / 4)
            return ah_fail(AH_EINVAL, "step %d: an edge of %lld", number, (long long)most);
        if ((step->edge == AH_EDGE_REFLECT || step->edge == AH_EDGE_SYMMETRIC) && most > room)
            return ah_fail(AH_EINVAL, "step %d: a mirrored edge of %lld around %lld", number, (long long)most,
                           (long long)size[axis]);
        if (step->edge == AH_EDGE_NEAREST && most && !size[axis])
            return ah_fail(AH_EINVAL, "step %d: no edge to pad with", number);
    }
    return 0;
}

static int check_step(const struct ah_grid_step *step, int number, int64_t *size)
{
    if (step->kind == AH_GRID_PAD)
        AH_TRY(check_pad(step, number, size));
    for (int axis = 0; axis < 2; axis++) {
        int64_t at = step->kind == AH_GRID_CROP ? step->at[axis] : 0;
        if (step->kind == AH_GRID_PAD) {
            size[axis] += step->before[axis] + step->after[axis];
        } else if (step->kind != AH_GRID_FLIP) {
            if (at < 0 || step->size[axis] < 1 || step->size[axis] > size[axis] - at)
                return ah_fail(AH_EINVAL, "step %d: %lld from %lld on of %lld", number, (long long)step->size[axis],
                               (long long)at, (long long)size[axis]);
            size[axis] = step->size[axis];
        }
    }
    return 0;
}

int ah_grid_check(struct ah_grid *grid)
{
    int64_t size[2] = {grid->size[0], grid->size[1]};
    grid->longest = size[0] > size[1] ? size[0] : size[1];
    if (grid->count < 0 || grid->count > AH_GRID_STEPS || grid->channels < 1 || grid->longest > INT32_MAX / 4)
        return ah_fail(AH_EINVAL, "%d steps on %lld channels of %lld x %lld", grid->count, (long long)grid->channels,
                       (long long)size[0], (long long)size[1]);
    for (int s = 0; s < grid->count; s++) {
        const struct ah_grid_step *step = &grid->step[s];
        if (step->kind == AH_GRID_PAD && step->edge == AH_EDGE_CONSTANT && grid->channels > AH_GRID_CHANNELS)
            return ah_fail(AH_EINVAL, "step %d fills %lld channels, at most %d are known", s + 1,
                           (long long)grid->channels, AH_GRID_CHANNELS);
        AH_TRY(check_step(step, s + 1, size));
        for (int axis = 0; axis < 2; axis++)
            grid->longest = size[axis] > grid->longest ? size[axis] : grid->longest;
    }
    memcpy(grid->out, size, sizeof size);
    return 0;
}

size_t ah_grid_scratch(const struct ah_grid *grid)
{
    return 4 * (size_t)grid->longest * sizeof(int32_t);
}

/* Return the place within 0..n-1 whose value place `at` has. */
static int64_t grid_inside(int64_t at, int64_t n, enum ah_grid_edge edge)
{
    int mirrored = edge == AH_EDGE_SYMMETRIC;
    if (edge == AH_EDGE_NEAREST)
        return at < 0 ? 0 : at < n ? at : n - 1;
    return at < 0 ? -at - mirrored : at < n ? at : 2 * (n - 1) - at + mirrored;
}

static void grid_pad(struct axis *axis, const struct ah_grid_step *step, int number, int which)
{
    int64_t before = step->before[which], n = axis->count, count = before + n + step->after[which];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i - before;
        bool filled = step->edge == AH_EDGE_CONSTANT && (at < 0 || at >= n);
        axis->spare[i] = filled ? -1 - number : axis->place[grid_inside(at, n, step->edge)];
    }
    int32_t *place = axis->spare;
    axis->spare = axis->place;
    axis->place = place;
    axis->count = count;
}

static void grid_flip(struct axis *axis)
{
    for (int64_t i = 0, j = axis->count - 1; i < j; i++, j--) {
        int32_t place = axis->place[i];
        axis->place[i] = axis->place[j];
        axis->place[j] = place;
    }
}

static void grid_crop(struct axis *axis, const struct ah_grid_step *step, int which, struct ah_stream *stream)
{
    int64_t at = step->at[which], choices = axis->count - step->size[which] + 1;
    if (step->kind == AH_GRID_RANDOM_CROP)
        at = choices > 1 ? (int64_t)(ah_stream_u32(stream) % (uint64_t)choices) : 0;
    memmove(axis->place, axis->place + at, (size_t)step->size[which] * sizeof *axis->place);
    axis->count = step->size[which];
}

static void take_step(struct axis *axes, const struct ah_grid_step *step, int number, struct ah_stream *stream)
{
    if (step->kind == AH_GRID_FLIP) {
        if (ah_stream_float(stream) < step->p)
            grid_flip(&axes[step->axis]);
        return;
    }
    for (int which = 0; which < 2; which++) {
        if (step->kind == AH_GRID_PAD)
            grid_pad(&axes[which], step, number, which);
        else
            grid_crop(&axes[which], step, which, stream);
    }
}

/* The columns from `begin` to `end` that are neighbours in the source, in one direction; around them all are filled.
 * An empty stretch: they are not so simple. */
struct stretch {
    int64_t begin, end, step;
};

static struct stretch find_stretch(const struct axis *columns)
{
    const int32_t *place = columns->place;
    struct stretch s = {0, columns->count, 1};
    while (s.begin < s.end && place[s.begin] < 0)
        s.begin++;
    while (s.end > s.begin && place[s.end - 1] < 0)
        s.end--;
    if (s.end - s.begin > 1)
        s.step = place[s.begin + 1] - place[s.begin];
    bool simple = s.step == 1 || s.step == -1;
    for (int64_t i = s.begin + 1; simple && i < s.end; i++)
        simple = place[i] - place[i - 1] == s.step;
    return simple ? s : (struct stretch){0, 0, 0};
}

static uint8_t grid_filling(const struct ah_grid *grid, int64_t channel, int32_t row, int32_t column)
{
    int32_t later = row < column ? row : column;
    return grid->step[-1 - later].fill[channel];
}

static void copy_stretch(uint8_t *restrict to, const uint8_t *restrict from, int64_t count, int64_t step)
{
    if (step == 1) {
        memcpy(to, from, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        to[i] = from[-i];
}

static void copy_row(const struct ah_grid *grid, const struct axis *columns, struct stretch s, int64_t channel,
                     const uint8_t *plane, int32_t row, uint8_t *to)
{
    const uint8_t *from = row < 0 ? NULL : plane + row * grid->size[1];
    if (!from)
        s.begin = s.end = 0;
    if (s.end > s.begin)
        copy_stretch(to + s.begin, from + columns->place[s.begin], s.end - s.begin, s.step);
    for (int64_t i = 0; i < columns->count; i++) {
        if (i == s.begin && s.end > s.begin)
            i = s.end;
        if (i == columns->count)
            break;
        int32_t column = columns->place[i];
        to[i] = from && column >= 0 ? from[column] : grid_filling(grid, channel, row, column);
    }
}

void ah_grid_apply(const struct ah_grid *grid, const uint8_t *from, uint8_t *to, struct ah_stream *stream,
                   void *scratch)
{
    struct axis axes[2];
    for (int which = 0; which < 2; which++) {
        axes[which].place = (int32_t *)scratch + 2 * which * grid->longest;
        axes[which].spare = axes[which].place + grid->longest;
        axes[which].count = grid->size[which];
        for (int64_t i = 0; i < grid->size[which]; i++)
            axes[which].place[i] = (int32_t)i;
    }
    for (int s = 0; s < grid->count; s++)
        take_step(axes, &grid->step[s], s, stream);
    struct stretch s = find_stretch(&axes[1]);
    for (int64_t channel = 0; channel < grid->channels; channel++) {
        const uint8_t *plane = from + channel * grid->size[0] * grid->size[1];
        for (int64_t row = 0; row < axes[0].count; row++, to += axes[1].count)
            copy_row(grid, &axes[1], s, channel, plane, axes[0].place[row], to);
    }
}
