/* The steps of decompositions and solvers on a CUDA device around the libraries' routines (linalg_routines.h).
 *
 * A work holds the inputs and the scratch memory of one op. After its first failure, which it keeps, nothing more is
 * done, so that only ah_linalg_close has to be checked. All is queued on the compute stream; nothing waits. Matrices
 * are `batch` ones after each other, addressed by the first. Lua thread only. */
#pragma once

#include "cuda/driver/stream/times.h"
#include "cuda/kernels/linear/linalg.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/vendor/solver.h"
#include "ops/dispatch/op.h"

enum { AH_LINALG_BLOCKS = 12 };

struct ah_linalg_work {
    struct ah_call *call;
    struct ah_cuda_device *cuda;
    const struct ah_solver *solver;
    enum ah_dtype dtype; /* float32 or float64 */
    int64_t batch, m, n; /* of arg 0: `batch` matrices of m x n */
    int status;
    struct ah_cuda_inputs in;
    void *block[AH_LINALG_BLOCKS];
    int blocks;
};

/* Begin: AH_ESTATE, kept, in a captured step, since routines may wait for the device. */
void ah_linalg_open(struct ah_linalg_work *w, struct ah_call *call);
/* Release inputs and scratch memory; returns the status. */
int ah_linalg_close(struct ah_linalg_work *w);

/* The address of a tensor's row-major contents, which stay its own where it has that layout. */
uint64_t ah_linalg_input(struct ah_linalg_work *w, struct ah_tensor *tensor);
/* Scratch memory for `count` reals, int64s and int32s in each matrix's place. */
uint64_t ah_linalg_reals(struct ah_linalg_work *w, int64_t count);
uint64_t ah_linalg_longs(struct ah_linalg_work *w, int64_t count);
uint64_t ah_linalg_ints(struct ah_linalg_work *w, int64_t count);

/* to = from, both of `count` reals in each matrix's place. */
void ah_linalg_move(struct ah_linalg_work *w, uint64_t to, uint64_t from, int64_t count);
/* to (columns x rows) = from (rows x columns) transposed, both row-major. */
void ah_linalg_turn(struct ah_linalg_work *w, uint64_t to, uint64_t from, int64_t rows, int64_t columns);
/* Launch linalg_copy; batch is set. */
void ah_linalg_copy(struct ah_linalg_work *w, struct ah_linalg_copy_args *args);
/* Replace matrices of `count` reals that are not finite by 0, and set their flags to `code`, others' to 0 unless
 * `keeps`. */
void ah_linalg_screen(struct ah_linalg_work *w, uint64_t at, int64_t count, uint64_t flags, int code, bool keeps);
/* Move flags (0: none) to infos; fill `count` reals at `at` with nan where the info is not 0. */
void ah_linalg_spoil(struct ah_linalg_work *w, uint64_t at, int64_t count, uint64_t info, uint64_t flags);
/* The n row numbers (int64) of k pivots (int32). */
void ah_linalg_permutation(struct ah_linalg_work *w, uint64_t rows, uint64_t pivots, int64_t n, int64_t k);
/* to = rows of from (n x k) in another order (struct ah_linalg_rows_args). */
void ah_linalg_rows(struct ah_linalg_work *w, uint64_t to, uint64_t from, uint64_t rows, int64_t n, int64_t k,
                    bool scatters);
/* Launch a kernel for each real dtype, with a batch that is set by the caller. */
void ah_linalg_launch(struct ah_linalg_work *w, struct ah_cuda_kernel *kernels, struct ah_cuda_grid grid,
                      const void *args, size_t size);

/* A routine that is being timed. */
struct ah_linalg_span {
    struct ah_cuda_span span;
    double operations;
};

/* Begin a routine over the batch: its operations are for the times of kernels. Nothing after a failure. */
struct ah_linalg_span ah_linalg_begin(struct ah_linalg_work *w, const char *routine, double operations);
/* Keep its status, and wait for it where each launch is waited for. */
void ah_linalg_end(struct ah_linalg_work *w, struct ah_linalg_span span, int status, const char *library,
                   const char *routine);
