/* Capture and replay. Between begin and end the work on the captured streams becomes nodes of a graph, each after the
 * last of its stream and after the nodes of its events; a replay runs them in an order drawn among those that the
 * edges allow, with the parameters of the capture. */
#include "state.h"

#include <algorithm>

namespace sim
{
static std::vector<std::shared_ptr<Capture>> &captures = *new std::vector<std::shared_ptr<Capture>>;
static thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

int refuse_in_capture()
{
    bool refused = false;
    for (auto &capture : captures) {
        bool mine = capture->thread == std::this_thread::get_id();
        bool disturbed = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                              : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                    thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (disturbed && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
            refused = capture->broken = true;
    }
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0;
}

/* Do all nodes lead to these? */
static bool joined(const Graph &graph, const std::vector<int> &last)
{
    std::vector<bool> reached(graph.nodes.size());
    std::vector<int> open(last);
    size_t count = 0;
    while (!open.empty()) {
        int node = open.back();
        open.pop_back();
        if (reached[(size_t)node])
            continue;
        reached[(size_t)node] = true;
        count++;
        const auto &after = graph.nodes[(size_t)node].after;
        open.insert(open.end(), after.begin(), after.end());
    }
    return count == graph.nodes.size();
}

/* Does a graph use memory that was freed since it was captured? On a card its kernels would read other data there. */
static int refuse_freed(CUgraphExec exec)
{
    CUcontext context = exec->context;
    std::lock_guard<std::mutex> running(context->run);
    for (const Used &used : exec->graph.used) {
        const Range::Block *block = context->memory.find(used.at, 1);
        if (block && block->number == used.number)
            continue;
        context->fail(CUDA_ERROR_ILLEGAL_ADDRESS, "a replayed graph uses an allocation of " +
                                                      std::to_string(used.bytes) + " bytes that was freed");
        return context->sticky;
    }
    return 0;
}

/* The nodes in an order that the edges allow, drawn. */
static std::vector<int> drawn_order(const Graph &graph, Random &random)
{
    std::vector<int> order, ready;
    std::vector<size_t> waits;
    for (size_t i = 0; i < graph.nodes.size(); i++) {
        waits.push_back(graph.nodes[i].after.size());
        if (!waits[i])
            ready.push_back((int)i);
    }
    while (!ready.empty()) {
        std::swap(ready[random.below((unsigned)ready.size())], ready.back());
        int node = ready.back();
        ready.pop_back();
        order.push_back(node);
        for (size_t i = (size_t)node + 1; i < graph.nodes.size(); i++) {
            const auto &after = graph.nodes[i].after;
            if (std::find(after.begin(), after.end(), node) != after.end() && --waits[i] == 0)
                ready.push_back((int)i);
        }
    }
    return order;
}
} // namespace sim

using namespace sim;

SIM_API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    Api hold(api);
    CUstream stream;
    if (!handle)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (int code = stream_of(handle, &stream))
        return code;
    if (stream->capture)
        return CUDA_ERROR_INVALID_VALUE;
    auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->streams.push_back(stream);
    captures.push_back(capture);
    stream->capture = capture;
    stream->last.clear();
    return 0;
}

SIM_API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    Api hold(api);
    CUstream stream;
    *out = nullptr;
    int code = stream_of(handle, &stream);
    if (code == CUDA_ERROR_INVALID_HANDLE)
        return code;
    auto capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture->origin != stream)
        return ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
        return ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bool whole = joined(capture->graph, stream->last);
    capture->over = true;
    for (CUstream each : capture->streams) {
        each->capture = nullptr;
        each->last.clear();
    }
    captures.erase(std::find(captures.begin(), captures.end(), capture));
    if (code)
        return code;
    if (capture->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!whole)
        return ERROR_STREAM_CAPTURE_UNJOINED;
    *out = new CUgraph_st{std::move(capture->graph)};
    return 0;
}

SIM_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *out)
{
    Api hold(api);
    CUstream stream;
    if (int code = stream_of(handle, &stream))
        return code;
    *out = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return 0;
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    count_call();
    std::swap(*mode, thread_mode);
    return 0;
}

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    Api hold(api);
    CUcontext context;
    if (int code = current(&context))
        return code;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    *out = new CUgraphExec_st{context, graph->graph};
    return 0;
}

SIM_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    Api hold(api);
    CUstream stream;
    if (int code = stream_of(handle, &stream))
        return code;
    if (!exec || exec->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (int code = refuse_freed(exec))
        return code;
    Random random;
    random.seed(settings.seed + stream->given);
    for (int node : drawn_order(exec->graph, random))
        stream_give(stream, exec->graph.nodes[(size_t)node].work);
    return 0;
}

SIM_API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    count_call();
    delete exec;
    return exec ? 0 : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGraphDestroy(CUgraph graph)
{
    delete graph;
    return graph ? 0 : CUDA_ERROR_INVALID_VALUE;
}
