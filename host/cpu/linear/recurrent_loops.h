/* Recurrent layers for one element type: REAL, SUFFIX(name), GEMM, SIGMOID and TANH are set by for_reals.h. A step
 * works on the first `count` rows of the running states; its own rows begin at `row` in the arrays of all steps. The
 * arrays do not overlap, and each item depends on those of its place alone, so loops over a row are vectorised. */

/* The inputs and outputs of one direction of a layer; row-major. */
struct SUFFIX(layer) {
    const REAL *gates, *weight, *bias;
    REAL *hidden, *cell;          /* running states [B, H] */
    REAL *output, *active, *inner; /* [N, H], [N, G H], [N, H] */
    REAL *hidden_gates;           /* scratch [B, G H]: W_hh h + b_hh */
};

/* LSTM: c' = f c + i g, h' = o tanh(c'); inner keeps c'. */
static void SUFFIX(lstm_row)(int64_t width, const REAL *gates, const REAL *hidden_gates, REAL *hidden, REAL *cell,
                             REAL *active, REAL *inner)
{
#pragma omp simd
    for (int64_t k = 0; k < width; k++) {
        REAL i = SIGMOID(gates[k] + hidden_gates[k]), f = SIGMOID(gates[width + k] + hidden_gates[width + k]);
        REAL g = TANH(gates[2 * width + k] + hidden_gates[2 * width + k]);
        REAL o = SIGMOID(gates[3 * width + k] + hidden_gates[3 * width + k]);
        active[k] = i, active[width + k] = f, active[2 * width + k] = g, active[3 * width + k] = o;
        inner[k] = cell[k] = f * cell[k] + i * g;
        hidden[k] = o * TANH(inner[k]);
    }
}

/* GRU: h' = (1 - z) n + z h with n = tanh(x_n + r (W_hn h + b_hn)); inner keeps the factor of r. */
static void SUFFIX(gru_row)(int64_t width, const REAL *gates, const REAL *hidden_gates, REAL *hidden, REAL *active,
                            REAL *inner)
{
#pragma omp simd
    for (int64_t k = 0; k < width; k++) {
        REAL r = SIGMOID(gates[k] + hidden_gates[k]), z = SIGMOID(gates[width + k] + hidden_gates[width + k]);
        inner[k] = hidden_gates[2 * width + k];
        REAL n = TANH(gates[2 * width + k] + r * inner[k]);
        active[k] = r, active[width + k] = z, active[2 * width + k] = n;
        hidden[k] = n + z * (hidden[k] - n);
    }
}

static void SUFFIX(plain_row)(int64_t width, bool relu, const REAL *gates, const REAL *hidden_gates, REAL *hidden,
                              REAL *active)
{
#pragma omp simd
    for (int64_t k = 0; k < width; k++) {
        REAL x = gates[k] + hidden_gates[k];
        active[k] = hidden[k] = relu ? (x > 0 ? x : x != x ? x : 0) : TANH(x);
    }
}

static void SUFFIX(forward_step)(const struct ah_recurrent_plan *plan, const struct SUFFIX(layer) *layer, int64_t row,
                                 int64_t count)
{
    int64_t width = plan->width, wide = plan->gates * width;
    for (int64_t i = 0; layer->bias && i < count; i++)
        memcpy(layer->hidden_gates + i * wide, layer->bias, (size_t)wide * sizeof(REAL));
    GEMM(false, true, count, wide, width, 1, layer->hidden, width, layer->weight, width, layer->bias != NULL,
         layer->hidden_gates, wide);
#pragma omp parallel for schedule(static) if (ah_worth_threads(count * wide, AH_SHARE_HEAVY))
    for (int64_t i = 0; i < count; i++) {
        const REAL *gates = layer->gates + (row + i) * wide, *hidden_gates = layer->hidden_gates + i * wide;
        REAL *hidden = layer->hidden + i * width, *active = layer->active + (row + i) * wide;
        REAL *inner = layer->inner + (row + i) * width;
        if (plan->kind == AH_LSTM)
            SUFFIX(lstm_row)(width, gates, hidden_gates, hidden, layer->cell + i * width, active, inner);
        else if (plan->kind == AH_GRU)
            SUFFIX(gru_row)(width, gates, hidden_gates, hidden, active, inner);
        else
            SUFFIX(plain_row)(width, plan->kind == AH_RNN_RELU, gates, hidden_gates, hidden, active);
        memcpy(layer->output + (row + i) * width, hidden, (size_t)width * sizeof(REAL));
    }
}

/* The backward of a layer: the forward's arrays, and gradients. */
struct SUFFIX(adjoint) {
    const REAL *weight, *output, *active, *inner, *grad_output; /* grad_output may be NULL */
    const REAL *first_hidden, *first_cell;
    REAL *grad_hidden, *grad_cell; /* running [B, H] */
    REAL *grad_gates;              /* [N, G H] with respect to x's gates */
    REAL *grad_hidden_gates;       /* [N, G H] with respect to h's gates: grad_gates itself but for GRU */
    REAL *before;                  /* [N, H]: the hidden state that each row began with */
};

