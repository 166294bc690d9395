/* Decompositions by plain loops in double, so that a stream's thread enters no library with its own threads: Jacobi's
 * rotations for eigenvalues and singular values, Householder's reflections for QR. */
#include "solver.h"

#include <algorithm>
#include <math.h>
#include <numeric>

namespace sim
{
int lu(Matrix &a, std::vector<int64_t> &pivots)
{
    int info = 0;
    int64_t k = std::min(a.rows, a.columns);
    pivots.assign((size_t)k, 0);
    for (int64_t j = 0; j < k; j++) {
        int64_t best = j;
        for (int64_t i = j; i < a.rows; i++)
            if (fabs(a(i, j)) > fabs(a(best, j)))
                best = i;
        pivots[(size_t)j] = best + 1;
        if (a(best, j) == 0) {
            info = info ? info : (int)j + 1;
            continue;
        }
        for (int64_t c = 0; c < a.columns; c++)
            std::swap(a(j, c), a(best, c));
        for (int64_t i = j + 1; i < a.rows; i++) {
            a(i, j) /= a(j, j);
            for (int64_t c = j + 1; c < a.columns; c++)
                a(i, c) -= a(i, j) * a(j, c);
        }
    }
    return info;
}

int cholesky(Matrix &a, bool upper)
{
    int64_t n = a.rows;
    auto at = [&](int64_t i, int64_t j) -> double & { return upper ? a(j, i) : a(i, j); }; /* of the lower factor */
    int info = 0;
    for (int64_t j = 0; j < n && !info; j++) {
        double sum = at(j, j);
        for (int64_t k = 0; k < j; k++)
            sum -= at(j, k) * at(j, k);
        if (!(sum > 0)) {
            info = (int)j + 1;
            break;
        }
        at(j, j) = sqrt(sum);
        for (int64_t i = j + 1; i < n; i++) {
            double rest = at(i, j);
            for (int64_t k = 0; k < j; k++)
                rest -= at(i, k) * at(j, k);
            at(i, j) = rest / at(j, j);
        }
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < j; i++)
            at(i, j) = NAN;
    return info;
}

void reflect(Matrix &a, std::vector<double> &tau)
{
    int64_t k = std::min(a.rows, a.columns);
    tau.assign((size_t)k, 0);
    for (int64_t j = 0; j < k; j++) {
        double below = 0;
        for (int64_t i = j + 1; i < a.rows; i++)
            below += a(i, j) * a(i, j);
        if (below == 0)
            continue;
        double beta = -copysign(sqrt(a(j, j) * a(j, j) + below), a(j, j));
        double t = (beta - a(j, j)) / beta, scale = 1 / (a(j, j) - beta);
        for (int64_t i = j + 1; i < a.rows; i++)
            a(i, j) *= scale;
        a(j, j) = beta;
        tau[(size_t)j] = t;
        for (int64_t c = j + 1; c < a.columns; c++) {
            double sum = a(j, c);
            for (int64_t i = j + 1; i < a.rows; i++)
                sum += a(i, j) * a(i, c);
            a(j, c) -= t * sum;
            for (int64_t i = j + 1; i < a.rows; i++)
                a(i, c) -= t * sum * a(i, j);
        }
    }
}

Matrix columns_of_q(const Matrix &a, const std::vector<double> &tau, int64_t k)
{
    Matrix q(a.rows, k);
    for (int64_t i = 0; i < k; i++)
        q(i, i) = 1;
    for (int64_t j = (int64_t)tau.size() - 1; j >= 0; j--)
        for (int64_t c = 0; c < k; c++) {
            double sum = q(j, c);
            for (int64_t i = j + 1; i < a.rows; i++)
                sum += a(i, j) * q(i, c);
            q(j, c) -= tau[(size_t)j] * sum;
            for (int64_t i = j + 1; i < a.rows; i++)
                q(i, c) -= tau[(size_t)j] * sum * a(i, j);
        }
    return q;
}

/* Turn columns x and y of a matrix by an angle. */
static void rotate(Matrix &a, int64_t x, int64_t y, double cosine, double sine)
{
    for (int64_t i = 0; i < a.rows; i++) {
        double one = a(i, x), other = a(i, y);
        a(i, x) = cosine * one - sine * other;
        a(i, y) = sine * one + cosine * other;
    }
}

/* The rotation that makes [[a, c], [c, b]] diagonal. */
static void angle(double a, double b, double c, double *cosine, double *sine)
{
    double zeta = (b - a) / (2 * c), t = copysign(1 / (fabs(zeta) + sqrt(1 + zeta * zeta)), zeta);
    *cosine = 1 / sqrt(1 + t * t);
    *sine = *cosine * t;
}

enum { SWEEPS = 60 };

void eigen(Matrix &a, bool upper, std::vector<double> &values)
{
    int64_t n = a.rows;
    Matrix v(n, n), sorted(n, n);
    for (int64_t i = 0; i < n; i++) {
        v(i, i) = 1;
        for (int64_t j = 0; j < i; j++)
            (upper ? a(i, j) : a(j, i)) = upper ? a(j, i) : a(i, j);
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int64_t x = 0; x < n; x++)
            for (int64_t y = x + 1; y < n; y++) {
                if (fabs(a(x, y)) <= 1e-17 * sqrt(fabs(a(x, x) * a(y, y))) || a(x, y) == 0)
                    continue;
                double cosine, sine;
                angle(a(x, x), a(y, y), a(x, y), &cosine, &sine);
                rotate(a, x, y, cosine, sine);
                rotate(v, x, y, cosine, sine);
                for (int64_t j = 0; j < n; j++) {
                    double one = a(x, j), other = a(y, j);
                    a(x, j) = cosine * one - sine * other;
                    a(y, j) = sine * one + cosine * other;
                }
            }
    std::vector<int64_t> order((size_t)n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return a(i, i) < a(j, j); });
    values.clear();
    for (int64_t j = 0; j < n; j++) {
        values.push_back(a(order[(size_t)j], order[(size_t)j]));
        for (int64_t i = 0; i < n; i++)
            sorted(i, j) = v(i, order[(size_t)j]);
    }
    a = sorted;
}

