/* Devices: owners of storages' memory, executors of kernels.
 *
 * A device type is a table of functions: the CPU's is built in (tensor/cpu_memory.c, with the kernels of host/cpu), and
 * so is that of "meta", which has no values (host/meta); others are loaded from a plugin, the shared library
 * accelhost-NAME.so, which exports it as `ah_device_plugin`. A device is one of its type, "cuda:1", opened on first use
 * and open to the end of the process. Memory of a device other than the CPU may be out of the host's reach: only the
 * functions here and the device's kernels touch it, everything else copies it to the CPU first (ah_host_copy in
 * ops/dispatch/op.h).
 *
 * Order: a device runs its work (kernels, copies, fills) in the order of the calls, possibly after they return; a copy
 * to or from the CPU has completed when it returns.
 *
 * Lua thread only, except `allocate` and `release` of a type: helper threads free storages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory/alloc.h"

struct ah_call;
struct ah_device;
struct ah_device_comm_type;
struct ah_graph;         /* of the type */
struct ah_optim_kernels; /* optim/kernels.h */
struct ah_tensor;

/* Computes call->out from call->arg; shapes and dtypes have been checked and outputs allocated by the op. All tensors
 * are on call->device, except that a 0-dim operand may be on the CPU. */
typedef int (*ah_kernel)(struct ah_call *call);

/* Raise it whenever a struct or function that plugins use changes. */
enum { AH_DEVICE_ABI = 9 };

/* A leaf whose gradient a captured step makes: `grad` is the one that it had (NULL: none), unless the step replaces it.
 * Both are the graph's. */
struct ah_graph_leaf {
    struct ah_tensor *tensor, *grad;
    bool replaces;
};

/* Graphs: captured work of a device, which is replayed as one unit. */
struct ah_graph_functions {
    /* Make an empty graph, with its own memory. Its tensors' memory outlives it. */
    int (*open)(struct ah_device *device, struct ah_graph **out);
    void (*close)(struct ah_graph *graph);
    /* Start the capture: this thread's work for the device is recorded and not executed; it uses the graph's memory. An
     * op that needs the device's result, or the host's values, is AH_ESTATE. One graph of a device at a time. */
    int (*begin)(struct ah_graph *graph);
    /* The end of that, in any case; without `keep`, or when it fails, the graph is of nothing again. */
    int (*end)(struct ah_graph *graph, bool keep);
    /* While it is on, the steps that optimizers ask of the device are those of the graph, in the same order; they are
     * not done, but the graph's next replay does them with these numbers (rates, corrections). AH_ESTATE when they are
     * others. */
    int (*revise)(struct ah_graph *graph, bool on);
    /* Run the captured work. AH_ESTATE when memory that it uses was freed. */
    int (*replay)(struct ah_graph *graph);
    /* May be missing. Run the captured work up to the first step of an optimizer, from where the next replay continues:
     * when it fails, the host has not counted the step yet. */
    int (*advance)(struct ah_graph *graph);
    /* May be missing. Name the tensors from outside, `input`, that change from replay to replay. After that, have the
     * next replays read input i in the memory of another contiguous tensor like it, or in its own; false: it can only
     * be read in its own. */
    int (*inputs)(struct ah_graph *graph, struct ah_tensor **input, int count);
    bool (*redirect)(struct ah_graph *graph, int i, const struct ah_tensor *tensor);
    /* May be missing. Leaf i of those without a slot whose gradients the captured work makes; NULL past the last. */
    const struct ah_graph_leaf *(*leaf)(struct ah_graph *graph, size_t i);
};

/* Memory of the host that the device reads by itself, and a queue of copies that run while kernels compute. */
struct ah_prefetch_functions {
    /* A pinned block, and its release: any thread may call that, and copies that are queued are still made. */
    int (*pin)(struct ah_device *device, size_t bytes, void **out);
    void (*unpin)(struct ah_device *device, void *block);
    /* A block of the device that is filled, in that queue, with the host's bytes at `from`. Those of a pinned block
     * have to stay as they are until the copy is made. The block may not be used before `join`. Any thread may drop
     * it. */
    int (*fetch)(struct ah_device *device, void **out, const void *from, size_t bytes, bool pinned);
    void (*drop)(struct ah_device *device, void *block);
    /* Make kernels launched from now on wait for all copies so far. */
    int (*join)(struct ah_device *device);
};

