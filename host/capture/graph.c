/* The CPU's device type is replaced, at start-up, by one whose functions record during a capture of this thread;
 * kernels and optimizer passes are replaced only during a capture, so that plain steps call them directly. Invariant:
 * work within a recorded function is not recorded, and its memory is the allocator's. */
#include "capture/graph.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"
#include "base/trace/counters.h"
#include "base/trace/trace.h"
#include "capture/record.h"
#include "capture/simplify.h"
#include "tensor/capture.h"
#include "tensor/rng.h"

struct ah_graph {
    struct ah_records records;
    bool captured;
    size_t next; /* record of the next step to be revised */
    size_t done; /* records that have run in the replay that was begun */
    struct ah_record_places *input;
    int inputs;
    struct ah_graph_leaf *leaf;
    size_t leaves, leaf_room;
    /* During the capture. */
    pthread_t thread;
    int within; /* a recorded function runs */
    struct ah_graph *next_open;
};

/* Other threads read its `thread`, so they acquire it; the thread that captures loads its own store, relaxed. */
static _Atomic(struct ah_graph *) graph_captured;
static struct ah_graph *graph_revised;
static struct ah_graph *open_graphs;
static const struct ah_device_type *plain_type;
static const ah_kernel *plain_kernels;
static const struct ah_optim_kernels *plain_optim;

/* The capture that the running thread's work belongs to, unless a recorded function does it. */
static struct ah_graph *graph_on(void)
{
    struct ah_graph *graph = atomic_load_explicit(&graph_captured, memory_order_acquire);
    return graph && pthread_equal(graph->thread, pthread_self()) && !graph->within ? graph : NULL;
}

/* Memory and bytes. */

static int graph_allocate(struct ah_device *device, size_t bytes, void **out)
{
    struct ah_graph *graph = graph_on();
    if (__builtin_expect(graph != NULL, 0)) {
        bool within_op = atomic_load_explicit(&ah_counters->op, memory_order_relaxed) != 0;
        return ah_pool_allocate(graph->records.pool, bytes, within_op, out);
    }
    return plain_type->allocate(device, bytes, out);
}

static void graph_release(struct ah_device *device, void *block, size_t bytes)
{
    if (!ah_pool_release(block))
        plain_type->release(device, block, bytes);
}

static int graph_fill(struct ah_device *device, void *to, int byte, size_t bytes)
{
    struct ah_graph *graph = graph_on();
    AH_TRY(plain_type->fill(device, to, byte, bytes));
    const struct ah_record_bytes record = {.to = to, .byte = byte, .bytes = bytes};
    return graph ? ah_record_bytes(&graph->records, AH_RECORD_FILL, &record) : 0;
}

/* A source of the capture that no record has written holds values of the host: they are copied. */
static int record_copy(struct ah_records *records, void *to, const void *from, size_t bytes)
{
    struct ah_record_bytes record = {.to = to, .from = from, .bytes = bytes};
    const struct ah_pool_block *source = ah_pool_find(records->pool, from);
    if (source && !source->written) {
        record.owned = malloc(bytes ? bytes : 1);
        AH_TRY_MEMORY(record.owned, "out of memory");
        record.from = memcpy(record.owned, from, bytes);
    }
    int status = ah_record_bytes(records, AH_RECORD_COPY, &record);
    if (status < 0)
        free(record.owned);
    return status;
}

static int graph_copy(struct ah_device *device, void *to, struct ah_device *to_device, const void *from,
                      struct ah_device *from_device, size_t bytes, void *stream)
{
    struct ah_graph *graph = graph_on();
    AH_TRY(plain_type->copy(device, to, to_device, from, from_device, bytes, stream));
    return graph ? record_copy(&graph->records, to, from, bytes) : 0;
}

static int graph_transpose(struct ah_device *device, void *to, const void *from, int64_t batch, int64_t rows,
                           int64_t columns, size_t item)
{
    struct ah_graph *graph = graph_on();
    const struct ah_record_bytes record = {
        .to = to, .from = from, .bytes = item, .batch = batch, .rows = rows, .columns = columns};
    if (graph && !ah_pool_find(graph->records.pool, from))
        AH_TRY(ah_capture_refuse(NULL, "a tensor from outside of the step that is stored channels-last",
                                 "call contiguous() before the step"));
    AH_TRY(plain_type->transpose(device, to, from, batch, rows, columns, item));
    return graph ? ah_record_bytes(&graph->records, AH_RECORD_TRANSPOSE, &record) : 0;
}

