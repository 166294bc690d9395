/* The bare cycle of a float32 all-reduce between two processes in shared memory, in a few lines of C: both have written
 * their buffer; they meet; each sums one half into both buffers; they meet again. The least that an all-reduce can cost
 * here. usage: cycle COUNT TURNS; prints the median time of a call. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int *met; /* calls of each process so far */

static void meet(int rank, int times)
{
    atomic_store(&met[16 * rank], times);
    while (atomic_load(&met[16 * !rank]) < times)
        __builtin_ia32_pause();
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *shared(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv)
{
    long count = strtol(argv[1], 0, 10), turns = strtol(argv[2], 0, 10), half = count / 2 / 16 * 16;
    size_t bytes = (size_t)count * sizeof(float);
    met = shared(4096);
    float *buffer[2] = {shared(bytes), shared(bytes)};
    double *times = malloc((size_t)turns * sizeof *times);
    int rank = fork() == 0, meetings = 0;
    for (long turn = 0; turn < turns + 10; turn++) {
        for (long i = 0; i < count; i++)
            buffer[rank][i] = (float)(rank + turn);
        meet(rank, ++meetings);
        double begin = now_us();
        meet(rank, ++meetings);
        float *a = buffer[0], *b = buffer[1];
        for (long i = rank ? half : 0; i < (rank ? count : half); i++)
            a[i] = b[i] = a[i] + b[i];
        meet(rank, ++meetings);
        if (turn >= 10)
            times[turn - 10] = now_us() - begin;
    }
    qsort(times, (size_t)turns, sizeof *times, ascending);
    if (rank == 0)
        printf("call_us %.3f\n", times[turns / 2]);
    if (rank == 0)
        wait(NULL);
    return 0;
}