/* Make column j of u one of length 1 that is orthogonal to those before it: the first unit vector that has a part. */
static void complete(Matrix &u, int64_t j)
{
    for (int64_t unit = 0; unit < u.rows; unit++) {
        for (int64_t i = 0; i < u.rows; i++)
            u(i, j) = i == unit;
        for (int turn = 0; turn < 2; turn++)
            for (int64_t c = 0; c < j; c++) {
                double part = 0;
                for (int64_t i = 0; i < u.rows; i++)
                    part += u(i, c) * u(i, j);
                for (int64_t i = 0; i < u.rows; i++)
                    u(i, j) -= part * u(i, c);
            }
        double length = 0;
        for (int64_t i = 0; i < u.rows; i++)
            length += u(i, j) * u(i, j);
        if (length < 0.25 / (double)u.rows)
            continue;
        for (int64_t i = 0; i < u.rows; i++)
            u(i, j) /= sqrt(length);
        return;
    }
}

void singular(const Matrix &a, bool full, Matrix &u, std::vector<double> &s, Matrix &vt)
{
    int64_t m = a.rows, n = a.columns;
    Matrix b = a, v(n, n);
    for (int64_t i = 0; i < n; i++)
        v(i, i) = 1;
    auto dot = [&](int64_t x, int64_t y) {
        double sum = 0;
        for (int64_t i = 0; i < m; i++)
            sum += b(i, x) * b(i, y);
        return sum;
    };
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int64_t x = 0; x < n; x++)
            for (int64_t y = x + 1; y < n; y++) {
                double one = dot(x, x), other = dot(y, y), both = dot(x, y), cosine, sine;
                if (both == 0 || fabs(both) <= 1e-17 * sqrt(one * other))
                    continue;
                angle(one, other, both, &cosine, &sine);
                rotate(b, x, y, cosine, sine);
                rotate(v, x, y, cosine, sine);
            }
    std::vector<int64_t> order((size_t)n);
    std::vector<double> length((size_t)n);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t j = 0; j < n; j++)
        length[(size_t)j] = sqrt(dot(j, j));
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t i, int64_t j) { return length[(size_t)i] > length[(size_t)j]; });
    u = Matrix(m, full ? m : n);
    vt = Matrix(n, n);
    s.clear();
    for (int64_t j = 0; j < u.columns; j++) {
        int64_t from = j < n ? order[(size_t)j] : 0;
        double value = j < n ? length[(size_t)from] : 0;
        if (j < n)
            s.push_back(value);
        for (int64_t i = 0; i < n && j < n; i++)
            vt(j, i) = v(i, from);
        if (value > 1e-300 * (s.empty() ? 1 : s[0]) && value > 1e-16 * s[0])
            for (int64_t i = 0; i < m; i++)
                u(i, j) = b(i, from) / value;
        else
            complete(u, j);
    }
}

void triangular(const Matrix &a, Matrix &b, bool left, bool upper, bool transposed, bool unit)
{
    int64_t n = a.rows, lines = left ? b.columns : b.rows;
    auto of = [&](int64_t i, int64_t j) { return transposed ? a(j, i) : a(i, j); };
    bool is_upper = upper != transposed;
    /* x op(a) = b is op(a)' x' = b'. */
    bool forward = left ? !is_upper : is_upper;
    for (int64_t line = 0; line < lines; line++)
        for (int64_t step = 0; step < n; step++) {
            int64_t i = forward ? step : n - 1 - step;
            auto x = [&](int64_t k) -> double & { return left ? b(k, line) : b(line, k); };
            double sum = x(i);
            for (int64_t k = forward ? 0 : i + 1; k < (forward ? i : n); k++)
                sum -= (left ? of(i, k) : of(k, i)) * x(k);
            x(i) = unit ? sum : sum / of(i, i);
        }
}
} // namespace sim
