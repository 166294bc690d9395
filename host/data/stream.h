/* The random numbers of one sample in one pass over a data set.
 *
 * They are a function of the pass's seed, the sample's index and the number of times that the pass has met that sample
 * before: a run repeats them whatever the number of ranks, threads and workers, and in whatever order samples are made.
 * Word k is word k % 4 of Philox4x32-10 with the seed as its key and the counter (k / 4, turn, index low, index high).
 * https://doi.org/10.1145/2063384.2063405 */
#pragma once

#include <stdint.h>

struct ah_stream {
    uint32_t key[2], counter[4], block[4];
    int used; /* words of `block` */
};

void ah_stream_open(struct ah_stream *stream, uint64_t seed, int64_t index, uint32_t turn);

/* The next word. */
uint32_t ah_stream_u32(struct ah_stream *stream);

/* The next number in [0, 1): 24 bits of a word, as a generator makes its floats. */
float ah_stream_float(struct ah_stream *stream);

/* The next number from low to high, with float32's steps: as tensor:uniform_(low, high) makes one of its floats. */
float ah_stream_uniform(struct ah_stream *stream, double low, double high);
