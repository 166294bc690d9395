/* One step of a recurrent layer behind the product of its hidden state, and back. A thread has one element of a state
 * at a time: steps are short, so it is threads that hide memory's delay, not wide accesses. */
#include "cuda/kernels/lib/activation.cuh"
#include "cuda/kernels/lib/each.cuh"
#include "cuda/kernels/lib/reals.cuh"
#include "cuda/kernels/linear/recurrent.h"

/* A row of a step and a column of it. */
struct place {
    int64_t row, column;
    __device__ __forceinline__ place(int64_t i, int64_t width)
    {
        row = (uint64_t)(i | width) >> 32 ? i / width : (int64_t)((uint32_t)i / (uint32_t)width);
        column = i - row * width;
    }
};

/* The inputs of a gate: of x, and of h with its bias. */
template <typename T> struct gate_inputs {
    typedef ah_real<T> R;
    const T *gates, *bias;
    const R *hidden_gates;
    __device__ __forceinline__ R of_input(int64_t at) const
    {
        return ah_get(gates[at]);
    }
    __device__ __forceinline__ R of_hidden(int64_t at) const
    {
        return bias ? hidden_gates[at] + ah_get(bias[at]) : hidden_gates[at];
    }
    __device__ __forceinline__ R sum(int64_t at) const
    {
        return of_input(at) + of_hidden(at);
    }
};

/* LSTM: c' = f c + i g, h' = o tanh(c'). */
template <typename T>
__device__ __forceinline__ ah_real<T> lstm(const gate_inputs<T> &in, int64_t width, ah_real<T> *cell,
                                           ah_real<T> *active, ah_real<T> *inner)
{
    typedef ah_real<T> R;
    const R i = ah_sigmoid(in.sum(0)), f = ah_sigmoid(in.sum(width));
    const R g = tanh(in.sum(2 * width)), o = ah_sigmoid(in.sum(3 * width)), c = f * *cell + i * g;
    active[0] = i;
    active[width] = f;
    active[2 * width] = g;
    active[3 * width] = o;
    *inner = *cell = c;
    return o * tanh(c);
}

/* GRU: h' = (1 - z) n + z h with n = tanh(x_n + r (W_hn h + b_hn)). */
template <typename T>
__device__ __forceinline__ ah_real<T> gru(const gate_inputs<T> &in, int64_t width, ah_real<T> h, ah_real<T> *active,
                                          ah_real<T> *inner)
{
    typedef ah_real<T> R;
    const R r = ah_sigmoid(in.sum(0)), z = ah_sigmoid(in.sum(width)), s = in.of_hidden(2 * width);
    const R n = tanh(in.of_input(2 * width) + r * s);
    active[0] = r;
    active[width] = z;
    active[2 * width] = n;
    *inner = s;
    return n + z * (h - n);
}

template <typename T> __device__ __forceinline__ void recurrent_cell(const ah_recurrent_cell_args &a)
{
    typedef ah_real<T> R;
    const int64_t width = a.width, wide = width * (a.kind == AH_CELL_LSTM ? 4 : a.kind == AH_CELL_GRU ? 3 : 1);
    AH_EACH(int64_t, i, a.count * width)
    {
        const place at(i, width);
        const int64_t first = at.row * wide + at.column, all = a.row * wide + first;
        const gate_inputs<T> in = {ah_at<const T>(a.gates) + all, a.bias ? ah_at<const T>(a.bias) + at.column : nullptr,
                                   ah_at<const R>(a.hidden_gates) + first};
        R *active = ah_at<R>(a.active) + all, *inner = ah_at<R>(a.inner) + a.row * width + i;
        T *hidden = ah_at<T>(a.hidden) + i;
        R h;
        if (a.kind == AH_CELL_LSTM) {
            h = lstm<T>(in, width, ah_at<R>(a.cell) + i, active, inner);
        } else if (a.kind == AH_CELL_GRU) {
            h = gru<T>(in, width, ah_get(*hidden), active, inner);
        } else {
            const R x = in.sum(0);
            h = a.kind == AH_CELL_TANH ? (R)tanh(x) : x > 0 || x != x ? x : (R)0;
            *active = h;
        }
        *hidden = ah_at<T>(a.output)[a.row * width + i] = ah_put<T>(h);
    }
}

