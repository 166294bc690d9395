/* The CPU's random generator: PyTorch's mt19937 with PyTorch's streams.
 *
 * With equal seeds every function here consumes the same 32-bit draws and returns the same values as PyTorch's CPU
 * generator (builds without MKL). A generator belongs to one thread. This is not a source of secrets. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { AH_RNG_WORDS = 624, AH_RNG_STATE_BYTES = 5056 };

struct ah_generator {
    uint32_t state[AH_RNG_WORDS];
    int next; /* words of `state` already drawn; AH_RNG_WORDS: make the next block first */
    uint64_t seed;
    bool has_normal; /* the second value of the last pair of normal numbers is waiting in `normal` */
    double normal;
};

/* The generator of accelhost.manual_seed; until then seeded from the system's entropy (cli/process/seed.h: per job). */
struct ah_generator *ah_default_generator(void);

/* Replace the default generator while an op runs (NULL: by none); return the previous replacement. */
struct ah_generator *ah_generator_stand_in(struct ah_generator *g);

/* Start the stream of a seed; only its lower 32 bits count, as in PyTorch. */
void ah_generator_seed(struct ah_generator *g, uint64_t seed);

/* Seed from the system's entropy; returns the seed (base/process/entropy.h). */
uint64_t ah_generator_seed_any(struct ah_generator *g);

/* One draw at a time. */
uint32_t ah_generator_u32(struct ah_generator *g);
uint64_t ah_generator_u64(struct ah_generator *g); /* two draws, the first one high */
float ah_generator_float(struct ah_generator *g);   /* [0, 1): 24 bits of one draw */
double ah_generator_double(struct ah_generator *g); /* [0, 1): 53 bits of two draws */
double ah_generator_normal(struct ah_generator *g, double mean, double std);

/* PyTorch's draw of a data loader's seed: u64 modulo 2^63. */
uint64_t ah_generator_draw_seed(struct ah_generator *g);

/* Pass over n draws. */
void ah_generator_skip(struct ah_generator *g, int64_t n);

/* n draws. */
void ah_generator_fill_u32(struct ah_generator *g, uint32_t *out, int64_t n);
/* x * (to - from) + from, fused, as uniform_ does. */
void ah_generator_fill_uniform_f32(struct ah_generator *g, float *out, int64_t n, double from, double to);
void ah_generator_fill_uniform_f64(struct ah_generator *g, double *out, int64_t n, double from, double to);
/* normal_ on contiguous memory: pairs for n < 16, blocks of 16 otherwise. */
void ah_generator_fill_normal_f32(struct ah_generator *g, float *out, int64_t n, double mean, double std);
void ah_generator_fill_normal_f64(struct ah_generator *g, double *out, int64_t n, double mean, double std);
/* Whole numbers in [low, high): modulo of one draw, or of two where the range passes 2^32. high > low. */
void ah_generator_fill_range(struct ah_generator *g, int64_t *out, int64_t n, int64_t low, int64_t high);
/* out[i] = 1 with probability keep_prob, else 0: one u64 each, compared as 53-bit integers. */
void ah_generator_fill_keep(struct ah_generator *g, uint8_t *out, int64_t n, double keep_prob);
/* A permutation of 0..n-1. */
void ah_generator_fill_permutation(struct ah_generator *g, int64_t *out, int64_t n);

/* PyTorch's 5056-byte state, both ways. AH_EINVAL when the bytes are no such state. */
void ah_generator_get_state(const struct ah_generator *g, uint8_t *bytes);
int ah_generator_set_state(struct ah_generator *g, const uint8_t *bytes, int64_t count);
