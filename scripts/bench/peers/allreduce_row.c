/* float32 all-reduces one behind the other, over MPI. usage: allreduce_row COUNT TURNS
 * Rank 0 prints the mean time of a call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, count = (int)strtol(argv[1], 0, 10), turns = (int)strtol(argv[2], 0, 10);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *buffer = calloc((size_t)count, sizeof(float));
    double begin = 0;
    for (int turn = -3; turn < turns; turn++) {
        if (turn == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime();
        }
        MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    double passed = MPI_Wtime() - begin;
    if (rank == 0)
        printf("call_us %.1f\n", passed / turns * 1e6);
    free(buffer);
    MPI_Finalize();
    return 0;
}
