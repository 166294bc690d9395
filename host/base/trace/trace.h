/* The recorder of a profile: spans of time with a name, kept in a ring for each thread and read when it has stopped.
 *
 * Whatever may be recorded is bracketed:
 *
 *     struct ah_trace_mark mark = ah_trace_begin(op->name);
 *     ...
 *     ah_trace_end(mark, AH_TRACE_OP, op->name);
 *
 * While nothing is recorded that is two branches. The same brackets are reported to a tool outside of the program, as
 * ranges that begin and end, where one is attached (ah_trace_set_ranges). Spans of a thread nest. Memory is bounded: a
 * full ring loses its oldest spans, and texts beyond a limit are left out; both are counted. Any thread may record; one
 * at a time starts, stops and reads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/trace/memory_log.h"

enum ah_trace_kind {
    AH_TRACE_OP,
    AH_TRACE_BACKWARD,   /* a node of the graph, or the whole of it */
    AH_TRACE_OPTIMIZER,
    AH_TRACE_COLLECTIVE, /* a call, or the wait for its result */
    AH_TRACE_BUCKET,     /* from issuing it until it is averaged; on no thread's track */
    AH_TRACE_LOADER,     /* waiting for a batch, or making one */
    AH_TRACE_RANGE,      /* named by the script */
    AH_TRACE_KINDS
};

struct ah_trace_span {
    const char *name;                 /* lives as long as the program, or the recording, like the following ... */
    const char *shapes, *site, *module, *kernel; /* ... which are NULL where unknown */
    int64_t begin_ns, end_ns;         /* ah_now_ns */
    int64_t bytes;                    /* by which live memory grew */
    int64_t size;                     /* of the data moved; 0: unknown */
    int32_t thread;                   /* the system's number; of a bucket its number */
    int32_t kind;
};

struct ah_trace_options {
    size_t spans; /* room for each thread; 0: 262144 */
    bool shapes, memory, sites, modules;
};

struct ah_trace_mark {
    int64_t begin_ns, live; /* begin_ns 0: nothing is recorded, nor reported */
    const char *kernel;     /* of the enclosing span */
    bool ranged;            /* a range was begun */
};

/* A stopped recording, its spans by thread, then by time, those around others first. */
struct ah_trace {
    struct ah_trace_span *span;
    size_t count;
    uint64_t dropped;      /* spans that a full ring has lost */
    uint64_t left_out;     /* texts */
    int64_t begin_ns, end_ns;
    char **text;           /* owned texts of the spans */
    struct ah_memory_log memory; /* with options.memory */
};

/* A tool's ranges: of the calling thread, nested. The name is good for the call only. */
struct ah_trace_ranges {
    void (*push)(const char *name);
    void (*pop)(void);
};
/* Report ranges from now on, to the end of the process or until NULL. Lua thread. */
void ah_trace_set_ranges(const struct ah_trace_ranges *ranges);

extern bool ah_tracing; /* a recording runs, or ranges are reported */
extern struct ah_trace_options ah_trace_options; /* of the recording that runs */
/* The script's line, and the modules that run, for options.sites and .modules; NULL: not known. Set by the binding. */
extern const char *(*ah_trace_site)(void), *(*ah_trace_module)(void);

bool ah_trace_is_recording(void);

struct ah_trace_mark ah_trace_open(const char *name);
void ah_trace_close(struct ah_trace_mark mark, enum ah_trace_kind kind, const char *name, const char *shapes);

static inline struct ah_trace_mark ah_trace_begin(const char *name)
{
    if (__builtin_expect(!ah_tracing, 1))
        return (struct ah_trace_mark){0};
    return ah_trace_open(name);
}

static inline void ah_trace_end(struct ah_trace_mark mark, enum ah_trace_kind kind, const char *name)
{
    if (__builtin_expect(mark.begin_ns != 0, 0))
        ah_trace_close(mark, kind, name, NULL);
}

/* End the range of a mark whose span is added by ah_trace_add, or not at all. */
void ah_trace_leave(struct ah_trace_mark mark);

/* Set the kernel's name in the span of this thread's running op: "openblas sgemm". A later call replaces it. */
void ah_trace_set_kernel(const char *name);
static inline void ah_trace_kernel(const char *name)
{
    if (__builtin_expect(ah_tracing, 0))
        ah_trace_set_kernel(name);
}
/* Has the kernel's name been set? */
bool ah_trace_kernel_is_set(void);

/* A copy of the text that lives as long as the recording; NULL when there is no room. */
const char *ah_trace_text(const char *text);
/* Describe a tensor's block, which was allocated just now, in the memory log of a recording that has one. */
void ah_trace_describe(const void *block, const char *tensor);
/* A span that is known afterwards, of whichever track. */
void ah_trace_add(const struct ah_trace_span *span);

/* AH_ESTATE when a recording runs. */
int ah_trace_start(const struct ah_trace_options *options);
/* End the recording and return its spans. AH_ESTATE when none runs. */
int ah_trace_stop(struct ah_trace **out);
/* Drop all recorded spans. */
void ah_trace_forget(void);
void ah_trace_free(struct ah_trace *trace);

/* "op", "backward" */
const char *ah_trace_kind_name(enum ah_trace_kind kind);