/* States of the generator. */

static int graph_get_state(struct ah_device *device, uint8_t *state)
{
    struct ah_graph *graph = graph_on();
    AH_TRY(plain_type->get_state(device, state));
    if (!graph)
        return 0;
    struct ah_record_bytes record = {.owned = malloc(AH_RNG_STATE_BYTES)};
    AH_TRY_MEMORY(record.owned, "out of memory");
    record.to = memcpy(record.owned, state, AH_RNG_STATE_BYTES);
    int status = ah_record_bytes(&graph->records, AH_RECORD_GET_STATE, &record);
    if (status < 0)
        free(record.owned);
    return status;
}

/* One that was read within the capture is, in a replay, the one that the replay has read there. */
static int graph_set_state(struct ah_device *device, const uint8_t *state)
{
    struct ah_graph *graph = graph_on();
    AH_TRY(plain_type->set_state(device, state));
    if (!graph)
        return 0;
    for (size_t i = graph->records.count; i-- > 0;) {
        const struct ah_record *read = &graph->records.at[i];
        if (read->kind == AH_RECORD_GET_STATE && !memcmp(read->bytes->to, state, AH_RNG_STATE_BYTES))
            return ah_record_bytes(&graph->records, AH_RECORD_SET_STATE,
                                   &(struct ah_record_bytes){.from = read->bytes->to});
    }
    return ah_capture_refuse("set_rng_state", "a state from outside of the step", "set it before the step");
}

/* A seed of the step is set again by each replay. */
static void graph_seed(struct ah_device *device, uint64_t seed)
{
    struct ah_graph *graph = graph_on();
    plain_type->seed(device, seed);
    struct ah_record_bytes record = {.owned = graph ? malloc(AH_RNG_STATE_BYTES) : NULL};
    if (!record.owned)
        return;
    record.from = record.owned;
    plain_type->get_state(device, record.owned);
    if (ah_record_bytes(&graph->records, AH_RECORD_SET_STATE, &record) < 0)
        free(record.owned);
}

/* Kernels. */

static int graph_kernel(struct ah_call *call)
{
    struct ah_graph *graph = atomic_load_explicit(&graph_captured, memory_order_relaxed);
    ah_kernel kernel = plain_kernels[call->op->id];
    if (graph->within)
        return kernel(call);
    AH_TRY(ah_record_call(&graph->records, call, kernel));
    graph->within++;
    int status = kernel(call);
    graph->within--;
    return status < 0 ? status : ah_record_called(&graph->records, call);
}

/* Passes of optimizers. */

/* Replace the numbers of the next recorded step by these, which have to be for the same memory. */
static int graph_revise_step(struct ah_graph *graph, const struct ah_record_pass *pass)
{
    struct ah_records *records = &graph->records;
    while (graph->next < records->count && records->at[graph->next].kind != AH_RECORD_STEP)
        graph->next++;
    struct ah_record_pass *old = graph->next < records->count ? records->at[graph->next++].pass : NULL;
    bool same = old && old->kind == pass->kind && old->count == pass->count && old->dtype == pass->dtype;
    for (int i = 0; same && i < pass->count; i++) {
        const struct ah_optim_segment *a = &old->segment[i], *b = &pass->segment[i];
        same = a->param == b->param && a->grad == b->grad && a->n == b->n &&
               !memcmp(a->state, b->state, sizeof a->state);
    }
    if (!same)
        return ah_fail(AH_ESTATE, "parameters, gradients or state are not those of the captured step, or "
                       "were moved: capture it again");
    memcpy(old->segment, pass->segment, (size_t)pass->count * sizeof *pass->segment);
    old->options = pass->options;
    return 0;
}

static int graph_step(struct ah_device *device, enum ah_optim_kind kind, const struct ah_optim_options *options,
                      const struct ah_optim_segment *segment, int count, enum ah_dtype dtype)
{
    struct ah_graph *graph = graph_on();
    const struct ah_record_pass pass = {.kind = kind, .options = *options, .segment = (void *)(uintptr_t)segment,
                                        .count = count, .dtype = dtype};
    if (graph_revised)
        return graph_revise_step(graph_revised, &pass);
    AH_TRY(plain_optim->step(device, kind, options, segment, count, dtype));
    return graph ? ah_record_pass(&graph->records, AH_RECORD_STEP, &pass) : 0;
}

