/* Maximum pooling in channels-last order for one type of items. pool_instances.c sets ITEM, ITEMS (a vector of LANES of
 * them), MASKS and CODES (vectors of as many integers of the items' size, and of bytes), LAST(name), LAST_KEY,
 * LAST_KEYS, LAST_NAN, LAST_LEAST and LAST_TRANSPOSE. A key orders items by their values; `infinity` is the dtype's. */

static void LAST(max_pixel)(const ITEM *restrict image, const struct taps *taps, int64_t channels, ITEM infinity,
                            ITEM *restrict y, uint8_t *restrict place)
{
    int64_t c = 0;
    if (taps->count == 0) { /* a dilated window whose every tap falls into the padding */
        for (; c < channels; c++)
            y[c] = LAST_LEAST(infinity);
        if (place)
            memset(place, 0, (size_t)channels);
        return;
    }
    for (; c + LANES <= channels; c += LANES) {
        ITEMS best, x;
        memcpy(&best, image + taps->offset[0] + c, sizeof best);
        ITEMS top = LAST_KEYS(best, infinity);
        MASKS code = (MASKS){0} + taps->code[0];
        for (int k = 1; k < taps->count; k++) {
            memcpy(&x, image + taps->offset[k] + c, sizeof x);
            ITEMS key = LAST_KEYS(x, infinity);
            MASKS take = (key > top) | LAST_NAN(key);
            best = (ITEMS)(((MASKS)x & take) | ((MASKS)best & ~take));
            top = (ITEMS)(((MASKS)key & take) | ((MASKS)top & ~take));
            code = (((MASKS){0} + taps->code[k]) & take) | (code & ~take);
        }
        memcpy(y + c, &best, sizeof best);
        if (place) {
            CODES small = __builtin_convertvector(code, CODES);
            memcpy(place + c, &small, sizeof small);
        }
    }
    for (; c < channels; c++) {
        ITEM best = image[taps->offset[0] + c], top = LAST_KEY(best, infinity);
        uint8_t code = taps->code[0];
        for (int k = 1; k < taps->count; k++) {
            ITEM x = image[taps->offset[k] + c], key = LAST_KEY(x, infinity);
            if (key > top || LAST_NAN(key)) {
                best = x;
                top = key;
                code = taps->code[k];
            }
        }
        y[c] = best;
        if (place)
            place[c] = code;
    }
}

/* Write the maxima in row-major order, through `rows`, room for one image per thread: a pool is mostly not followed by
 * a convolution, and transposing the small result here costs less than a separate pass (measured). */
void LAST(ah_max_last)(const struct ah_window *s, const ITEM *x, ITEM infinity, ITEM *y, uint8_t *place, ITEM *rows)
{
    int64_t pixels = s->oh * s->ow, size = pixels * s->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * size, AH_SHARE_HEAVY))
    for (int64_t n = 0; n < s->n; n++) {
        const ITEM *image = x + n * s->h * s->w * s->c;
        ITEM *own = rows + ah_thread_index() * size;
        struct taps whole, cut;
        taps_at(s, 0, 0, &whole);
        for (int64_t o = 0; o < pixels; o++) {
            int64_t top = o / s->ow * s->stride[0] - s->padding[0], left = o % s->ow * s->stride[1] - s->padding[1];
            uint8_t *code = place ? place + n * size + o * s->c : NULL;
            if (is_inside(s, top, left)) {
                LAST(max_pixel)(image + (top * s->w + left) * s->c, &whole, s->c, infinity, own + o * s->c, code);
            } else {
                taps_at(s, top, left, &cut);
                LAST(max_pixel)(image, &cut, s->c, infinity, own + o * s->c, code);
            }
        }
        LAST_TRANSPOSE((void *)(y + n * size), (const void *)own, 1, pixels, s->c);
    }
}

/* One image. Windows that do not overlap are written once each; others add up, which items of 16 bits cannot. */
void LAST(ah_max_image_backward)(const struct ah_window *s, const ITEM *g, const uint8_t *place, ITEM *image)
{
    bool apart = ah_window_is_apart(s);
    struct taps whole, cut;
    taps_at(s, 0, 0, &whole);
    if (!pool_covers(s))
        memset(image, 0, (size_t)(s->h * s->w * s->c) * sizeof *image);
    for (int64_t o = 0; o < s->oh * s->ow; o++) {
        const ITEM *restrict from = g + o * s->c;
        const uint8_t *restrict code = place + o * s->c;
        int64_t top = o / s->ow * s->stride[0] - s->padding[0], left = o % s->ow * s->stride[1] - s->padding[1];
        bool inside = is_inside(s, top, left);
        if (!inside)
            taps_at(s, top, left, &cut);
        const struct taps *taps = inside ? &whole : &cut;
        ITEM *first = inside ? image + (top * s->w + left) * s->c : image;
        for (int k = 0; k < taps->count; k++) {
            ITEM *restrict to = first + taps->offset[k];
            uint8_t own = taps->code[k];
            if (apart)
                for (int64_t c = 0; c < s->c; c++)
                    to[c] = code[c] == own ? from[c] : 0;
            else
                for (int64_t c = 0; c < s->c; c++)
                    to[c] += code[c] == own ? from[c] : 0;
        }
    }
}

void LAST(ah_max_last_backward)(const struct ah_window *s, const ITEM *g, const uint8_t *place, ITEM *gx)
{
    int64_t size = s->oh * s->ow * s->c;
#pragma omp parallel for schedule(static) if (ah_worth_threads(s->n * size, AH_SHARE_HEAVY))
    for (int64_t n = 0; n < s->n; n++)
        LAST(ah_max_image_backward)(s, g + n * size, place + n * size, gx + n * s->h * s->w * s->c);
}

#undef ITEM
#undef ITEMS
#undef MASKS
#undef CODES
#undef LANES
#undef LAST
#undef LAST_KEY
#undef LAST_KEYS
#undef LAST_NAN
#undef LAST_LEAST
#undef LAST_TRANSPOSE
