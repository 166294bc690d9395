/* Ten shapes are tried; one that does not fit within the image is drawn again, and after ten the image stays
 * unchanged. */
#include "data/erase.h"

#include <math.h>

static void erase_fill(const struct ah_erase *erase, float *image, const int64_t *at, const int64_t *size)
{
    int64_t rows = erase->size[0], columns = erase->size[1];
    for (int64_t c = 0; c < erase->channels; c++)
        for (int64_t row = at[0]; row < at[0] + size[0]; row++)
            for (int64_t column = at[1]; column < at[1] + size[1]; column++)
                image[(c * rows + row) * columns + column] = erase->value[c];
}

void ah_erase_apply(const struct ah_erase *erase, float *image, struct ah_stream *stream)
{
    double whole = (double)(erase->size[0] * erase->size[1]);
    if (!(ah_stream_float(stream) < (float)erase->p))
        return;
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = whole * ah_stream_uniform(stream, erase->scale[0], erase->scale[1]);
        double ratio = expf((float)ah_stream_uniform(stream, erase->log_ratio[0], erase->log_ratio[1]));
        int64_t size[2] = {(int64_t)rint(sqrt(area * ratio)), (int64_t)rint(sqrt(area / ratio))}, at[2];
        if (size[0] >= erase->size[0] || size[1] >= erase->size[1])
            continue;
        for (int axis = 0; axis < 2; axis++)
            at[axis] = ah_stream_u32(stream) % (uint32_t)(erase->size[axis] - size[axis] + 1);
        erase_fill(erase, image, at, size);
        return;
    }
}
