/* The OpenMP runtime of the program: the functions that GCC's code for `#pragma omp parallel` calls, on the pool of
 * threads. The kernels, oneDNN and OpenBLAS have one pool in this way, which libgomp's names in the program make them
 * call instead of libgomp.
 *
 * A loop of the kernels becomes more pieces than there are threads. The libraries are called with one thread, except
 * between ah_library_threads_begin and its end: there their regions are teams, whose members wait for each other. */
#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"

struct outlined {
    void (*fn)(void *data);
    void *data;
};

static _Thread_local int library_depth;

void ah_library_threads_begin(void)
{
    library_depth++;
}

void ah_library_threads_end(void)
{
    library_depth--;
}

static void openmp_piece(void *context, int piece)
{
    const struct outlined *body = context;
    body->fn(body->data);
}

/* The interface of libgomp ("The libgomp ABI" in its manual), and OpenMP's own functions. */
void GOMP_parallel(void (*fn)(void *data), void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_get_max_threads(void);
void omp_set_num_threads(int count);
int omp_in_parallel(void);
int omp_get_num_places(void);

void GOMP_parallel(void (*fn)(void *data), void *data, unsigned threads, unsigned flags)
{
    struct outlined body = {fn, data};
    if (library_depth)
        ah_pool_run_team(threads ? (int)threads : ah_num_threads(), openmp_piece, &body);
    else
        ah_pool_run(threads ? (int)threads : AH_PIECES_PER_THREAD * ah_num_threads(), openmp_piece, &body);
}

void GOMP_barrier(void)
{
    ah_team_barrier();
}

int omp_get_thread_num(void)
{
    return ah_region_piece();
}

int omp_get_num_threads(void)
{
    return ah_region_pieces();
}

int omp_get_max_threads(void)
{
    return library_depth ? ah_num_threads() : 1;
}

/* OpenBLAS passes the result of omp_get_max_threads here. */
void omp_set_num_threads(int count)
{
}

int omp_in_parallel(void)
{
    return ah_region_is_divided();
}

int omp_get_num_places(void)
{
    return 0;
}
