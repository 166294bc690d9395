/* cuDNN's graph interface, as one struct of function pointers (dnn.def), with the types and codes it needs.
 *
 * As with driver.h nothing of the toolkit is included, and where cudnn_graph.h was included before, its own
 * declarations serve. The library is opened on first use (library.h): libcudnn.so.9, or the simulated GPU's. */
#pragma once

#include "cuda/driver/api/driver.h"

/* NAME(name, value) */
#define AH_CUDNN_CODES(NAME)                                                  \
    NAME(CUDNN_STATUS_SUCCESS, 0)                                             \
    NAME(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                  \
    NAME(CUDNN_STATUS_BAD_PARAM, 2000)                                        \
    NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, 2002)                           \
    NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, 2004)                          \
    NAME(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, 2008)                         \
    NAME(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, 2010)                         \
    NAME(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                    \
    NAME(CUDNN_STATUS_EXECUTION_FAILED, 5000)                                 \
    NAME(CUDNN_DATA_FLOAT, 0)                                                 \
    NAME(CUDNN_DATA_DOUBLE, 1)                                                \
    NAME(CUDNN_DATA_HALF, 2)                                                  \
    NAME(CUDNN_DATA_INT32, 4)                                                 \
    NAME(CUDNN_DATA_BFLOAT16, 9)                                              \
    NAME(CUDNN_DATA_BOOLEAN, 11)                                              \
    NAME(CUDNN_CONVOLUTION, 0)                                                \
    NAME(CUDNN_CROSS_CORRELATION, 1)                                          \
    NAME(CUDNN_REDUCE_TENSOR_ADD, 0)                                          \
    NAME(CUDNN_REDUCE_TENSOR_MAX, 3)                                          \
    NAME(CUDNN_POINTWISE_ADD, 0)                                              \
    NAME(CUDNN_POINTWISE_MUL, 1)                                              \
    NAME(CUDNN_POINTWISE_DIV, 6)                                              \
    NAME(CUDNN_POINTWISE_SUB, 9)                                              \
    NAME(CUDNN_POINTWISE_EXP, 13)                                             \
    NAME(CUDNN_POINTWISE_LOG, 15)                                             \
    NAME(CUDNN_POINTWISE_IDENTITY, 21)                                        \
    NAME(CUDNN_POINTWISE_CMP_GE, 303)                                         \
    NAME(CUDNN_POINTWISE_GEN_INDEX, 501)                                      \
    NAME(CUDNN_POINTWISE_BINARY_SELECT, 601)                                  \
    NAME(CUDNN_HEUR_MODE_INSTANT, 0)                                          \
    NAME(CUDNN_HEUR_MODE_FALLBACK, 2)                                         \
    NAME(CUDNN_HEUR_MODE_A, 3)                                                \
    NAME(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                                 \
    NAME(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                         \
    NAME(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                 \
    NAME(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)                            \
    NAME(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 8)                         \
    NAME(CUDNN_TYPE_HANDLE, 0)                                                \
    NAME(CUDNN_TYPE_DATA_TYPE, 1)                                             \
    NAME(CUDNN_TYPE_BOOLEAN, 2)                                               \
    NAME(CUDNN_TYPE_INT64, 3)                                                 \
    NAME(CUDNN_TYPE_FLOAT, 4)                                                 \
    NAME(CUDNN_TYPE_DOUBLE, 5)                                                \
    NAME(CUDNN_TYPE_VOID_PTR, 6)                                              \
    NAME(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                      \
    NAME(CUDNN_TYPE_HEUR_MODE, 8)                                             \
    NAME(CUDNN_TYPE_NUMERICAL_NOTE, 11)                                       \
    NAME(CUDNN_TYPE_POINTWISE_MODE, 14)                                       \
    NAME(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                                   \
    NAME(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                              \
    NAME(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                               \
    NAME(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                             \
    NAME(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                                  \
    NAME(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                               \
    NAME(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                              \
    NAME(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                          \
    NAME(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)          \
    NAME(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)  \
    NAME(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)    \
    NAME(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                    \
    NAME(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                         \
    NAME(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                           \
    NAME(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                                 \
    NAME(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                                 \
    NAME(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                       \
    NAME(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                              \
    NAME(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                    \
    NAME(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)                      \
    NAME(CUDNN_ATTR_POINTWISE_MODE, 0)                                        \
    NAME(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                                   \
    NAME(CUDNN_ATTR_POINTWISE_AXIS, 9)                                        \
    NAME(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                               \
    NAME(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                               \
    NAME(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                               \
    NAME(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                          \
    NAME(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                           \
    NAME(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                            \
    NAME(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                            \
    NAME(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                                     \
    NAME(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                          \
    NAME(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                                  \
    NAME(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                                    \
    NAME(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)                               \
    NAME(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                        \
    NAME(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                       \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)                 \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)                  \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)             \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)                     \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)                     \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)                     \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)                \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)                 \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)            \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)                    \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)                   \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)                   \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)              \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)               \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)          \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)                 \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)                  \
    NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)                 \
    NAME(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                   \
    NAME(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                           \
    NAME(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                           \
    NAME(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                           \
    NAME(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 754)                          \
    NAME(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 755)                          \
    NAME(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)                           \
    NAME(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)                               \
    NAME(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                                  \
    NAME(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                               \
    NAME(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                                    \
    NAME(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                                   \
    NAME(CUDNN_ATTR_TENSOR_STRIDES, 903)                                      \
    NAME(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                                    \
    NAME(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                                   \
    NAME(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                                  \
    NAME(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                            \
    NAME(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                         \
    NAME(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                             \
    NAME(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 1300)                             \
    NAME(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                                \
    NAME(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                              \
    NAME(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                                   \
    NAME(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                             \
    NAME(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                             \
    NAME(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                             \
    NAME(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                              \
    NAME(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                                 \
    NAME(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                                \
    NAME(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, 1602)                         \
    NAME(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                          \
    NAME(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                          \
    NAME(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                           \
    NAME(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)                            \
    NAME(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)

#ifndef CUDNN_GRAPH_H_
typedef int cudnnStatus_t;
typedef int cudnnBackendDescriptorType_t;
typedef int cudnnBackendAttributeName_t;
typedef int cudnnBackendAttributeType_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

enum {
#define NAME(name, value) name = value,
    AH_CUDNN_CODES(NAME)
#undef NAME
};
#endif

struct ah_cudnn {
#define CALL(result, field, symbol, parameters) result(*field) parameters;
#include "cuda/vendor/dnn.def"
#undef CALL
};

/* Open cuDNN, once; later calls return the first result. AH_EINVAL names the missing part in one line. Any thread. */
int ah_cudnn_open(const struct ah_cudnn **out);
