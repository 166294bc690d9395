/* A convolution by plain loops over every pair of an input and an output, sums in double. The three kinds walk the same
 * pairs, in lines along the last dim, and differ in which of the three tensors is the sum. */
#include "dnn.h"

#include <algorithm>
#include <string.h>

/* Lines are short and there are many; their loops dominate a network's time. */
#pragma GCC optimize("O3")

namespace sim
{
static size_t size_of_data(int type)
{
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2; /* no other has memory */
}

size_t bytes_of(const Dnn_tensor &tensor)
{
    int64_t last = 0;
    for (int i = 0; i < DIMS; i++)
        last += (tensor.size[i] - 1) * tensor.stride[i];
    return (size_t)(last + 1) * size_of_data(tensor.type);
}

const char *refuse_convolution(const Convolution &c)
{
    if (c.x.size[1] % c.w.size[1] || c.w.size[0] % (c.x.size[1] / c.w.size[1]))
        return "channels that do not divide into groups";
    if (c.y.size[0] != c.x.size[0] || c.y.size[1] != c.w.size[0])
        return "sizes that do not fit";
    for (int i = 0; i < SPATIAL; i++) {
        int64_t reach = c.dilation[i] * (c.w.size[2 + i] - 1) + 1;
        int64_t room = c.x.size[2 + i] + c.before[i] + c.after[i] - reach;
        if (room < 0 || room / c.step[i] + 1 != c.y.size[2 + i])
            return "an output of another size than input, filter, padding, stride and dilation give";
    }
    return c.x.type != c.w.type || c.x.type != c.y.type ? "tensors of different types" : nullptr;
}

double load(const Dnn_tensor &tensor, const char *at, int64_t index)
{
    switch (tensor.type) {
    case CUDNN_DATA_DOUBLE:
        return reinterpret_cast<const double *>(at)[index];
    case CUDNN_DATA_FLOAT:
        return reinterpret_cast<const float *>(at)[index];
    case CUDNN_DATA_HALF:
        return to_float(reinterpret_cast<const half_t *>(at)[index]);
    default:
        return to_float(reinterpret_cast<const bf16_t *>(at)[index]);
    }
}

void store(const Dnn_tensor &tensor, char *at, int64_t index, double value)
{
    switch (tensor.type) {
    case CUDNN_DATA_DOUBLE:
        reinterpret_cast<double *>(at)[index] = value;
        return;
    case CUDNN_DATA_FLOAT:
        reinterpret_cast<float *>(at)[index] = (float)value;
        return;
    case CUDNN_DATA_HALF:
        reinterpret_cast<half_t *>(at)[index] = from_float<half_t>((float)value);
        return;
    default:
        reinterpret_cast<bf16_t *>(at)[index] = from_float<bf16_t>((float)value);
    }
}

/* To 10 bits behind the point, ties away from 0. */
static float to_tf32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + 0x1000) & ~(uint32_t)0x1fff;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* A tensor's numbers in double, dense and row-major. */
struct Dense {
    const Dnn_tensor &tensor;
    std::vector<double> values;

    explicit Dense(const Dnn_tensor &its_tensor) : tensor(its_tensor)
    {
        size_t count = 1;
        for (int64_t size : tensor.size)
            count *= (size_t)size;
        values.assign(count, 0);
    }
    /* Call `visit` with each number and its place in the tensor. */
    template <class Visit> void each(Visit visit)
    {
        const int64_t *n = tensor.size, *s = tensor.stride;
        size_t i = 0;
        for (int64_t a = 0; a < n[0]; a++)
            for (int64_t b = 0; b < n[1]; b++)
                for (int64_t d = 0; d < n[2]; d++)
                    for (int64_t h = 0; h < n[3]; h++)
                        for (int64_t w = 0; w < n[4]; w++)
                            visit(values[i++], a * s[0] + b * s[1] + d * s[2] + h * s[3] + w * s[4]);
    }
    void read(const char *at, bool rounds)
    {
        each([&](double &value, int64_t place) {
            value = load(tensor, at, place);
            if (rounds && tensor.type == CUDNN_DATA_FLOAT)
                value = to_tf32((float)value);
        });
    }
    void write(char *at, const Convolution &c)
    {
        uint64_t state = c.noise;
        each([&](double &value, int64_t place) {
            double old = c.beta != 0 ? c.beta * load(tensor, at, place) : 0;
            state = state * 6364136223846793005u + 1442695040888963407u;
            double wrong = c.noise ? 1 + (double)(state >> 40) / (1 << 24) / 64 : 1;
            store(tensor, at, place, c.alpha * value * wrong + old);
        });
    }
};

/* The next place of a box; false past the last. */
static bool next(int64_t *place, const int64_t *size)
{
    for (int i = SPATIAL - 1; i >= 0; i--) {
        if (++place[i] < size[i])
            return true;
        place[i] = 0;
    }
    return false;
}

