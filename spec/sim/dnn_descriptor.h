/* cuDNN's backend descriptors. */
#pragma once

#include "dnn.h"

namespace sim
{
struct Value {
    int type;
    int64_t count;
    std::vector<char> bytes;
};

struct Descriptor {
    int type;
    bool finalized = false;
    std::map<int, Value> values;
    Dnn_tensor tensor;
    Convolution convolution;
    Step step = {};                         /* of kind 0: none */
    std::shared_ptr<const Dnn_graph> graph; /* null: a convolution */
    int engine = 0;

    /* Return the values that were set, as `T`s; null when it was not, or in another type or number. */
    template <class T> const T *get(int name, int of_type, int64_t count) const
    {
        auto found = values.find(name);
        bool fits = found != values.end() && found->second.type == of_type &&
                    (count < 0 ? found->second.count > 0 : found->second.count == count);
        return fits ? reinterpret_cast<const T *>(found->second.bytes.data()) : nullptr;
    }
    int64_t count(int name) const
    {
        auto found = values.find(name);
        return found == values.end() ? 0 : found->second.count;
    }
    /* The descriptor that an attribute names, finalized and of this type. */
    const Descriptor *other(int name, int of_type) const
    {
        auto at = get<Descriptor *>(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1);
        return at && *at && (*at)->finalized && (*at)->type == of_type ? *at : nullptr;
    }
};

/* Report the reason, and return the code. */
int refuse(int code, const char *text);

/* Finalize the descriptor of an operation that is no convolution, or of how it is done. */
int finish_how(Descriptor &d);
int finish_step(Descriptor &d);
/* Finalize a graph of such operations. */
int finish_steps(Descriptor &d);
} // namespace sim