/* Events in the queue of kernels, after all that was launched before. */
struct ah_device_event;
struct ah_device_event_functions {
    int (*open)(struct ah_device *device, bool timed, struct ah_device_event **out);
    void (*close)(struct ah_device_event *event);
    int (*set)(struct ah_device_event *event); /* at this point of the stream; replaces the previous one */
    int (*reached)(struct ah_device_event *mark, bool *out);
    int (*wait)(struct ah_device_event *event); /* until it is reached; one that was never set is */
    /* Between two timed events of one device that were reached. */
    int (*elapsed)(struct ah_device_event *from, struct ah_device_event *to, double *milliseconds);
};

/* Execution times of a device under one name, measured on the device and summed over `count` launches. */
struct ah_device_time {
    const char *op, *kernel; /* the op or another caller; the kernel or the library's call */
    uint64_t count;
    double microseconds;
    double bytes, operations; /* that it has moved and done at least; 0: not known */
    double least_microseconds; /* for the operations at the device's highest rate; 0: not known */
};

/* Times of kernels, until stopped: start forgets the earlier ones, stop waits for the device. */
struct ah_time_functions {
    int (*start)(struct ah_device *device);
    int (*stop)(struct ah_device *device);
    /* Row i, from 0, in the order of first launches; false past the last one. */
    bool (*read)(struct ah_device *device, size_t i, struct ah_device_time *out);
};

/* A property of a device: a number, or a text where that is not empty. */
struct ah_device_property {
    const char *name;
    double number;
    char text[128];
};

struct ah_device_type {
    unsigned abi;     /* AH_DEVICE_ABI of the headers the plugin was built with */
    const char *name; /* "cuda": letters and digits */

    /* Return the number of devices of this type; 0 when none can be used. */
    int (*count)(void);
    /* The reason why count() is 0, in one line; and a description of one device or, with index -1, of the type: driver
     * and versions. Either function may be missing. */
    const char *(*missing)(void);
    int (*describe)(int index, char *text, size_t room);
    /* The i-th fact about a device, from 0; false past the last one. May be missing. */
    bool (*property)(int index, int i, struct ah_device_property *out);
    /* Fill `out` with at most `room` readings of card `card` of the host, counted among all of them, whether or not
     * this process may use it; return their number, 0 when there is none. No device is opened. May be missing. */
    int (*sensors)(int card, struct ah_device_property *out, int room);
    /* Set kernels, optim, table and state of the device for its index, which is below count(). */
    int (*open)(struct ah_device *device);
    void (*close)(struct ah_device *device); /* all its storages are freed */

    /* Blocks are aligned to 64 bytes at least and not cleared; `bytes` may be 0. AH_ENOMEM. */
    int (*allocate)(struct ah_device *device, size_t bytes, void **out);
    bool collects; /* allocate has run Lua's collector (ah_block_relieve) before it fails */
    void (*release)(struct ah_device *device, void *block, size_t bytes);

    /* Copy between two devices, one of them this one, the other of this type or the CPU. On `stream`, a queue that only
     * the type knows; NULL is the one that kernels run on. With a stream the copy is waited for by synchronise. */
    int (*copy)(struct ah_device *device, void *to, struct ah_device *to_device, const void *from,
                struct ah_device *from_device, size_t bytes, void *stream);
    /* Set each of the bytes. */
    int (*fill)(struct ah_device *device, void *to, int byte, size_t bytes);
    /* Each of `batch` matrices of `rows` x `columns` items (of 1, 2, 4 or 8 bytes) from `from` transposed to `to`. */
    int (*transpose)(struct ah_device *device, void *to, const void *from, int64_t batch, int64_t rows, int64_t columns,
                     size_t item);
    /* Wait for all that this device (or only that stream) was asked to do. */
    int (*synchronise)(struct ah_device *device, void *stream);

    /* The generator that random kernels draw from. A state is `state_bytes` bytes on the CPU, of which the
     * first 8 are the seed; fewer when nothing is drawn. */
    size_t state_bytes;
    void (*seed)(struct ah_device *device, uint64_t seed);
    int (*get_state)(struct ah_device *device, uint8_t *state);
    int (*set_state)(struct ah_device *device, const uint8_t *state);

    void (*memory_stats)(struct ah_device *device, struct ah_memory_stats *stats);
    void (*reset_peak)(struct ah_device *device); /* set the peak to the live bytes; may be NULL */
    void (*trim)(struct ah_device *device);       /* return cached memory to the system */
    /* Bytes that the device has and that are free there, and those of the host that are pinned; may be missing. */
    int (*memory_info)(struct ah_device *device, size_t *available, size_t *total, size_t *pinned);