static int graph_norm_sum(struct ah_device *device, const struct ah_optim_run *run, int count, double p,
                          enum ah_dtype dtype, double *sum)
{
    AH_TRY(ah_capture_refuse("clip_grad_norm_", "error_if_nonfinite, or a norm of gradients of several dtypes",
                             "leave the option out, or clip each dtype apart"));
    return plain_optim->norm_sum(device, run, count, p, dtype, sum);
}

static int graph_scale(struct ah_device *device, const struct ah_optim_run *run, int count, double factor,
                       enum ah_dtype dtype, bool *overflow)
{
    struct ah_graph *graph = graph_on();
    const struct ah_record_pass pass = {
        .run = (void *)(uintptr_t)run, .count = count, .dtype = dtype, .number = factor};
    if (overflow)
        AH_TRY(ah_capture_refuse("unscale_", "a loss scale", "train in bf16, or call the function"));
    AH_TRY(plain_optim->scale(device, run, count, factor, dtype, overflow));
    return graph ? ah_record_pass(&graph->records, AH_RECORD_SCALE, &pass) : 0;
}

static int graph_clamp(struct ah_device *device, const struct ah_optim_run *run, int count, double limit,
                       enum ah_dtype dtype)
{
    struct ah_graph *graph = graph_on();
    const struct ah_record_pass pass = {.run = (void *)(uintptr_t)run, .count = count, .dtype = dtype, .number = limit};
    AH_TRY(plain_optim->clamp(device, run, count, limit, dtype));
    return graph ? ah_record_pass(&graph->records, AH_RECORD_CLAMP, &pass) : 0;
}

static int graph_clip_norm(struct ah_device *device, const struct ah_optim_run *run, int count, double max_norm,
                           double p, enum ah_dtype dtype, void *norm)
{
    struct ah_graph *graph = graph_on();
    const struct ah_record_pass pass = {.run = (void *)(uintptr_t)run, .count = count, .dtype = dtype, .number = p,
                                        .max_norm = max_norm, .norm = norm};
    AH_TRY(plain_optim->clip_norm(device, run, count, max_norm, p, dtype, norm));
    return graph ? ah_record_pass(&graph->records, AH_RECORD_CLIP, &pass) : 0;
}

static const struct ah_optim_kernels graph_optim = {
    .step = graph_step,
    .norm_sum = graph_norm_sum,
    .scale = graph_scale,
    .clamp = graph_clamp,
    .clip_norm = graph_clip_norm,
};

/* Work of the host. */

static int graph_enter(const struct ah_capture_work *work)
{
    struct ah_graph *graph = atomic_load_explicit(&graph_captured, memory_order_relaxed);
    if (!graph->within)
        AH_TRY(ah_record_work(&graph->records, work));
    graph->within++;
    return 0;
}

static void graph_leave(void)
{
    atomic_load_explicit(&graph_captured, memory_order_relaxed)->within--;
}

static int graph_leaf(struct ah_tensor *leaf, struct ah_tensor *grad, bool replaces)
{
    struct ah_graph *graph = graph_on();
    for (size_t i = 0; graph && i < graph->leaves; i++)
        if (graph->leaf[i].tensor == leaf)
            return 0;
    if (!graph)
        return 0;
    AH_TRY(ah_grow(&graph->leaf, graph->leaves + 1, &graph->leaf_room, sizeof *graph->leaf));
    graph->leaf[graph->leaves++] = (struct ah_graph_leaf){
        ah_tensor_retain(leaf), replaces ? NULL : ah_tensor_retain(grad), replaces};
    return 0;
}

static int graph_lost(void *context, int64_t number)
{
    return ah_fail(AH_ESTATE, "cpu: the captured step averages gradients of a model that was freed since: capture it "
                   "again");
}

static void graph_forget_work(const void *context)
{
    for (struct ah_graph *graph = open_graphs; graph; graph = graph->next_open)
        for (size_t i = 0; i < graph->records.count; i++)
            if (graph->records.at[i].kind == AH_RECORD_WORK && graph->records.at[i].work.context == context)
                graph->records.at[i].work = (struct ah_capture_work){.run = graph_lost};
}

/* Graphs. */

