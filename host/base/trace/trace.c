/* A ring belongs to the thread that writes it: it publishes the number of spans that it has written, and the reader
 * copies them when recording is over. Rings of other threads than the one that stops are kept for the next
 * recording. */
#include "base/trace/trace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory/alloc.h"
#include "base/status/status.h"
#include "base/trace/time.h"

enum { SPANS = 262144, TEXTS = 65536, TEXT_BYTES = 8 << 20 };

struct ring {
    struct ring *next;
    struct ah_trace_span *span;
    size_t room;
    int thread;
    unsigned recording;        /* that it was written for */
    _Atomic uint64_t written;  /* released after its span, for the thread that ends the recording */
};

static const char *const trace_kinds[AH_TRACE_KINDS] = {
    "op", "backward", "optimizer", "collective", "bucket", "loader", "range",
};

bool ah_tracing;
static bool trace_records;
static const struct ah_trace_ranges *trace_ranges;
struct ah_trace_options ah_trace_options;
const char *(*ah_trace_site)(void), *(*ah_trace_module)(void);

static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct ring *trace_rings;
static struct {
    char **at;   /* TEXTS places, by hash; owned by the recording when it stops */
    size_t count, bytes;
    uint64_t left_out;
} trace_texts;

static _Atomic unsigned trace_recording;
static int64_t started_ns;
static _Atomic uint64_t trace_lost; /* spans for which there is no ring */
static _Thread_local struct ring *own_ring;
static _Thread_local const char *kernel; /* of the span that is open, innermost */

const char *ah_trace_kind_name(enum ah_trace_kind kind)
{
    return trace_kinds[kind];
}

/* The thread's ring, ready for the present recording; NULL when there is no memory. */
static struct ring *take_ring(void)
{
    if (!own_ring) {
        struct ring *ring = calloc(1, sizeof *ring);
        if (!ring)
            return NULL;
        ring->thread = (int)syscall(SYS_gettid);
        pthread_mutex_lock(&trace_lock);
        ring->next = trace_rings;
        trace_rings = own_ring = ring;
        pthread_mutex_unlock(&trace_lock);
    }
    if (own_ring->recording != trace_recording) {
        if (own_ring->room != ah_trace_options.spans) {
            free(own_ring->span);
            own_ring->span = malloc(ah_trace_options.spans * sizeof *own_ring->span);
            own_ring->room = own_ring->span ? ah_trace_options.spans : 0;
        }
        atomic_store(&own_ring->written, 0);
        own_ring->recording = trace_recording;
    }
    return own_ring->room ? own_ring : NULL;
}

void ah_trace_add(const struct ah_trace_span *span)
{
    if (!trace_records || span->begin_ns < started_ns)
        return; /* it began before */
    struct ring *ring = take_ring();
    if (!ring) {
        atomic_fetch_add(&trace_lost, 1);
        return;
    }
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed); /* its only writer */
    ring->span[written % ring->room] = *span;
    if (span->kind != AH_TRACE_BUCKET)
        ring->span[written % ring->room].thread = ring->thread;
    atomic_store_explicit(&ring->written, written + 1, memory_order_release);
}

void ah_trace_set_ranges(const struct ah_trace_ranges *ranges)
{
    trace_ranges = ranges;
    ah_tracing = trace_records || ranges;
}

bool ah_trace_is_recording(void)
{
    return trace_records;
}

void ah_trace_leave(struct ah_trace_mark mark)
{
    if (mark.ranged && trace_ranges)
        trace_ranges->pop();
}

struct ah_trace_mark ah_trace_open(const char *name)
{
    struct ah_trace_mark mark = {.kernel = kernel, .ranged = trace_ranges != NULL};
    if (mark.ranged)
        trace_ranges->push(name);
    kernel = NULL;
    mark.live = ah_trace_options.memory ? (int64_t)ah_memory_stats().live : 0;
    mark.begin_ns = ah_now_ns();
    return mark;
}

static const char *trace_text_of(bool wanted, const char *(*describe)(void))
{
    const char *text = wanted && describe ? describe() : NULL;
    return text ? ah_trace_text(text) : NULL;
}

void ah_trace_describe(const void *block, const char *tensor)
{
    const char *kept = ah_trace_text(tensor), *site = trace_text_of(ah_trace_options.sites, ah_trace_site);
    ah_memory_log_describe(block, kept, site, trace_text_of(ah_trace_options.modules, ah_trace_module));
}

void ah_trace_close(struct ah_trace_mark mark, enum ah_trace_kind kind, const char *name, const char *shapes)
{
    struct ah_trace_span span = {.name = name, .begin_ns = mark.begin_ns, .end_ns = ah_now_ns(), .kind = kind};
    ah_trace_leave(mark);
    if (!trace_records) {
        kernel = mark.kernel;
        return;
    }
    if (ah_trace_options.memory)
        span.bytes = (int64_t)ah_memory_stats().live - mark.live;
    span.shapes = ah_trace_options.shapes && shapes ? ah_trace_text(shapes) : NULL;
    span.site = trace_text_of(ah_trace_options.sites, ah_trace_site);
    span.module = trace_text_of(ah_trace_options.modules && kind == AH_TRACE_OP, ah_trace_module);
    span.kernel = kind == AH_TRACE_OP ? kernel : NULL;
    kernel = mark.kernel;
    ah_trace_add(&span);
}

