/* The threads of the program: a pool that the kernels, and the OpenMP code of the libraries (openmp.c), divide work by.
 *
 * A region is a number of pieces. The calling thread and the pool's threads each run their part of them, then those
 * that other threads have not begun; so a thread that the system does not run delays only the piece that it has begun.
 * Which thread runs a piece must not change a result: pieces follow from sizes and the number of threads alone.
 *
 * A waiting thread polls for 0.1 ms, then sleeps. Where the threads did not pay lately, because other programs use the
 * processors, the caller runs all pieces itself, until the threads have polled for a while without being preempted. */
#pragma once

#include <stdbool.h>

typedef void (*ah_piece_fn)(void *context, int piece);

enum {
    AH_PIECES_PER_THREAD = 2, /* of a region whose work can be divided anywhere */
};

/* Run fn(context, 0), ..., fn(context, pieces - 1), at most 65,535, on at most ah_num_threads() threads. Within a piece
 * of another region, or while another thread's region runs, the caller runs them all. */
void ah_pool_run(int pieces, ah_piece_fn fn, void *context);

/* Run `members` pieces at the same time, each on its own thread: for code whose pieces wait for each other
 * (ah_team_barrier). Returns after all. Fewer members run where there are fewer threads; one within another region. */
void ah_pool_run_team(int members, ah_piece_fn fn, void *context);

/* Wait for all members of the team to call this. */
void ah_team_barrier(void);

/* The calling thread's number, below ah_num_threads(), to choose among blocks of scratch memory: 0 outside regions. */
int ah_thread_index(void);

/* The piece that the calling thread runs (0 outside regions), and the number of pieces of that region (1). */
int ah_region_piece(void);
int ah_region_pieces(void);

/* Report whether the calling thread runs a piece of a region with others, so that regions within it are not divided. */
bool ah_region_is_divided(void);
