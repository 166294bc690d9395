#include <math.h>
#include <string.h>

#include "cpu/dense.h"
#include "cpu/elementwise_math.h"
#include "cpu/kernels.h"

enum { LANES = 64 };

#define REAL float
#define SUFFIX(name) name##_f32
#define EXP ah_expf
#define LOG logf
#include "cpu/softmax_loops.h"
#undef REAL
#undef SUFFIX
#undef EXP
#undef LOG
#define REAL double
#define SUFFIX(name) name##_f64
#define EXP exp
#define LOG log
#include "cpu/softmax_loops.h"

struct extent {
    int64_t outer, length, inner;
};

static struct extent extent_at(const struct ah_tensor *t, int64_t dim)
{
    struct extent e = {1, 1, 1};
    if (t->ndim == 0)
        return e;
    if (dim < 0)
        dim += t->ndim;
    for (int64_t d = 0; d < t->ndim; d++)
        *(d < dim ? &e.outer : d == dim ? &e.length : &e.inner) *= t->size[d];
    return e;
}

static int forward(struct ah_call *c, bool log)
{
    struct ah_tensor *xt = c->arg[0].tensor, *out = c->out[0], *cast = NULL;
    struct ah_dense x = {0};
    struct ah_dense_out y = {0};
    struct extent e = extent_at(out, c->arg[1].integer);
    int status;
    if (out->numel == 0)
        return 0;
    if (xt->dtype != out->dtype) {
        AH_TRY(ah_op1(AH_OP_to, &cast, AH_T(xt), AH_D(out->dtype)));
        xt = cast;
    }
    AH_TRYGO(ah_dense_open(&x, xt), out);
    AH_TRYGO(ah_dense_out_open(&y, out), out);
    if (ah_dense_dtype(out->dtype) == AH_F32)
        softmax_all_f32(x.data, y.data, e.outer, e.length, e.inner, log);
    else
        softmax_all_f64(x.data, y.data, e.outer, e.length, e.inner, log);
out:
    ah_dense_out_close(&y);
    ah_dense_close(&x);
    ah_tensor_release(cast);
    return status;
}

int ah_cpu_softmax(struct ah_call *c)
{
    return forward(c, false);
}

int ah_cpu_log_softmax(struct ah_call *c)
{
    return forward(c, true);
}

static int backward(struct ah_call *c, bool log)
{
    struct ah_tensor *out = c->out[0];
    struct ah_dense g = {0}, y = {0};
    struct ah_dense_out gx = {0};
    struct extent e = extent_at(out, c->arg[2].integer);
    int status;
    if (out->numel == 0)
        return 0;
    AH_TRYGO(ah_dense_open(&g, c->arg[0].tensor), out);
    AH_TRYGO(ah_dense_open(&y, c->arg[1].tensor), out);
    AH_TRYGO(ah_dense_out_open(&gx, out), out);
    if (ah_dense_dtype(out->dtype) == AH_F32)
        softmax_all_backward_f32(g.data, y.data, gx.data, e.outer, e.length, e.inner, log);
    else
        softmax_all_backward_f64(g.data, y.data, gx.data, e.outer, e.length, e.inner, log);
out:
    ah_dense_out_close(&gx);
    ah_dense_close(&y);
    ah_dense_close(&g);
    return status;
}

int ah_cpu_softmax_backward(struct ah_call *c)
{
    return backward(c, false);
}

int ah_cpu_log_softmax_backward(struct ah_call *c)
{
    return backward(c, true);
}