static const char *find_text(const char *text)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    size_t i = hash % TEXTS;
    for (; trace_texts.at[i]; i = (i + 1) % TEXTS)
        if (!strcmp(trace_texts.at[i], text))
            return trace_texts.at[i];
    size_t bytes = strlen(text) + 1;
    if (trace_texts.count >= TEXTS / 2 || trace_texts.bytes + bytes > TEXT_BYTES)
        return NULL;
    trace_texts.at[i] = strdup(text);
    trace_texts.count += trace_texts.at[i] != NULL;
    trace_texts.bytes += bytes;
    return trace_texts.at[i];
}

const char *ah_trace_text(const char *text)
{
    AH_LOCK_SCOPE(&trace_lock);
    if (!trace_texts.at)
        trace_texts.at = calloc(TEXTS, sizeof *trace_texts.at);
    const char *found = trace_texts.at ? find_text(text) : NULL;
    trace_texts.left_out += found == NULL;
    return found;
}

void ah_trace_set_kernel(const char *name)
{
    if (trace_records)
        kernel = ah_trace_text(name);
}

bool ah_trace_kernel_is_set(void)
{
    return kernel != NULL;
}

static void free_texts(char **text)
{
    for (size_t i = 0; text && i < TEXTS; i++)
        free(text[i]);
    free(text);
}

void ah_trace_forget(void)
{
    AH_LOCK_SCOPE(&trace_lock);
    trace_lost = 0;
    if (ah_trace_options.memory)
        ah_memory_log_start();
    atomic_fetch_add(&trace_recording, 1);
    started_ns = ah_now_ns();
}

int ah_trace_start(const struct ah_trace_options *options)
{
    if (trace_records)
        return ah_fail(AH_ESTATE, "profile: another profile records in this process; stop it first");
    ah_trace_options = *options;
    if (!ah_trace_options.spans)
        ah_trace_options.spans = SPANS;
    ah_trace_forget();
    trace_texts.left_out = 0;
    trace_records = ah_tracing = true;
    return 0;
}

/* By track, then by time; of two that begin together the longer one is around the other. */
static int in_order(const void *a, const void *b)
{
    const struct ah_trace_span *one = a, *two = b;
    bool bucket = one->kind == AH_TRACE_BUCKET, other = two->kind == AH_TRACE_BUCKET;
    if (bucket != other)
        return bucket - other;
    if (one->thread != two->thread)
        return one->thread < two->thread ? -1 : 1;
    if (one->begin_ns != two->begin_ns)
        return one->begin_ns < two->begin_ns ? -1 : 1;
    if (one->end_ns != two->end_ns)
        return one->end_ns > two->end_ns ? -1 : 1;
    return 0;
}

static size_t trace_kept(const struct ring *ring)
{
    uint64_t written =
        ring->recording == trace_recording ? atomic_load_explicit(&ring->written, memory_order_acquire) : 0;
    return written < ring->room ? written : ring->room;
}

int ah_trace_stop(struct ah_trace **out)
{
    if (!trace_records)
        return ah_fail(AH_ESTATE, "profile: nothing is recorded");
    trace_records = false;
    ah_tracing = trace_ranges != NULL;
    struct ah_trace *trace = calloc(1, sizeof *trace);
    struct ah_memory_log memory = ah_memory_log_stop();
    if (!trace) {
        free(memory.event);
        return ah_fail(AH_ENOMEM, "profile: out of memory");
    }
    trace->memory = memory;
    pthread_mutex_lock(&trace_lock);
    size_t count = 0;
    for (struct ring *ring = trace_rings; ring; ring = ring->next)
        count += trace_kept(ring);
    trace->span = malloc((count ? count : 1) * sizeof *trace->span);
    for (struct ring *ring = trace_rings; ring && trace->span; ring = ring->next) {
        size_t n = trace_kept(ring);
        if (n > 0)
            memcpy(trace->span + trace->count, ring->span, n * sizeof *ring->span);
        trace->count += n;
        trace->dropped += ring->recording == trace_recording ? ring->written - n : 0;
    }
    if (own_ring && own_ring->room) { /* the thread that stops is not writing; the others' rings are small or stay */
        free(own_ring->span);
        own_ring->span = NULL;
        own_ring->room = 0;
    }
    trace->dropped += trace_lost;
    trace->left_out = trace_texts.left_out;
    trace->text = trace_texts.at;
    trace_texts.at = NULL;
    trace_texts.count = trace_texts.bytes = 0;
    pthread_mutex_unlock(&trace_lock);
    if (!trace->span) {
        ah_trace_free(trace);
        return ah_fail(AH_ENOMEM, "profile: out of memory for %zu spans", count);
    }
    trace->begin_ns = started_ns;
    trace->end_ns = ah_now_ns();
    qsort(trace->span, trace->count, sizeof *trace->span, in_order);
    *out = trace;
    return 0;
}

void ah_trace_free(struct ah_trace *trace)
{
    if (!trace)
        return;
    free_texts(trace->text);
    free(trace->memory.event);
    free(trace->span);
    free(trace);
}
