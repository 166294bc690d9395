/* Tensors: storage, views, shape.
 *
 * A tensor is a typed, strided window on a storage. Both are reference counted: storages atomically (helper threads
 * may hold them), tensors not (only the Lua thread touches them). Sizes and strides count elements. Functions that
 * make a tensor return it with one reference, owned by the caller. This file knows no ops and no gradients; `grad`
 * is an opaque hook for host/autograd. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/numeric/dtype.h"
#include "base/numeric/half.h"
#include "base/status/status.h"
#include "tensor/device.h"

enum { AH_MAX_DIMS = 8 };

struct ah_storage {
    atomic_int refs;
    uint32_t counted; /* for the binding: number of the collection of garbage before which it counted the bytes; or 0 */
    struct ah_device *device;
    /* True: `data` holds a 4-d tensor (N, C, H, W) in the order N, H, W, C. Only ops flagged for it ever see this;
     * every other door calls ah_tensor_row_major first. A marked storage has no views. */
    bool channels_last;
    bool absent;    /* ah_storage_fetch is to be called before `data` is read or written */
    bool contended; /* other processes share the memory: no process may change it depending on its values */
    uint32_t version; /* raised by every in-place write; shared by all views, as in PyTorch */
    void *data; /* an address of the device's: the host reads and writes it only on the CPU */
    size_t nbytes;
    void (*release)(struct ah_storage *storage); /* frees `data` when the device's allocator did not make it; or NULL */
    void *owner;                                 /* for `release` */
};

struct ah_grad_meta; /* host/autograd */

/* A separate version count, for a tensor whose writes others need not notice (t.data), and for its views. */
struct ah_version_count {
    int refs;
    uint32_t version;
};

/* A view made while gradients were off: of a plain tensor, of one that requires grad. */
enum ah_untracked { AH_TRACKED, AH_UNTRACKED, AH_UNTRACKED_GRAD };

struct ah_tensor {
    int refs;
    enum ah_dtype dtype;
    int ndim;
    bool wrapped; /* a Lua number as an operand: any tensor of its category determines the promoted dtype */
    uint8_t untracked;  /* enum ah_untracked: a view that autograd knows nothing of */
    bool shared_handle; /* the binding keeps this tensor's userdata in its identity table */
    int64_t numel;
    int64_t offset; /* elements from storage->data */
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    struct ah_storage *storage;
    struct ah_grad_meta *grad;  /* NULL until gradients are involved */
    struct ah_version_count *counter; /* counts in-place writes instead of the storage; mostly NULL */
};

/* Make an uninitialised row-major tensor. AH_EINVAL for ndim outside 0..8, a negative size, or an element count
 * that overflows; AH_ENOMEM. */
int ah_tensor_empty(struct ah_tensor **out, const int64_t *size, int ndim, enum ah_dtype dtype,
                    struct ah_device *device);
/* Row-major, same shape, dtype and device. */
int ah_tensor_empty_like(struct ah_tensor **out, const struct ah_tensor *like);
/* The shape of `like`, and its order of dims in memory (row-major for an expanded one), without gaps: numbers drawn in
 * memory order have the positions of PyTorch's. */
int ah_tensor_empty_ordered(struct ah_tensor **out, const struct ah_tensor *like, enum ah_dtype dtype,
                            struct ah_device *device);
int ah_tensor_zeros(struct ah_tensor **out, const int64_t *size, int ndim, enum ah_dtype dtype,
                    struct ah_device *device);

/* A 0-dim tensor holding `value`, converted to dtype. */
int ah_tensor_scalar(struct ah_tensor **out, double value, enum ah_dtype dtype, struct ah_device *device);

/* Make a tensor on memory of another owner, which `device` can access; `release(storage)` runs when the last reference
 * is released. */
int ah_tensor_from_memory(struct ah_tensor **out, void *data, const int64_t *size, int ndim, enum ah_dtype dtype,
                          struct ah_device *device, void (*release)(struct ah_storage *), void *owner);

/* A view: same storage, given geometry, no autograd. Bounds are the caller's duty. */
int ah_tensor_view(struct ah_tensor **out, const struct ah_tensor *base, const int64_t *size, const int64_t *stride,
                   int ndim, int64_t offset);

/* Count in-place writes through this tensor, and views made of it from now on, apart from the storage's other users.
 * AH_ENOMEM. */
int ah_tensor_own_version(struct ah_tensor *tensor);