static void SUFFIX(lstm_adjoint)(int64_t width, const REAL *active, const REAL *inner, const REAL *cell, REAL *dh,
                                 REAL *dc, REAL *dg)
{
#pragma omp simd
    for (int64_t k = 0; k < width; k++) {
        REAL i = active[k], f = active[width + k], g = active[2 * width + k], o = active[3 * width + k];
        REAL t = TANH(inner[k]), d = dc[k] + dh[k] * o * (1 - t * t);
        dg[k] = d * g * i * (1 - i);
        dg[width + k] = d * cell[k] * f * (1 - f);
        dg[2 * width + k] = d * i * (1 - g * g);
        dg[3 * width + k] = dh[k] * t * o * (1 - o);
        dc[k] = d * f;
    }
}

/* Leaves in dh the direct gradient of the previous state; the rest is added by the matmul of the gates. */
static void SUFFIX(gru_adjoint)(int64_t width, const REAL *active, const REAL *inner, const REAL *before, REAL *dh,
                                REAL *dg, REAL *ds)
{
#pragma omp simd
    for (int64_t k = 0; k < width; k++) {
        REAL r = active[k], z = active[width + k], n = active[2 * width + k];
        REAL dn = dh[k] * (1 - z) * (1 - n * n);
        dg[k] = ds[k] = dn * inner[k] * r * (1 - r);
        dg[width + k] = ds[width + k] = dh[k] * (before[k] - n) * z * (1 - z);
        dg[2 * width + k] = dn;
        ds[2 * width + k] = dn * r;
        dh[k] *= z;
    }
}

static void SUFFIX(plain_adjoint)(int64_t width, bool relu, const REAL *active, const REAL *dh, REAL *dg)
{
    for (int64_t k = 0; k < width; k++)
        dg[k] = dh[k] * (relu ? (REAL)(active[k] > 0) : 1 - active[k] * active[k]);
}

/* The state that row i of a step began with: that of the step before it, or the first one. */
static const REAL *SUFFIX(earlier)(const struct ah_recurrent_plan *plan, const REAL *all, const REAL *first,
                                   int64_t step, int64_t i)
{
    int64_t from = step + (plan->reverse ? 1 : -1);
    if (from < 0 || from == plan->steps || i >= plan->count[from])
        return first + i * plan->width;
    return all + (plan->row[from] + i) * plan->width;
}

static void SUFFIX(backward_step)(const struct ah_recurrent_plan *plan, const struct SUFFIX(adjoint) *a,
                                  int64_t step)
{
    int64_t width = plan->width, wide = plan->gates * width, row = plan->row[step], count = plan->count[step];
#pragma omp parallel for schedule(static) if (ah_worth_threads(count * wide, AH_SHARE_HEAVY))
    for (int64_t i = 0; i < count; i++) {
        const REAL *active = a->active + (row + i) * wide, *inner = a->inner + (row + i) * width;
        REAL *dh = a->grad_hidden + i * width, *dg = a->grad_gates + (row + i) * wide;
        REAL *before = a->before + (row + i) * width;
        memcpy(before, SUFFIX(earlier)(plan, a->output, a->first_hidden, step, i), (size_t)width * sizeof(REAL));
        for (int64_t k = 0; a->grad_output && k < width; k++)
            dh[k] += a->grad_output[(row + i) * width + k];
        if (plan->kind == AH_LSTM)
            SUFFIX(lstm_adjoint)(width, active, inner, SUFFIX(earlier)(plan, a->inner, a->first_cell, step, i), dh,
                                 a->grad_cell + i * width, dg);
        else if (plan->kind == AH_GRU)
            SUFFIX(gru_adjoint)(width, active, inner, before, dh, dg, a->grad_hidden_gates + (row + i) * wide);
        else
            SUFFIX(plain_adjoint)(width, plan->kind == AH_RNN_RELU, active, dh, dg);
    }
    GEMM(false, false, count, width, wide, 1, a->grad_hidden_gates + row * wide, wide, a->weight, width,
         plan->kind == AH_GRU, a->grad_hidden, width);
}

/* [G H, H + 1]: the gradient of the weight, and in the last column of the bias. */
static int SUFFIX(weight_adjoint)(const struct ah_recurrent_plan *plan, const struct SUFFIX(adjoint) *a, REAL *sums,
                                  REAL *out)
{
    int64_t width = plan->width, wide = plan->gates * width;
    GEMM(true, false, wide, width, plan->rows, 1, a->grad_hidden_gates, wide, a->before, width, 0, out, width + 1);
    AH_TRY(SUFFIX(ah_column_sum)(a->grad_hidden_gates, plan->rows, wide, sums));
    for (int64_t k = 0; k < wide; k++)
        out[k * (width + 1) + width] = sums[k];
    return 0;
}

static void SUFFIX(run_layer)(const struct ah_recurrent_plan *plan, const struct SUFFIX(layer) *layer)
{
    for (int64_t n = 0; n < plan->steps; n++) {
        int64_t step = ah_recurrent_step(plan, n);
        SUFFIX(forward_step)(plan, layer, plan->row[step], plan->count[step]);
    }
}

static int SUFFIX(run_adjoint)(const struct ah_recurrent_plan *plan, const struct SUFFIX(adjoint) *a, REAL *sums,
                               REAL *weight)
{
    for (int64_t n = 0; n < plan->steps; n++)
        SUFFIX(backward_step)(plan, a, ah_recurrent_step(plan, plan->steps - 1 - n));
    return SUFFIX(weight_adjoint)(plan, a, sums, weight);
}
