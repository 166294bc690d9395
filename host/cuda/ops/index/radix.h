/* A stable sort of unsigned keys on the device. */
#pragma once

#include "cuda/driver/api/device.h"

/* Sorted keys, and the original position of each. */
struct ah_cuda_sorted {
    struct ah_device *device;
    void *keys;      /* in their own type, uint32 or uint64 */
    uint32_t *order; /* on the device */
    void *block[3];  /* of its memory */
};

/* Sort `n` keys (below 2^32 of them) of `item` bytes, 4 or 8, by their lowest `bits` bits. The keys are overwritten.
 * With `order` (which stays) the keys are those of its elements, which are sorted instead of 0..n-1.
 * The result is valid in the order of the compute stream and released, with or without an error before. */
int ah_cuda_sort_keys(struct ah_device *device, const char *op_name, void *keys, const uint32_t *order, int64_t n,
                      int item, int bits, struct ah_cuda_sorted *out);
void ah_cuda_sorted_release(struct ah_cuda_sorted *sorted);

/* Bits that hold 0..n-1. */
static inline int ah_cuda_bits(int64_t n)
{
    int bits = 1;
    while (bits < 63 && (int64_t)1 << bits < n)
        bits++;
    return bits;
}
