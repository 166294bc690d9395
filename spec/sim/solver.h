/* cuSOLVER's and cuBLAS's handles as the simulator keeps them, and the routines behind them. */
#pragma once

#include <vector>

#include "cuda/vendor/solver.h"
#include "state.h"

struct cusolverDnContext {
    CUcontext context;
    CUstream stream;
};

struct cublasContext {
    CUcontext context;
    CUstream stream;
};

struct cusolverDnParams {
    int options;
};

#define CALL(result, field, symbol, parameters) SIM_API result symbol parameters;
#include "cuda/vendor/solver.def"
#undef CALL

namespace sim
{
/* A column-major matrix in double. */
struct Matrix {
    int64_t rows, columns;
    std::vector<double> at;

    Matrix(int64_t its_rows, int64_t its_columns)
        : rows(its_rows), columns(its_columns), at((size_t)(its_rows * its_columns))
    {
    }
    double &operator()(int64_t i, int64_t j)
    {
        return at[(size_t)(j * rows + i)];
    }
    double operator()(int64_t i, int64_t j) const
    {
        return at[(size_t)(j * rows + i)];
    }
};

/* Each returns LAPACK's info. */
int lu(Matrix &a, std::vector<int64_t> &pivots);
/* The other triangle becomes nan. */
int cholesky(Matrix &a, bool upper);
void reflect(Matrix &a, std::vector<double> &tau);
/* The first k columns of Q, of the reflectors in `a`. */
Matrix columns_of_q(const Matrix &a, const std::vector<double> &tau, int64_t k);
/* Values in ascending order; the matrix becomes the vectors. */
void eigen(Matrix &a, bool upper, std::vector<double> &values);
/* rows >= columns; all columns of U where `full`, else as many as `a` has. */
void singular(const Matrix &a, bool full, Matrix &u, std::vector<double> &s, Matrix &vt);
/* b = op(a)^-1 b, or b op(a)^-1. */
void triangular(const Matrix &a, Matrix &b, bool left, bool upper, bool transposed, bool unit);
} // namespace sim
