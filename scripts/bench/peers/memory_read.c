/* The rate at which one thread reads 512 MiB, by pages, streams and software prefetch, in GB/s (the best of three), and
 * two threads together, each a half of it as 4 far streams.
 *
 * cc -O3 -march=native -pthread scripts/bench/peers/memory_read.c -o /tmp/memory_read && /tmp/memory_read
 *
 * Streams: `far`, each has an equal part of the memory; `rows`, each has one of that many neighbouring rows of 1152
 * bytes (576 bfloat16 numbers); `pages`, each has one of that many neighbouring pages of 4 KiB.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, MOST = 16 };
static const size_t bytes = (size_t)512 << 20;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Read `length` bytes of each of `streams` streams, `far` bytes apart. hint: 0 none, 1 t0, 2 nta. */
static inline __attribute__((always_inline)) __m512 read_run(const char *p, size_t length, size_t far, int streams,
                                                             int hint, size_t ahead, __m512 sum[MOST])
{
    for (size_t i = 0; i < length; i += 2 * LINE)
        for (int s = 0; s < streams; s++) {
            const char *at = p + (size_t)s * far + i;
            for (int line = 0; line < 2; line++) {
                if (hint == 1)
                    _mm_prefetch(at + line * LINE + ahead, _MM_HINT_T0);
                if (hint == 2)
                    _mm_prefetch(at + line * LINE + ahead, _MM_HINT_NTA);
                sum[2 * s % MOST + line] += _mm512_loadu_ps(at + line * LINE);
            }
        }
    return sum[0];
}

static inline __attribute__((always_inline)) float read_all(const char *p, size_t span, int streams, int hint,
                                                            size_t ahead)
{
    __m512 sum[MOST] = {{0}}, all = {0};
    size_t far = span ? span : bytes / (size_t)streams / LINE / 2 * LINE * 2, block = far * (size_t)streams;
    for (size_t at = 0; at + block <= bytes; at += block)
        read_run(p + at, far, far, streams, hint, ahead, sum);
    for (int i = 0; i < MOST; i++)
        all += sum[i];
    return _mm512_reduce_add_ps(all);
}

#define READ(streams)                                                                                      \
    static __attribute__((noinline)) float read_##streams(const char *p, size_t span, int hint, size_t ahead) \
    {                                                                                                      \
        return hint == 0   ? read_all(p, span, streams, 0, 0)                                              \
               : hint == 1 ? read_all(p, span, streams, 1, ahead)                                          \
                           : read_all(p, span, streams, 2, ahead);                                         \
    }
READ(1)
READ(2)
READ(4)
READ(8)

typedef float (*read_fn)(const char *p, size_t span, int hint, size_t ahead);

static volatile float used;

static double rate(read_fn read, const char *p, size_t span, int hint, size_t ahead)
{
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        double begin = now();
        used += read(p, span, hint, ahead);
        double time = now() - begin;
        best = time < best ? time : best;
    }
    return (double)bytes / best / 1e9;
}

static void measure(const char *pages, const char *p)
{
    static const struct { const char *name; read_fn read; } streams[] = {
        {"1", read_1}, {"2", read_2}, {"4", read_4}, {"8", read_8}};
    static const struct { const char *name; size_t span; } kinds[] = {{"far", 0}, {"rows", 1152}, {"pages", 4096}};
    static const struct { int hint; size_t ahead; } hints[] = {
        {0, 0}, {1, 512}, {1, 1024}, {1, 2048}, {1, 4096}, {1, 8192}, {2, 1024}, {2, 2048}, {2, 4096}};
    printf("%s\t", pages);
    for (size_t h = 0; h < sizeof hints / sizeof *hints; h++)
        printf("\t%s %zu", hints[h].hint == 0 ? "none" : hints[h].hint == 1 ? "t0" : "nta", hints[h].ahead);
    printf("\n");
    for (size_t k = 0; k < 3; k++)
        for (size_t s = k ? 1 : 0; s < 4; s++) {
            printf("%s %s\t", streams[s].name, kinds[k].name);
            for (size_t h = 0; h < sizeof hints / sizeof *hints; h++)
                printf("\t%.1f", rate(streams[s].read, p, kinds[k].span, hints[h].hint, hints[h].ahead));
            printf("\n");
            fflush(stdout);
        }
}

/* Read a half of the memory. */
static void *read_half(void *p)
{
    __m512 sum[MOST] = {{0}};
    size_t far = bytes / 8;
    read_run(p, far, far, 4, 0, 0, sum);
    for (int i = 1; i < MOST; i++)
        sum[0] += sum[i];
    used += _mm512_reduce_add_ps(sum[0]);
    return NULL;
}

static void measure_two(char *p)
{
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        pthread_t other;
        double begin = now();
        if (pthread_create(&other, NULL, read_half, p + bytes / 2))
            exit(1);
        read_half(p);
        pthread_join(other, NULL);
        double time = now() - begin;
        best = time < best ? time : best;
    }
    printf("two threads, huge pages\t%.1f\n", (double)bytes / best / 1e9);
}

static char *memory(int advice)
{
    size_t huge = (size_t)2 << 20;
    char *p = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(1);
    p = (char *)(((uintptr_t)p + huge - 1) / huge * huge);
    madvise(p, bytes, advice);
    for (size_t i = 0; i < bytes; i += 4)
        *(float *)(void *)(p + i) = 1;
    return p;
}

int main(void)
{
    char *p = memory(MADV_HUGEPAGE);
    measure("huge pages", p);
    measure_two(p);
    measure("4 KiB pages", memory(MADV_NOHUGEPAGE));
    return 0;
}
