/* cuDNN's graphs, as far as they are one convolution (forward, or the gradient of its input or its filter), or
 * attention made of products, pointwise operations, reductions and views. */
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/vendor/dnn.h"
#include "state.h"

#define CALL(result, field, symbol, parameters) SIM_API result symbol parameters;
#include "cuda/vendor/dnn.def"
#undef CALL

namespace sim
{
enum { SPATIAL = 3, DIMS = 2 + SPATIAL };

struct Dnn_tensor {
    int64_t id, alignment;
    int type; /* CUDNN_DATA_* */
    int ndim;
    int64_t size[DIMS], stride[DIMS];
    bool is_virtual, by_value;
};

/* Spatial dims that are missing are the first ones, with size 1, stride 1 and no padding. */
struct Convolution {
    int kind; /* the operation's descriptor type */
    Dnn_tensor x, w, y;
    bool flips; /* a convolution in mathematics' sense */
    int spatial;
    int64_t before[SPATIAL], after[SPATIAL], step[SPATIAL], dilation[SPATIAL];
    double alpha, beta;
    bool rounds;    /* float32 operands to the 10 bits of tensor cores */
    uint64_t noise; /* 0, or the seed of errors in the last places */
};

/* Why it cannot be, in words; null when it can. */
const char *refuse_convolution(const Convolution &c);
/* On the stream's thread; the tensor that the kind names is the result. */
void convolve(const Convolution &c, char *x, char *w, char *y);
size_t bytes_of(const Dnn_tensor &tensor);
/* An element of a tensor, as a number. */
double load(const Dnn_tensor &tensor, const char *at, int64_t index);
void store(const Dnn_tensor &tensor, char *at, int64_t index, double value);

/* An operation of a graph that is no convolution. */
struct Step {
    int kind; /* the operation's descriptor type */
    int mode; /* CUDNN_POINTWISE_* or CUDNN_REDUCE_TENSOR_* */
    int axis; /* of an index, among DIMS */
    Dnn_tensor x, b, t, y;
    bool has_b, has_t;
};
typedef std::vector<Step> Dnn_graph;
typedef std::map<int64_t, Dnn_tensor> Dnn_tensors; /* by id */

/* Why it cannot be, in words; null when it can. */
const char *refuse_step(const Step &step);
const char *refuse_graph(const Dnn_graph &graph);
/* Return the tensors for which a caller must have an address: those in memory, and values. */
Dnn_tensors tensors_of(const Dnn_graph &graph);
/* On the stream's thread: `places` by id, values as floats. */
void run_graph(const Dnn_graph &graph, const std::map<int64_t, char *> &places, const std::map<int64_t, float> &values);
} // namespace sim
