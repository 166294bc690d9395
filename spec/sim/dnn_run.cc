/* A graph by plain loops, an operation after the other, with every tensor dense in memory: sums in double, each result
 * rounded to its tensor's type. */
#include "dnn.h"

#include <algorithm>
#include <cmath>

#pragma GCC optimize("O3")

namespace sim
{
namespace
{
/* Four dims: Dnn_tensor's dim between channels and rows is of size 1. */
struct Values {
    int64_t n[4];
    std::vector<double> at;

    Values() = default;
    explicit Values(const Dnn_tensor &t) : n{t.size[0], t.size[1], t.size[3], t.size[4]}
    {
        at.assign((size_t)(n[0] * n[1] * n[2] * n[3]), 0);
    }
    /* With places that are stretched to another's. */
    double get(int64_t a, int64_t b, int64_t c, int64_t d) const
    {
        return at[(size_t)((((n[0] == 1 ? 0 : a) * n[1] + (n[1] == 1 ? 0 : b)) * n[2] + (n[2] == 1 ? 0 : c)) * n[3] +
                           (n[3] == 1 ? 0 : d))];
    }
    /* Each place, in row-major order, and its value. */
    template <class Visit> void each(Visit visit)
    {
        size_t i = 0;
        for (int64_t a = 0; a < n[0]; a++)
            for (int64_t b = 0; b < n[1]; b++)
                for (int64_t c = 0; c < n[2]; c++)
                    for (int64_t d = 0; d < n[3]; d++)
                        visit(at[i++], a, b, c, d);
    }
};

double rounded(int type, double value)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
        return (float)value;
    case CUDNN_DATA_HALF:
        return to_float(from_float<half_t>((float)value));
    case CUDNN_DATA_BFLOAT16:
        return to_float(from_float<bf16_t>((float)value));
    default:
        return value;
    }
}

int64_t place_of(const Dnn_tensor &t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * t.stride[0] + b * t.stride[1] + c * t.stride[3] + d * t.stride[4];
}

struct Run {
    const std::map<int64_t, char *> &places;
    const std::map<int64_t, float> &values;
    std::map<int64_t, Values> known;

    const Values &input(const Dnn_tensor &t)
    {
        auto found = known.find(t.id);
        if (found != known.end())
            return found->second;
        Values v(t);
        if (t.by_value)
            v.at[0] = values.at(t.id);
        else
            v.each([&](double &value, int64_t a, int64_t b, int64_t c, int64_t d) {
                value = load(t, places.at(t.id), place_of(t, a, b, c, d));
            });
        return known[t.id] = v;
    }
    void output(const Dnn_tensor &t, Values &v)
    {
        for (double &value : v.at)
            value = rounded(t.type, value);
        if (!t.is_virtual)
            v.each([&](double &value, int64_t a, int64_t b, int64_t c, int64_t d) {
                store(t, places.at(t.id), place_of(t, a, b, c, d), value);
            });
        known[t.id] = v;
    }
};

/* Factors are fp16 or bf16, also those declared as float in the graph; heads of the second serve several of the
 * first's. */
void multiply(const Step &s, const Values &x, const Values &y, Values &out)
{
    int64_t rows = x.n[2], inner = x.n[3], columns = y.n[3], group = x.n[1] / y.n[1];
    for (int64_t i = 0; i < x.n[0]; i++)
        for (int64_t h = 0; h < x.n[1]; h++) {
            const double *a = &x.at[(size_t)((i * x.n[1] + h) * rows * inner)];
            const double *b = &y.at[(size_t)((i * y.n[1] + h / group) * inner * columns)];
            double *c = &out.at[(size_t)((i * x.n[1] + h) * rows * columns)];
            for (int64_t r = 0; r < rows; r++)
                for (int64_t k = 0; k < inner; k++) {
                    double factor = rounded(s.b.type, a[r * inner + k]);
                    for (int64_t j = 0; j < columns; j++)
                        c[r * columns + j] += factor * b[k * columns + j];
                }
        }
}

double apply(int mode, double x, double b, double t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return std::exp(x);
    case CUDNN_POINTWISE_LOG:
        return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0 ? x : b;
    default:
        return x;
    }
}

void reduce(const Step &s, Values x, Values &out)
{
    bool sums = s.mode == CUDNN_REDUCE_TENSOR_ADD;
    const int64_t each[4] = {x.n[0] / out.n[0], x.n[1] / out.n[1], x.n[2] / out.n[2], x.n[3] / out.n[3]};
    if (!sums)
        out.at.assign(out.at.size(), -INFINITY);
    x.each([&](double &value, int64_t a, int64_t b, int64_t c, int64_t d) {
        double &to = out.at[(size_t)(((a / each[0] * out.n[1] + b / each[1]) * out.n[2] + c / each[2]) * out.n[3] +
                                     d / each[3])];
        to = sums ? to + value : std::max(to, value);
    });
}

void step_run(const Step &s, Run &run)
{
    const Values &x = run.input(s.x);
    Values out(s.y);
    if (s.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        multiply(s, x, run.input(s.b), out);
    } else if (s.kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        reduce(s, x, out);
    } else if (s.kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
        out.each([&](double &value, int64_t a, int64_t b, int64_t c, int64_t d) { value = x.get(a, b, d, c); });
    } else {
        const Values *y = s.has_b ? &run.input(s.b) : &x, *t = s.has_t ? &run.input(s.t) : &x;
        out.each([&](double &value, int64_t a, int64_t b, int64_t c, int64_t d) {
            const int64_t place[] = {a, b, 0, c, d};
            value = s.mode == CUDNN_POINTWISE_GEN_INDEX
                        ? (double)place[s.axis]
                        : apply(s.mode, x.get(a, b, c, d), y->get(a, b, c, d), t->get(a, b, c, d));
        });
    }
    run.output(s.y, out);
}
} // namespace

void run_graph(const Dnn_graph &graph, const std::map<int64_t, char *> &places, const std::map<int64_t, float> &values)
{
    Run run = {places, values, {}};
    for (const Step &step : graph)
        step_run(step, run);
}
} // namespace sim
