/* Lists of tensors that a function makes and releases at its end; single ones are AH_OWNED (tensor/tensor.h). */
#pragma once

#include "tensor/tensor.h"

/* Define an array of tensors, NULL at first, that are released at the end of the block, however that is left but by a
 * Lua error. */
#define AH_OWNED_LIST(name, count)          \
    struct ah_tensor *name[count] = {NULL}; \
    struct ah_owned_list name##_list __attribute__((cleanup(ah_owned_list_release), unused)) = {name, count}

struct ah_owned_list {
    struct ah_tensor **at;
    int count;
};

static inline void ah_owned_list_release(const struct ah_owned_list *list)
{
    for (int i = 0; i < list->count; i++)
        ah_tensor_release(list->at[i]);
}