template <typename T>
__device__ __forceinline__ void lstm_adjoint(int64_t width, const ah_real<T> *active, ah_real<T> inner, ah_real<T> cell,
                                             ah_real<T> dh, ah_real<T> *dc, T *dg)
{
    typedef ah_real<T> R;
    const R i = active[0], f = active[width], g = active[2 * width], o = active[3 * width];
    const R t = tanh(inner), d = *dc + dh * o * (1 - t * t);
    dg[0] = ah_put<T>(d * g * i * (1 - i));
    dg[width] = ah_put<T>(d * cell * f * (1 - f));
    dg[2 * width] = ah_put<T>(d * i * (1 - g * g));
    dg[3 * width] = ah_put<T>(dh * t * o * (1 - o));
    *dc = d * f;
}

/* Returns the direct gradient of the earlier state; the rest is added through its gates. */
template <typename T>
__device__ __forceinline__ ah_real<T> gru_adjoint(int64_t width, const ah_real<T> *active, ah_real<T> inner,
                                                  ah_real<T> before, ah_real<T> dh, T *dg, T *ds)
{
    typedef ah_real<T> R;
    const R r = active[0], z = active[width], n = active[2 * width], dn = dh * (1 - z) * (1 - n * n);
    dg[0] = ds[0] = ah_put<T>(dn * inner * r * (1 - r));
    dg[width] = ds[width] = ah_put<T>(dh * (before - n) * z * (1 - z));
    dg[2 * width] = ah_put<T>(dn);
    ds[2 * width] = ah_put<T>(dn * r);
    return dh * z;
}

template <typename T> __device__ __forceinline__ void recurrent_adjoint(const ah_recurrent_adjoint_args &a)
{
    typedef ah_real<T> R;
    const int64_t width = a.width, wide = width * (a.kind == AH_CELL_LSTM ? 4 : a.kind == AH_CELL_GRU ? 3 : 1);
    const int64_t rows = a.count > a.arrived ? a.count : a.arrived;
    AH_EACH(int64_t, i, rows * width)
    {
        const place at(i, width);
        const int64_t own = a.row * width + i, all = (a.row + at.row) * wide + at.column;
        R *running = ah_at<R>(a.grad_hidden) + i;
        R dh = *running;
        if (at.row < a.arrived)
            dh = ah_at<const R>(a.grad_later)[i] + (a.kind == AH_CELL_GRU ? dh : (R)0);
        if (at.row >= a.count) {
            *running = dh;
            continue;
        }
        const bool goes_on = at.row < a.earlier_count;
        const T before = goes_on ? ah_at<const T>(a.output)[a.earlier * width + i] : ah_at<const T>(a.first_hidden)[i];
        const R *active = ah_at<const R>(a.active) + all;
        T *dg = ah_at<T>(a.grad_gates) + all;
        ah_at<T>(a.before)[own] = before;
        if (a.grad_output)
            dh += ah_get(ah_at<const T>(a.grad_output)[own]);
        if (a.kind == AH_CELL_LSTM) {
            const R cell = goes_on ? ah_at<const R>(a.inner)[a.earlier * width + i]
                                   : ah_get(ah_at<const T>(a.first_cell)[i]);
            lstm_adjoint<T>(width, active, ah_at<const R>(a.inner)[own], cell, dh, ah_at<R>(a.grad_cell) + i, dg);
        } else if (a.kind == AH_CELL_GRU) {
            *running = gru_adjoint<T>(width, active, ah_at<const R>(a.inner)[own], ah_get(before), dh, dg,
                                      ah_at<T>(a.grad_hidden_gates) + all);
        } else {
            const R h = *active;
            *dg = ah_put<T>(dh * (a.kind == AH_CELL_TANH ? 1 - h * h : (R)(h > 0)));
        }
    }
}

#define RECURRENT(suffix, type)                                                                                       \
    AH_KERNEL_FEW(recurrent_cell_##suffix, ah_recurrent_cell_args, AH_RECURRENT_THREADS, sizeof(type) == 8)         \
    {                                                                                                               \
        recurrent_cell<type>(a);                                                                                    \
    }                                                                                                               \
    AH_KERNEL_FEW(recurrent_adjoint_##suffix, ah_recurrent_adjoint_args, AH_RECURRENT_THREADS, sizeof(type) == 8)   \
    {                                                                                                               \
        recurrent_adjoint<type>(a);                                                                                 \
    }
AH_FOR_REALS(RECURRENT)
