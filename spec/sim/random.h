/* Small seeded numbers for orders and delays. */
#pragma once

#include <stdint.h>

namespace sim
{
struct Random {
    uint64_t state = 1;

    void seed(uint64_t value)
    {
        state = value * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019;
        state += state == 0;
        next();
        next();
    }
    uint64_t next()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x2545f4914f6cdd1d >> 16;
    }
    /* Below n, which is at most 2^31. */
    unsigned below(unsigned n)
    {
        return (unsigned)((next() & 0xffffffff) * n >> 32);
    }
};

/* A walk through 0 .. n-1 in a drawn order: every `stride`-th. */
struct Walk {
    uint64_t n, at, stride;

    Walk(uint64_t count, Random &random) : n(count), at(0), stride(1)
    {
        if (n < 2)
            return;
        at = random.next() % n;
        do
            stride = 1 + random.next() % (n - 1);
        while (common(stride, n) != 1);
    }
    static uint64_t common(uint64_t a, uint64_t b)
    {
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        return a;
    }
    uint64_t next()
    {
        uint64_t value = at;
        at = (uint64_t)(((unsigned __int128)at + stride) % n);
        return value;
    }
    void reverse()
    {
        at = n ? (at + n - stride % n) % n : 0; /* the last of the forward walk */
        stride = n - stride % n;
    }
};
} // namespace sim