    /* Its device communicator between the ranks of a group (comm/group/device_comm.h); NULL: tensors are copied through
     * the CPU. */
    const struct ah_device_comm_type *device_comm;
    /* NULL: this type has none. */
    const struct ah_graph_functions *graphs;
    const struct ah_prefetch_functions *prefetch;
    const struct ah_device_event_functions *events;
    const struct ah_time_functions *times;
    /* May be missing. Report the trace's ranges (base/trace/trace.h) to the type's profiler, or no longer. */
    int (*report_ranges)(bool on);
};

struct ah_device {
    const ah_kernel *kernels; /* indexed by enum ah_opid; NULL entry: not on this device */
    const struct ah_optim_kernels *optim;
    const char *table; /* ah_op_table_text as `kernels` was built with */
    const struct ah_device_type *type;
    int index;
    char name[32];     /* "cpu", "cuda:1" */
    void *state;       /* of the type */
    bool draws_on_cpu; /* its random numbers are drawn from the CPU's default generator, not its own */
    bool (*rounds_weights)(void); /* do its products of bfloat16 round a float32 weight on the way? NULL: no */
};

/* The CPU is always open. Its kernels are set by ah_cpu_open (host/cpu). */
extern struct ah_device ah_cpu;

/* The default device of constructors; a script sets it. */
extern struct ah_device *ah_default_device;

/* The device of a name: "cpu", "cuda:1", "cuda" (the current one of its type, the first unless another was made it).
 * Opens plugin and device on first use. AH_EINVAL names the device and the reason: no such plugin, another interface or
 * op table, no such index. */
int ah_device_find(const char *name, struct ah_device **out);

/* Have the bare name of its type mean this device. */
void ah_device_make_current(struct ah_device *device);
/* The index of that one. */
int ah_device_current(const char *type);

/* Make a type known that is built in, once. */
void ah_device_add_type(const struct ah_device_type *type);

/* Do its tensors have values? Those of "meta" have none. */
bool ah_device_has_values(const struct ah_device *device);

/* Could this text be meant as a device's name? True for the names of open types and of plugins that are here, for
 * "cuda", and for NAME:INDEX. */
bool ah_device_is_name(const char *text);

/* False when there can be no device of a type, which is known without opening its plugin. */
bool ah_device_is_possible(const char *type);

/* Return its type's device communicator (comm/group/device_comm.h); *out is NULL if it has none. AH_EINVAL without
 * such a device. */
int ah_device_comm_type_of(const char *type, const struct ah_device_comm_type **out);

/* Return the number of devices of a type: 0 when its plugin is not here. */
int ah_device_count(const char *type);

/* Return the reason why there is no device of a type, in the type's own words, valid until the next failure; NULL when
 * there is one or the reason is not known. */
const char *ah_device_missing(const char *type);

/* Describe the type's device `index`, or with -1 the type, in one line. AH_ENOTIMPL if it has no description. */
int ah_device_describe(const char *type, int index, char *text, size_t room);

/* Return the i-th property of the type's device `index`; false when there is none. */
bool ah_device_property(const char *type, int index, int i, struct ah_device_property *out);

/* Read the sensors of card `card` of the host; 0 when there is none. */
enum { AH_DEVICE_SENSORS = 16 };
int ah_device_sensors(const char *type, int card, struct ah_device_property *out);

/* Have the type report ranges to its profiler, or no longer. AH_ENOTIMPL where it has none. */
int ah_device_report_ranges(const char *type, bool on);

/* The open devices, in the order of opening, the CPU first; NULL past the end. */
struct ah_device *ah_device_open_at(int i);

/* Close all but the CPU; their storages must be freed. */
void ah_device_close_all(void);

/* Seed the generators of all devices, also of those opened later. */
void ah_device_seed_all(uint64_t seed);
/* Those of one type. */
void ah_device_seed_type(const char *type, uint64_t seed);

/* Call allocate; when memory is out, once more after a garbage collection of dead handles. */
int ah_device_allocate(struct ah_device *device, size_t bytes, void **out);

/* Copy bytes between any two devices. */
int ah_device_copy(void *to, struct ah_device *to_device, const void *from, struct ah_device *from_device,
                   size_t bytes);