static void graph_forget(struct ah_graph *graph)
{
    struct ah_pool *pool = graph->records.pool;
    for (size_t i = 0; i < graph->leaves; i++) {
        ah_tensor_release(graph->leaf[i].tensor);
        ah_tensor_release(graph->leaf[i].grad);
    }
    free(graph->leaf);
    graph->leaf = NULL;
    graph->leaves = graph->leaf_room = 0;
    for (int i = 0; i < graph->inputs; i++)
        free(graph->input[i].at);
    free(graph->input);
    graph->input = NULL;
    graph->inputs = 0;
    ah_records_clear(&graph->records);
    graph->records.pool = NULL;
    ah_pool_close(pool);
    graph->captured = false;
}

static int graph_open(struct ah_device *device, struct ah_graph **out)
{
    struct ah_graph *graph = calloc(1, sizeof *graph);
    AH_TRY_MEMORY(graph, "out of memory");
    graph->next_open = open_graphs;
    *out = open_graphs = graph;
    return 0;
}

static void graph_stop(void)
{
    atomic_store_explicit(&graph_captured, NULL, memory_order_relaxed);
    ah_cpu_captured = false;
    ah_cpu.kernels = plain_kernels;
    ah_cpu.optim = plain_optim;
}

static void graph_close(struct ah_graph *graph)
{
    if (atomic_load_explicit(&graph_captured, memory_order_relaxed) == graph)
        graph_stop();
    graph_forget(graph);
    struct ah_graph **at = &open_graphs;
    while (*at != graph)
        at = &(*at)->next_open;
    *at = graph->next_open;
    free(graph);
}

static int graph_begin(struct ah_graph *graph)
{
    static ah_kernel recording[AH_OP_COUNT + 1];
    if (ah_cpu_captured)
        return ah_fail(AH_ESTATE, "cpu: a graph is being captured already");
    if (graph->captured)
        return ah_fail(AH_ESTATE, "cpu: this graph has been captured already");
    AH_TRY(ah_pool_open(&graph->records.pool));
    plain_kernels = ah_cpu.kernels;
    plain_optim = ah_cpu.optim;
    for (int i = 0; i < AH_OP_COUNT; i++)
        recording[i] = plain_kernels[i] ? graph_kernel : NULL;
    graph->thread = pthread_self();
    graph->within = 0;
    ah_cpu.kernels = recording;
    ah_cpu.optim = &graph_optim;
    ah_cpu_captured = true;
    atomic_store_explicit(&graph_captured, graph, memory_order_release);
    return 0;
}

static int graph_end(struct ah_graph *graph, bool keep)
{
    if (atomic_load_explicit(&graph_captured, memory_order_relaxed) != graph)
        return ah_fail(AH_ESTATE, "cpu: this graph is not being captured");
    graph_stop();
    int status = keep ? ah_records_check(&graph->records) : 0;
    graph->captured = keep && status == 0;
    if (graph->captured)
        ah_records_elide_copies(&graph->records);
    else
        graph_forget(graph);
    return status;
}

static int graph_inputs(struct ah_graph *graph, struct ah_tensor **input, int count)
{
    if (!graph->captured || graph->input)
        return ah_fail(AH_ESTATE, "cpu: no graph that has no inputs yet");
    graph->input = calloc((size_t)count + 1, sizeof *graph->input);
    AH_TRY_MEMORY(graph->input, "out of memory");
    graph->inputs = count;
    for (int i = 0; i < count; i++)
        AH_TRY(ah_records_places(&graph->records, input[i], &graph->input[i]));
    return 0;
}

static const struct ah_graph_leaf *graph_leaf_at(struct ah_graph *graph, size_t i)
{
    return i < graph->leaves ? &graph->leaf[i] : NULL;
}

static bool graph_redirect(struct ah_graph *graph, int i, const struct ah_tensor *tensor)
{
    struct ah_record_places *places = &graph->input[i];
    for (size_t k = 0; k < places->count; k++)
        *places->at[k] = ah_tensor_data(tensor);
    return places->count > 0;
}

static int graph_revise(struct ah_graph *graph, bool on)
{
    struct ah_records *records = &graph->records;
    plain_optim = on ? ah_cpu.optim : plain_optim;
    ah_cpu.optim = on ? &graph_optim : plain_optim;
    graph_revised = on ? graph : NULL;
    size_t next = graph->next;
    graph->next = 0;
    while (!on && next < records->count)
        if (records->at[next++].kind == AH_RECORD_STEP)
            return ah_fail(AH_ESTATE, "cpu: an optimizer's step of the captured step was not updated before replay");
    return 0;
}

/* Replay. */

