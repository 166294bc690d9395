/* A capture is the driver's, of the compute stream and for this thread alone, so that other threads may call as they
 * like. The graph's memory is a pool of the allocator's; its numbers have a common block, which begins with the
 * generator's place. Invariant: between begin and end, however the step goes, nothing waits. */
#include "cuda/driver/stream/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/alloc.h"
#include "cuda/driver/api/collectives.h"
#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/fault.h"
#include "cuda/driver/stream/launch.h"
#include "cuda/driver/stream/philox.h"
#include "cuda/driver/stream/times.h"
#include "cuda/kernels/lib/philox.h"
#include "cuda/kernels/optim_loss/graph.h"

struct ah_graph {
    struct ah_cuda_device *cuda;
    CUgraphExec exec; /* NULL: of nothing */
    struct ah_cuda_pool *pool;
    struct ah_cuda_capture numbers;
    uint64_t drawn;         /* by the generator */
    bool looks;             /* for indices out of range */
    struct ah_graph *after; /* in the device's list of closed ones */
    struct ah_cuda_graph_comms comms;
    struct ah_graph *next; /* of those that hold any */
    bool cut;              /* they were of a group that is closed */
};

/* Forget the captured step. */
static void graph_forget(struct ah_graph *graph)
{
    graph->numbers.count = graph->numbers.next = 0;
    graph->numbers.value_bytes = sizeof(struct ah_philox_state);
    graph->drawn = 0;
    graph->looks = false;
    graph->comms.count = 0;
    graph->cut = false;
}

static void unlink_collecting(struct ah_graph *graph)
{
    for (struct ah_graph **at = &graph->cuda->collecting; *at; at = &(*at)->next) {
        if (*at != graph)
            continue;
        *at = graph->next;
        return;
    }
}

static bool graph_has(const struct ah_graph *graph, const struct ah_device_comm *comm)
{
    for (int i = 0; i < graph->comms.count; i++)
        if (graph->comms.comm[i] == comm)
            return true;
    return false;
}

void ah_cuda_graphs_cut(struct ah_cuda_device *cuda, const struct ah_device_comm *comm)
{
    ah_cuda_graphs_sweep(cuda);
    for (struct ah_graph *graph = cuda->collecting, *next; graph; graph = next) {
        next = graph->next;
        if (!graph_has(graph, comm))
            continue;
        unlink_collecting(graph);
        ah_cuda.graph_exec_destroy(graph->exec);
        graph->exec = NULL;
        graph->cut = true;
    }
}

static int graph_open(struct ah_device *device, struct ah_graph **out)
{
    struct ah_cuda_device *cuda = ah_cuda_state(device);
    struct ah_graph *graph = calloc(1, sizeof *graph);
    if (!graph || !(graph->numbers.value = calloc(1, AH_CAPTURE_NUMBERS))) {
        free(graph);
        return ah_fail(AH_ENOMEM, "out of memory");
    }
    graph->cuda = cuda;
    graph_forget(graph);
    int status = ah_cuda_memory_take(cuda->memory, AH_CAPTURE_NUMBERS, &graph->numbers.block);
    if (status == 0)
        status = ah_cuda_pool_open(&graph->pool);
    if (status < 0) {
        ah_cuda_memory_give(cuda->memory, graph->numbers.block);
        free(graph->numbers.value);
        free(graph);
        return status;
    }
    *out = graph;
    return 0;
}

void ah_cuda_graphs_sweep(struct ah_cuda_device *cuda)
{
    struct ah_graph *graph = cuda->closed;
    if (graph)
        ah_cuda.stream_synchronise(cuda->compute);
    cuda->closed = NULL;
    while (graph) {
        struct ah_graph *after = graph->after;
        ah_cuda.graph_exec_destroy(graph->exec);
        free(graph);
        graph = after;
    }
}

static int graph_end(struct ah_graph *graph, bool keep)
{
    struct ah_cuda_device *cuda = graph->cuda;
    const char *name = cuda->device->name;
    CUgraph made = NULL;
    if (cuda->capturing != &graph->numbers)
        return ah_fail(AH_ESTATE, "%s: this graph is not being captured", name);
    int joined = ah_cuda_collectives->end_capture(cuda, &graph->comms);
    cuda->capturing = NULL;
    CUresult code = ah_cuda.capture_end(cuda->compute, &made);
    ah_cuda_pool_leave(cuda->memory);
    graph->drawn = ah_cuda_philox_captured(cuda);
    graph->looks = ah_cuda_faults_captured(cuda);
    int status = keep && joined == 0 ? ah_cuda_check(code, "%s: capturing a graph", name) : joined;
    if (keep && status == 0)
        status = ah_cuda_check(ah_cuda.graph_instantiate(&graph->exec, made, 0), "%s: making a graph", name);
    if (made)
        ah_cuda.graph_destroy(made);
    if (!keep || status < 0)
        graph_forget(graph);
    if (graph->comms.count) {
        graph->next = cuda->collecting;
        cuda->collecting = graph;
    }
    return status;
}

