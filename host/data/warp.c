/* All channels of an image read the same places: for each output pixel up to four input pixels and their weights. */
#include "data/warp.h"

#include <math.h>
#include <string.h>

#include "base/status/status.h"

struct place {
    int count;
    int64_t at[4];
    float weight[4];
    float inside; /* the sum of the weights */
};

static void warp_add(struct place *place, int64_t x, int64_t y, float weight, int64_t rows, int64_t columns)
{
    if (x < 0 || y < 0 || x >= columns || y >= rows)
        return;
    place->at[place->count] = y * columns + x;
    place->weight[place->count++] = weight;
    place->inside += weight;
}

static struct place warp_find(float x, float y, bool bilinear, int64_t rows, int64_t columns)
{
    struct place place = {0};
    /* Far outside, also where the numbers would pass those of int64. */
    if (!(x > -2 && y > -2 && x < (float)columns + 1 && y < (float)rows + 1))
        return place;
    if (!bilinear) {
        warp_add(&place, (int64_t)nearbyintf(x), (int64_t)nearbyintf(y), 1, rows, columns);
        return place;
    }
    float left = floorf(x), top = floorf(y), dx = x - left, dy = y - top;
    int64_t column = (int64_t)left, row = (int64_t)top;
    warp_add(&place, column, row, (1 - dx) * (1 - dy), rows, columns);
    warp_add(&place, column + 1, row, dx * (1 - dy), rows, columns);
    warp_add(&place, column, row + 1, (1 - dx) * dy, rows, columns);
    warp_add(&place, column + 1, row + 1, dx * dy, rows, columns);
    return place;
}

static float warp_look(const float *plane, const struct place *place)
{
    float sum = 0;
    for (int k = 0; k < place->count; k++)
        sum += place->weight[k] * plane[place->at[k]];
    return sum;
}

static float warp_filled(float value, const struct place *place, const struct ah_warp *warp, int64_t channel)
{
    if (!warp->fill)
        return value;
    if (!warp->bilinear)
        return place->inside < 0.5f ? warp->fill[channel] : value;
    return (value - warp->fill[channel]) * place->inside + warp->fill[channel];
}

/* Row y of the output, in all channels of one image. */
static void warp_row(const struct ah_warp *warp, const struct ah_tensor *image, const float *from, float *to, int64_t y)
{
    int64_t channels = image->size[1], rows = image->size[2], columns = image->size[3];
    float scale[6];
    for (int i = 0; i < 6; i++)
        scale[i] = (float)warp->matrix[i] / (0.5f * (float)(i < 3 ? columns : rows));
    float gy = (float)y + (1 - (float)warp->rows) * 0.5f;
    for (int64_t x = 0; x < warp->columns; x++) {
        float gx = (float)x + (1 - (float)warp->columns) * 0.5f;
        float u = scale[0] * gx + scale[1] * gy + scale[2], v = scale[3] * gx + scale[4] * gy + scale[5];
        struct place place = warp_find(((u + 1) * (float)columns - 1) * 0.5f, ((v + 1) * (float)rows - 1) * 0.5f,
                                       warp->bilinear, rows, columns);
        for (int64_t c = 0; c < channels; c++)
            to[(c * warp->rows + y) * warp->columns + x] =
                warp_filled(warp_look(from + c * rows * columns, &place), &place, warp, c);
    }
}

int ah_warp(struct ah_tensor **out, const struct ah_tensor *image, const struct ah_warp *warp)
{
    int64_t channels = image->size[1], size[4] = {image->size[0], channels, warp->rows, warp->columns};
    AH_TRY(ah_tensor_empty(out, size, 4, AH_F32, &ah_cpu));
    const float *from = ah_tensor_data((struct ah_tensor *)image);
    float *to = ah_tensor_data(*out);
    for (int64_t i = 0; i < size[0]; i++) {
        for (int64_t y = 0; y < warp->rows; y++)
            warp_row(warp, image, from, to, y);
        from += channels * image->size[2] * image->size[3];
        to += channels * warp->rows * warp->columns;
    }
    return 0;
}
