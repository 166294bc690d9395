/* A convolution by plain loops over every pair of an input and an output, sums in double. The three kinds walk the same
 * pairs and differ in which of the three tensors is the sum. */
#include "dnn.h"

#include <string.h>

namespace sim
{
static size_t size_of_data(int type)
{
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
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

static double load(const Dnn_tensor &tensor, const char *at, int64_t index)
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

static void store(const Dnn_tensor &tensor, char *at, int64_t index, double value)
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
    /* What `visit` does with each number and its place in the tensor. */
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
    double &at(int64_t a, int64_t b, const int64_t *place)
    {
        const int64_t *n = tensor.size;
        return values[(size_t)((((a * n[1] + b) * n[2] + place[0]) * n[3] + place[1]) * n[4] + place[2])];
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

/* The input's place under a tap of the filter; false in the padding. */
static bool input_place(const Convolution &c, const int64_t *out, const int64_t *tap, int64_t *in)
{
    for (int i = 0; i < SPATIAL; i++) {
        int64_t k = c.flips ? c.w.size[2 + i] - 1 - tap[i] : tap[i];
        in[i] = out[i] * c.step[i] - c.before[i] + k * c.dilation[i];
        if (in[i] < 0 || in[i] >= c.x.size[2 + i])
            return false;
    }
    return true;
}

/* All pairs of an image and an output channel. */
template <class Pair> static void walk(const Convolution &c, Pair pair)
{
    int64_t per_group = c.w.size[1], outputs = c.w.size[0] / (c.x.size[1] / per_group);
    for (int64_t image = 0; image < c.x.size[0]; image++)
        for (int64_t to = 0; to < c.w.size[0]; to++) {
            int64_t out[SPATIAL] = {}, first = to / outputs * per_group;
            do {
                int64_t tap[SPATIAL] = {}, in[SPATIAL];
                do {
                    if (!input_place(c, out, tap, in))
                        continue;
                    for (int64_t from = 0; from < per_group; from++)
                        pair(image, to, from, first + from, out, tap, in);
                } while (next(tap, c.w.size + 2));
            } while (next(out, c.y.size + 2));
        }
}

void convolve(const Convolution &c, char *at_x, char *at_w, char *at_y)
{
    Dense x(c.x), w(c.w), y(c.y);
    typedef const int64_t *Place;
    switch (c.kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        x.read(at_x, c.rounds);
        w.read(at_w, c.rounds);
        walk(c, [&](int64_t image, int64_t to, int64_t from, int64_t channel, Place out, Place tap, Place in) {
            y.at(image, to, out) += x.at(image, channel, in) * w.at(to, from, tap);
        });
        y.write(at_y, c);
        return;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        y.read(at_y, c.rounds);
        w.read(at_w, c.rounds);
        walk(c, [&](int64_t image, int64_t to, int64_t from, int64_t channel, Place out, Place tap, Place in) {
            x.at(image, channel, in) += y.at(image, to, out) * w.at(to, from, tap);
        });
        x.write(at_x, c);
        return;
    default:
        x.read(at_x, c.rounds);
        y.read(at_y, c.rounds);
        walk(c, [&](int64_t image, int64_t to, int64_t from, int64_t channel, Place out, Place tap, Place in) {
            w.at(to, from, tap) += y.at(image, to, out) * x.at(image, channel, in);
        });
        w.write(at_w, c);
    }
}
} // namespace sim