/* May be called by Lua's collector, so the driver is left alone. */
static void graph_close(struct ah_graph *graph)
{
    struct ah_cuda_device *cuda = graph->cuda;
    if (cuda->capturing == &graph->numbers)
        graph_end(graph, false);
    if (cuda->revised == &graph->numbers)
        cuda->revised = NULL;
    unlink_collecting(graph);
    ah_cuda_pool_close(cuda->memory, graph->pool);
    ah_cuda_memory_give(cuda->memory, graph->numbers.block);
    free(graph->numbers.value);
    free(graph->numbers.place);
    if (!graph->exec) {
        free(graph);
        return;
    }
    graph->after = cuda->closed;
    cuda->closed = graph;
}

/* The pool's memory is the driver's, and while a step is captured neither garbage nor the cache can be freed for it.
 * The step has run before, within the memory of the driver that the process has: where less is left, free both
 * first. */
static int graph_make_room(struct ah_cuda_device *cuda)
{
    size_t available, total;
    struct ah_memory_stats stats;
    AH_TRY(ah_cuda_check(ah_cuda.memory_info(&available, &total), "%s: its memory", cuda->device->name));
    ah_cuda_memory_stats(cuda->memory, &stats);
    if (available >= stats.live + stats.cached)
        return 0;
    ah_block_relieve();
    ah_cuda_memory_trim(cuda->memory);
    return 0;
}

static int graph_begin(struct ah_graph *graph)
{
    struct ah_cuda_device *cuda = graph->cuda;
    const char *name = cuda->device->name;
    if (cuda->capturing)
        return ah_fail(AH_ESTATE, "%s: a graph is being captured already", name);
    if (graph->exec)
        return ah_fail(AH_ESTATE, "%s: this graph has been captured already", name);
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_raise_fault(cuda));
    AH_TRY(ah_cuda_faults_capture(cuda));
    AH_TRY(graph_make_room(cuda));
    ah_cuda_graphs_sweep(cuda);
    AH_TRY(ah_cuda_pool_use(cuda->memory, graph->pool));
    CUresult code = ah_cuda.capture_begin(cuda->compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (code != CUDA_SUCCESS) {
        ah_cuda_pool_leave(cuda->memory);
        return ah_cuda_check(code, "%s: capturing a graph", name);
    }
    ah_cuda_philox_capture(cuda, (uint64_t)(uintptr_t)graph->numbers.block);
    cuda->capturing = &graph->numbers;
    return 0;
}

static int graph_revise(struct ah_graph *graph, bool on)
{
    struct ah_cuda_device *cuda = graph->cuda;
    size_t next = graph->numbers.next;
    cuda->revised = on ? &graph->numbers : NULL;
    graph->numbers.next = 0;
    if (!on && next != graph->numbers.count)
        return ah_fail(AH_ESTATE, "%s: only %zu of %zu captured numbers were updated before replay",
                       cuda->device->name, next, graph->numbers.count);
    return 0;
}

/* The numbers behind the generator's place. */
static int write_numbers(struct ah_graph *graph)
{
    static struct ah_cuda_kernel kernel = AH_CUDA_KERNEL("graph", "graph_write");
    struct ah_graph_write_args args;
    for (size_t at = sizeof(struct ah_philox_state); at < graph->numbers.value_bytes;) {
        size_t left = graph->numbers.value_bytes - at, bytes = left < sizeof args.word ? left : sizeof args.word;
        args.to = (uint64_t)(uintptr_t)graph->numbers.block + at;
        args.count = (uint32_t)((bytes + 3) / 4);
        memcpy(args.word, graph->numbers.value + at, bytes);
        AH_TRY(ah_cuda_launch(graph->cuda->device, &kernel, "replay", ah_cuda_grid_of(1, AH_GRAPH_THREADS, 0), &args));
        at += bytes;
    }
    return 0;
}

static int graph_replay(struct ah_graph *graph)
{
    struct ah_cuda_device *cuda = graph->cuda;
    const char *name = cuda->device->name;
    AH_TRY(ah_cuda_capture_refuse(cuda, "a replay", "leave it out"));
    if (graph->cut)
        return ah_fail(AH_ESTATE,
                       "%s: the captured step's collectives are those of a group that was closed since: "
                       "capture it again",
                       name);
    if (!graph->exec)
        return ah_fail(AH_ESTATE, "%s: nothing was captured", name);
    size_t lost = ah_cuda_pool_lost(cuda->memory, graph->pool);
    if (lost)
        return ah_fail(AH_ESTATE,
                       "%s: the captured step uses %zu bytes of a tensor that was freed or replaced since "
                       "(a parameter, a buffer or another tensor from outside of it): capture it again",
                       name, lost);
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_collectives->before_replay(cuda, &graph->comms));
    AH_TRY(write_numbers(graph));
    if (graph->drawn)
        AH_TRY(ah_cuda_philox_replay(cuda, (uint64_t)(uintptr_t)graph->numbers.block, graph->drawn));
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, "replay", "graph");
    AH_TRY(ah_cuda_check(ah_cuda.graph_launch(graph->exec, cuda->compute), "%s: replaying a graph", name));
    ah_cuda_span_end(cuda, span, (struct ah_cuda_work){0});
    AH_TRY(ah_cuda_collectives->after_replay(cuda, &graph->comms));
    if (cuda->waits)
        AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: a replayed graph", name));
    return graph->looks ? ah_cuda_faults_replayed(cuda) : 0;
}

const struct ah_graph_functions ah_cuda_graphs = {
    .open = graph_open,
    .close = graph_close,
    .begin = graph_begin,
    .end = graph_end,
    .revise = graph_revise,
    .replay = graph_replay,
};
