/* The records of a captured step: the CPU's calls, in order, with everything that a repetition needs.
 *
 * A record of a kernel owns copies of its call, of the headers of its tensors and of their storages, so that a
 * replay calls the kernel with them and nothing else: no dispatch, no shapes, no new tensors. Storages from outside of
 * the capture are retained, and compared before each replay. Lua thread only. */
#pragma once

#include "capture/pool.h"
#include "ops/dispatch/op.h"
#include "optim/kernels.h"
#include "tensor/capture.h"

/* A kernel's call. */
struct ah_record_call {
    ah_kernel kernel;
    struct ah_call call;
    struct ah_tensor *tensor;   /* [tensors], which the call's pointers address */
    struct ah_storage *storage; /* [storages]; version: the use of its block of the pool, if it is of one */
    int tensors, storages;
    bool *last;   /* [storages]: their marks, where the kernel changes one; else NULL */
    void *block;  /* memory of the arrays and of constants */
};

/* A pass of an optimizer or over gradients. */
struct ah_record_pass {
    enum ah_optim_kind kind;
    struct ah_optim_options options;
    struct ah_optim_segment *segment; /* of steps */
    struct ah_optim_run *run;         /* of others */
    int count;
    enum ah_dtype dtype;
    double number, max_norm; /* the factor, the limit or the order; of clipping: the bound */
    void *norm;
};

/* Bytes that are written: from an address, or those of the capture. */
struct ah_record_bytes {
    void *to;
    const void *from;
    void *owned; /* NULL, or the memory of `from` */
    size_t bytes;
    int byte;                     /* of a fill */
    int64_t batch, rows, columns; /* of a transposition, with items of `bytes` bytes */
};

enum ah_record_kind {
    AH_RECORD_CALL,
    AH_RECORD_FILL,
    AH_RECORD_COPY,
    AH_RECORD_TRANSPOSE,
    AH_RECORD_STEP,
    AH_RECORD_SCALE,
    AH_RECORD_CLAMP,
    AH_RECORD_CLIP,
    AH_RECORD_GET_STATE, /* of the generator, to `to` */
    AH_RECORD_SET_STATE, /* from `from` */
    AH_RECORD_WORK,
    AH_RECORD_NONE, /* dropped */
};

struct ah_record {
    enum ah_record_kind kind;
    union {
        struct ah_record_call *call;
        struct ah_record_pass *pass;
        struct ah_record_bytes *bytes;
        struct ah_capture_work work;
    };
};

/* A storage from outside of the capture: retained. */
struct ah_record_held {
    struct ah_storage *storage;
    void *data;
    bool last;
};

struct ah_records {
    struct ah_record *at;
    size_t count, room;
    struct ah_record_held *held;
    size_t held_count, held_room;
    struct ah_pool *pool;
};

/* Is the tensor one that the call's kernel writes? */
bool ah_record_is_result(const struct ah_call *call, const struct ah_tensor *tensor);

/* Append a record of a call that is about to run; AH_ESTATE when it cannot be repeated. */
int ah_record_call(struct ah_records *records, const struct ah_call *call, ah_kernel kernel);
/* After it has run: the same, and note the memory that it has written and moved. */
int ah_record_called(struct ah_records *records, const struct ah_call *call);

/* Append a record of bytes or of a pass; its arrays are copied. */
int ah_record_bytes(struct ah_records *records, enum ah_record_kind kind, const struct ah_record_bytes *bytes);
int ah_record_pass(struct ah_records *records, enum ah_record_kind kind, const struct ah_record_pass *pass);

/* Append a record of work of the host. */
int ah_record_work(struct ah_records *records, const struct ah_capture_work *work);

/* Bytes at this address are written by a record. */
void ah_records_wrote(struct ah_records *records, const void *address);

/* AH_ESTATE when a storage from outside was freed, replaced or moved. */
int ah_records_check(const struct ah_records *records);

/* Free a record, which becomes one of nothing. */
void ah_record_drop(struct ah_records *records, size_t index);

/* Free all records and let the storages go. */
void ah_records_clear(struct ah_records *records);