/* Return the number of in-place writes of the tensor's memory, and count one more. */
static inline uint32_t ah_tensor_version(const struct ah_tensor *tensor)
{
    return tensor->counter ? tensor->counter->version : tensor->storage->version;
}
static inline void ah_tensor_touch(struct ah_tensor *tensor)
{
    ++*(tensor->counter ? &tensor->counter->version : &tensor->storage->version);
}

struct ah_tensor *ah_tensor_retain(struct ah_tensor *tensor);
void ah_tensor_release(struct ah_tensor *tensor); /* NULL is ignored */
/* Before a declaration of pointers to tensors, each NULL at first: release them at the end of the block, however that
 * is left but by a Lua error. */
#define AH_OWNED AH_CLEANUP(ah_tensor_release_owned)
static inline void ah_tensor_release_owned(struct ah_tensor *const *tensor)
{
    ah_tensor_release(*tensor);
}

/* Allocate an uninitialised storage, held by the caller. */
int ah_storage_new(struct ah_storage **out, size_t nbytes, struct ah_device *device);
struct ah_storage *ah_storage_retain(struct ah_storage *storage);
void ah_storage_release(struct ah_storage *storage);

/* The address of the first element. The tensor must be row-major in the sense of ah_tensor_row_major. */
static inline void *ah_tensor_data(const struct ah_tensor *tensor)
{
    return (char *)tensor->storage->data + (size_t)tensor->offset * ah_dtype_size(tensor->dtype);
}

bool ah_tensor_is_contiguous(const struct ah_tensor *tensor); /* row-major without gaps (marked storages: yes) */
bool ah_same_shape(const struct ah_tensor *a, const struct ah_tensor *b);

/* Provide the data of an absent storage; set by the folder that marks storages so (sync/split.h). */
extern int (*ah_storage_fetch)(struct ah_storage *storage);

/* If the storage is absent, fetch it; if it is marked channels-last, rewrite it to row-major in place and drop the
 * mark; else nothing. */
int ah_tensor_row_major(struct ah_tensor *tensor);

/* Mark the storage of a contiguous 4-d tensor, which nothing else refers to, channels-last: its elements move, or, with
 * `unset`, the order in which they are stored is declared to be that one. Nothing where both orders are the same.
 * AH_ENOMEM, or an error of the device; the tensor is then as before. */
int ah_tensor_channels_last(struct ah_tensor *tensor, bool unset);

/* Row-major strides for a shape; returns the element count. */
int64_t ah_contiguous_strides(const int64_t *size, int ndim, int64_t *stride);

/* Map dim in -ndim..ndim-1 (-1 and 0 for 0-dim tensors) to 0..; AH_EINVAL names `op` and the range. */
int ah_wrap_dim(const char *op, int64_t dim, int ndim, int *out);

/* Broadcast two shapes, aligned right; AH_EINVAL names both shapes. */
int ah_broadcast_shapes(const char *op, const struct ah_tensor *a, const struct ah_tensor *b, int64_t *size,
                        int *ndim);

/* Strides that make `tensor` walk the shape `size` (0 where it is stretched). The shape must be broadcastable. */
void ah_broadcast_strides(const struct ah_tensor *tensor, const int64_t *size, int ndim, int64_t *stride);

/* "(32, 784)" for messages; uses one of 8 rotating thread-local buffers. */
const char *ah_shape_text(const int64_t *size, int ndim);
static inline const char *ah_shape(const struct ah_tensor *tensor)
{
    return ah_shape_text(tensor->size, tensor->ndim);
}

static inline bool ah_on_cpu(const struct ah_tensor *tensor)
{
    return tensor->storage->device == &ah_cpu;
}

/* Bytes of the elements, without gaps between them. */
static inline size_t ah_tensor_bytes(const struct ah_tensor *tensor)
{
    return (size_t)tensor->numel * ah_dtype_size(tensor->dtype);
}

/* One element by its flat row-major index, as a double (int64 beyond 2^53 is rounded) or int64. The tensor must be on
 * the CPU. Slow; for printing, item() and checks. */
double ah_tensor_get(const struct ah_tensor *tensor, int64_t flat);
int64_t ah_tensor_get_int(const struct ah_tensor *tensor, int64_t flat);
void ah_tensor_set(struct ah_tensor *tensor, int64_t flat, double value);
void ah_tensor_set_int(struct ah_tensor *tensor, int64_t flat, int64_t value);

/* Frees tensor->grad; set by host/autograd at start-up so that this file need not know it. */
extern void (*ah_tensor_release_grad)(struct ah_grad_meta *meta);
