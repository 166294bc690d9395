/* Philox4x32-10, a block of four words at a time. */
#include "data/stream.h"

#include <math.h>

enum { WORDS = 4, ROUNDS = 10 };

static void next_block(struct ah_stream *stream)
{
    uint32_t x[WORDS], key[2] = {stream->key[0], stream->key[1]};
    for (int i = 0; i < WORDS; i++)
        x[i] = stream->counter[i];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * x[0], b = (uint64_t)0xCD9E8D57 * x[2];
        uint32_t y[WORDS] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
                             (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
        for (int i = 0; i < WORDS; i++)
            x[i] = y[i];
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    for (int i = 0; i < WORDS; i++)
        stream->block[i] = x[i];
    stream->counter[0]++;
    stream->used = 0;
}

void ah_stream_open(struct ah_stream *stream, uint64_t seed, int64_t index, uint32_t turn)
{
    *stream = (struct ah_stream){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, turn, (uint32_t)index, (uint32_t)((uint64_t)index >> 32)},
        .used = WORDS,
    };
}

uint32_t ah_stream_u32(struct ah_stream *stream)
{
    if (stream->used == WORDS)
        next_block(stream);
    return stream->block[stream->used++];
}

float ah_stream_float(struct ah_stream *stream)
{
    return (float)(ah_stream_u32(stream) & 0xffffff) * 0x1p-24f;
}

float ah_stream_uniform(struct ah_stream *stream, double low, double high)
{
    return fmaf(ah_stream_float(stream), (float)(high - low), (float)low);
}