static int replay_call(struct ah_record_call *record)
{
    struct ah_call *call = &record->call;
    int before = ah_counters_enter((int)call->op->id + 1);
    struct ah_trace_mark mark = ah_trace_begin(call->op->name);
    for (int i = 0; record->last && i < record->storages; i++)
        record->storage[i].channels_last = record->last[i];
    int status = record->kernel(call);
    ah_trace_end(mark, AH_TRACE_OP, call->op->name);
    ah_counters_leave(before);
    return status < 0 ? ah_fail_named(status, call->op->name) : 0;
}

static int replay_pass(enum ah_record_kind kind, const struct ah_record_pass *p)
{
    const struct ah_optim_kernels *optim = ah_cpu.optim;
    switch (kind) {
    case AH_RECORD_STEP: return optim->step(&ah_cpu, p->kind, &p->options, p->segment, p->count, p->dtype);
    case AH_RECORD_SCALE: return optim->scale(&ah_cpu, p->run, p->count, p->number, p->dtype, NULL);
    case AH_RECORD_CLAMP: return optim->clamp(&ah_cpu, p->run, p->count, p->number, p->dtype);
    default: return optim->clip_norm(&ah_cpu, p->run, p->count, p->max_norm, p->number, p->dtype, p->norm);
    }
}

static int replay_record(const struct ah_record *record)
{
    const struct ah_record_bytes *b = record->bytes; /* of those kinds */
    switch (record->kind) {
    case AH_RECORD_CALL: return replay_call(record->call);
    case AH_RECORD_FILL: return plain_type->fill(&ah_cpu, b->to, b->byte, b->bytes);
    case AH_RECORD_COPY: return plain_type->copy(&ah_cpu, b->to, &ah_cpu, b->from, &ah_cpu, b->bytes, NULL);
    case AH_RECORD_TRANSPOSE:
        return plain_type->transpose(&ah_cpu, b->to, b->from, b->batch, b->rows, b->columns, b->bytes);
    case AH_RECORD_GET_STATE: return plain_type->get_state(&ah_cpu, b->to);
    case AH_RECORD_SET_STATE: return plain_type->set_state(&ah_cpu, b->from);
    case AH_RECORD_WORK: return record->work.run(record->work.context, record->work.number);
    default: return replay_pass(record->kind, record->pass);
    }
}

/* Run the records from `done` on, to the end or before the first step. */
static int replay_some(struct ah_graph *graph, bool all)
{
    const struct ah_record *record = graph->records.at;
    size_t i = graph->done, count = graph->records.count;
    graph->done = 0;
    for (; i < count && (all || record[i].kind != AH_RECORD_STEP); i++)
        AH_TRY(replay_record(&record[i]));
    graph->done = all ? 0 : i;
    return 0;
}

static int graph_advance(struct ah_graph *graph)
{
    AH_TRY(ah_capture_refuse(NULL, "a replay", "leave it out"));
    if (!graph->captured)
        return ah_fail(AH_ESTATE, "cpu: nothing was captured");
    AH_TRY(ah_records_check(&graph->records));
    graph->done = 0;
    return replay_some(graph, false);
}

static int graph_replay(struct ah_graph *graph)
{
    if (graph->done == 0)
        AH_TRY(graph_advance(graph));
    return replay_some(graph, true);
}

static const struct ah_graph_functions graph_functions = {
    .open = graph_open,
    .close = graph_close,
    .begin = graph_begin,
    .end = graph_end,
    .revise = graph_revise,
    .replay = graph_replay,
    .advance = graph_advance,
    .inputs = graph_inputs,
    .redirect = graph_redirect,
    .leaf = graph_leaf_at,
};

static const char *graph_op(void)
{
    int op = atomic_load_explicit(&ah_counters->op, memory_order_relaxed);
    return op ? ah_op_get((enum ah_opid)(op - 1))->name : NULL;
}

void ah_capture_open(void)
{
    static const struct ah_capture_hooks hooks = {graph_op, graph_enter, graph_leave, graph_leaf, graph_forget_work};
    static struct ah_device_type type;
    if (plain_type) /* a host was opened before */
        return;
    plain_type = ah_cpu.type;
    type = *ah_cpu.type;
    type.allocate = graph_allocate;
    type.release = graph_release;
    type.fill = graph_fill;
    type.copy = graph_copy;
    type.transpose = graph_transpose;
    type.seed = graph_seed;
    type.get_state = graph_get_state;
    type.set_state = graph_set_state;
    type.graphs = &graph_functions;
    ah_capture_hooks = &hooks;
    ah_cpu.type = &type;
}
