/* cuDNN's graphs, as far as they are one convolution: forward, or the gradient of its input or its filter. */
#ifndef AH_SIM_DNN_H
#define AH_SIM_DNN_H

#include "cuda/dnn.h"
#include "state.h"

#define CALL(result, field, symbol, parameters) SIM_API result symbol parameters;
#include "cuda/dnn.def"
#undef CALL

namespace sim
{
enum { SPATIAL = 3, DIMS = 2 + SPATIAL };

struct Dnn_tensor {
    int64_t id, alignment;
    int type; /* CUDNN_DATA_* */
    int ndim;
    int64_t size[DIMS], stride[DIMS];
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
    uint64_t noise; /* 0, or the seed of what is wrong in the last places */
};

/* Why it cannot be, in words; null when it can. */
const char *refuse_convolution(const Convolution &c);
/* On the stream's thread; the tensor that the kind names is the result. */
void convolve(const Convolution &c, char *x, char *w, char *y);
size_t bytes_of(const Dnn_tensor &tensor);
} // namespace sim

#endif
