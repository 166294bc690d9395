/* Synthetic digits: 28 x 28 images of the figures 0 to 9 that look hand-drawn, generated from a seed.
 *
 * A replacement for MNIST, with the same shapes, where its files are not available. Each sample is a glyph skeleton
 * (one of a few variants per digit) under random rotation, scale, shear, shift, stroke width, jitter of its points, ink
 * and noise. Sample i of a split is a pure function of (seed, split, i): it does not depend on their number and order,
 * or on the threads that make them. Not a data format, and not meant to be as hard as real handwriting. */
#pragma once

#include <stdint.h>

enum { AH_DIGITS_SIDE = 28, AH_DIGITS_PIXELS = AH_DIGITS_SIDE * AH_DIGITS_SIDE };

/* Draw samples first .. first + count - 1 of split `split` (0 train, 1 test): `images` gets count * 784 bytes
 * (0 background, 255 full ink), `labels` count numbers 0..9. Uses the pool of threads: Lua thread only. */
void ah_digits_draw(uint8_t *images, int64_t *labels, uint64_t seed, uint32_t split, int64_t first, int64_t count);
