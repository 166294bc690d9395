/* A float32 all-reduce of a buffer that its owner has just written, over MPI. usage: allreduce COUNT TURNS
 * Rank 0 prints the median time of a call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, count = (int)strtol(argv[1], 0, 10), turns = (int)strtol(argv[2], 0, 10);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *buffer = malloc((size_t)count * sizeof(float));
    double *times = malloc((size_t)turns * sizeof(double));
    for (int turn = 0; turn < turns + 10; turn++) {
        for (int i = 0; i < count; i++)
            buffer[i] = (float)(rank + turn);
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (turn >= 10)
            times[turn - 10] = MPI_Wtime() - begin;
    }
    qsort(times, (size_t)turns, sizeof(double), ascending);
    if (rank == 0)
        printf("call_us %.3f\n", times[turns / 2] * 1e6);
    free(buffer);
    free(times);
    MPI_Finalize();
    return 0;
}
