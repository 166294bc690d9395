/* Compiled where cuDNN's header is, never linked: the declarations of host/cuda/vendor/dnn.h equal cudnn_graph.h's.
 * */
#include <cuda.h>

#include <cudnn_graph.h>

#include "cuda/vendor/dnn.h"

#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), "differs from cudnn_graph.h: " #a)

#define CALL(result, field, symbol, parameters) \
    SAME(__typeof__(&symbol), __typeof__(((struct ah_cudnn *)0)->field));
#include "cuda/vendor/dnn.def"
#undef CALL

/* The definitions of the plugin's own types. */
_Static_assert(sizeof(cudnnStatus_t) == sizeof(int), "a status is an int");
_Static_assert(sizeof(cudnnBackendDescriptorType_t) == sizeof(int), "a descriptor's type is an int");
_Static_assert(sizeof(cudnnBackendAttributeName_t) == sizeof(int), "an attribute's name is an int");
_Static_assert(sizeof(cudnnBackendAttributeType_t) == sizeof(int), "an attribute's type is an int");
SAME(cudnnBackendDescriptor_t, void *);

#define NAME(name, value) _Static_assert((int)name == (value), #name " has another value in cudnn_graph.h");
AH_CUDNN_CODES(NAME)
#undef NAME