/* The outputs along a dim for which a tap of the filter is not in the padding, and the input's place of the first. */
struct Reach {
    int64_t first, count, in;
};

static Reach reach_of(const Convolution &c, int dim, int64_t tap)
{
    int64_t k = c.flips ? c.w.size[2 + dim] - 1 - tap : tap, step = c.step[dim];
    int64_t shift = k * c.dilation[dim] - c.before[dim], room = c.x.size[2 + dim] - 1 - shift;
    int64_t first = shift < 0 ? (step - 1 - shift) / step : 0;
    int64_t end = room < 0 ? 0 : std::min(room / step + 1, c.y.size[2 + dim]);
    return {first, end - first, first * step + shift};
}

/* A tap's reach along the three dims. */
struct Tap {
    Reach d, h, w;
};

static std::vector<Tap> taps_of(const Convolution &c)
{
    std::vector<Tap> taps;
    int64_t tap[SPATIAL] = {};
    do
        taps.push_back({reach_of(c, 0, tap[0]), reach_of(c, 1, tap[1]), reach_of(c, 2, tap[2])});
    while (next(tap, c.w.size + 2));
    return taps;
}

/* A tap's pairs, a line along the last dim at a time: `line` has the weight, the first output, the first input and how
 * many outputs there are, whose inputs are step[2] apart. */
template <class Line>
static void walk_tap(const Convolution &c, const Tap &tap, double *w, double *y, double *x, Line line)
{
    if (tap.w.count <= 0)
        return;
    for (int64_t i = 0; i < tap.d.count; i++)
        for (int64_t j = 0; j < tap.h.count; j++) {
            int64_t out = (tap.d.first + i) * c.y.size[3] + tap.h.first + j;
            int64_t in = (tap.d.in + i * c.step[0]) * c.x.size[3] + tap.h.in + j * c.step[1];
            line(*w, y + out * c.y.size[4] + tap.w.first, x + in * c.x.size[4] + tap.w.in, tap.w.count);
        }
}

static int64_t volume(const Dnn_tensor &tensor)
{
    return tensor.size[2] * tensor.size[3] * tensor.size[4];
}

template <class Line> static void walk(const Convolution &c, Dense &w, Dense &y, Dense &x, Line line)
{
    int64_t per_group = c.w.size[1], outputs = c.w.size[0] / (c.x.size[1] / per_group);
    const std::vector<Tap> taps = taps_of(c);
    for (int64_t image = 0; image < c.x.size[0]; image++)
        for (int64_t to = 0; to < c.w.size[0]; to++)
            for (int64_t from = 0; from < per_group; from++) {
                double *weight = w.values.data() + (to * per_group + from) * volume(c.w);
                double *out = y.values.data() + (image * c.y.size[1] + to) * volume(c.y);
                double *in = x.values.data() + (image * c.x.size[1] + to / outputs * per_group + from) * volume(c.x);
                for (const Tap &tap : taps)
                    walk_tap(c, tap, weight++, out, in, line);
            }
}

static void add_forward(double w, double *__restrict__ y, const double *__restrict__ x, int64_t n, int64_t step)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += w * x[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += w * x[i * step];
}

static void add_to_input(double w, const double *__restrict__ y, double *__restrict__ x, int64_t n, int64_t step)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++)
            x[i] += w * y[i];
    else
        for (int64_t i = 0; i < n; i++)
            x[i * step] += w * y[i];
}

static double product(const double *__restrict__ y, const double *__restrict__ x, int64_t n, int64_t step)
{
    enum { LANES = 8 };
    double sums[LANES] = {}, sum = 0;
    int64_t i = 0;
    if (step == 1)
        for (; i + LANES <= n; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                sums[lane] += y[i + lane] * x[i + lane];
    for (; i < n; i++)
        sum += y[i] * x[i * step];
    for (double one : sums)
        sum += one;
    return sum;
}

void convolve(const Convolution &c, char *at_x, char *at_w, char *at_y)
{
    Dense x(c.x), w(c.w), y(c.y);
    int64_t step = c.step[2];
    switch (c.kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        x.read(at_x, c.rounds);
        w.read(at_w, c.rounds);
        walk(c, w, y, x,
             [=](double &weight, double *out, double *in, int64_t n) { add_forward(weight, out, in, n, step); });
        y.write(at_y, c);
        return;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        y.read(at_y, c.rounds);
        w.read(at_w, c.rounds);
        walk(c, w, y, x,
             [=](double &weight, double *out, double *in, int64_t n) { add_to_input(weight, out, in, n, step); });
        x.write(at_x, c);
        return;
    default:
        x.read(at_x, c.rounds);
        y.read(at_y, c.rounds);
        walk(c, w, y, x,
             [=](double &weight, double *out, double *in, int64_t n) { weight += product(out, in, n, step); });
        w.write(at_w, c);
    }
}
} // namespace sim
